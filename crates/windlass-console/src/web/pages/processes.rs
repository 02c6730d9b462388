//! The processes, and what they run.

use crate::read::now::{Fleet, Member, MemberKind};
use crate::read::sql::fleet::{self, DiedProcess, HeldJob};
use crate::web::cache::Cached;
use crate::web::http::{PageError, Response};
use crate::web::pages::overview::running::RunVerdict;
use crate::web::read::concerns::{UsualRuns, usual_runs};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, about, ago, count, escaped, filters, state, verdict};
use crate::web::site::Section;
use askama::Template;
use std::collections::{BTreeMap, BTreeSet};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

#[derive(Template)]
#[template(path = "processes/page.html")]
struct ProcessesPage {
    shell: Shell,
    lead: Markup,
    has_rails: bool,
    is_more: bool,
    hosts: Panel<Vec<HostLine>>,
    tree: Panel<Tree>,
    died: Panel<Vec<DiedProcess>>,
}

/// Shows the processes.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let watch = cx.watch();
    let now = cx.panel("the processes", |conn| {
        ProcessesNow::read(conn, &watch.usual_runs)
    });
    let died = cx.panel("the processes that died", |conn| {
        fleet::died(conn).during("look for processes that died")
    });
    let open: Vec<String> = cx.query().all("open").map(str::to_owned).collect();
    let fleet = now.ready().map(|now| &now.fleet);
    let page = ProcessesPage {
        lead: lead(fleet, died.ready().map(Vec::as_slice)),
        has_rails: fleet.is_some_and(Fleet::has_rails),
        is_more: fleet.is_some_and(|fleet| fleet.is_more),
        hosts: now.clone().map(|now| hosts_of(&now.fleet)),
        tree: now.map(|now| process_tree(&now, &open)),
        died,
        shell: cx.shell("Processes", Section::Processes)?,
    };
    cx.render(&page)
}

// --- Supervisors with their processes, and these with what their threads run ---

/// Up to this many running jobs, each is shown with its worker.
const SHOWN: usize = 100;

/// The most jobs of one worker that are shown.
const OF_WORKER: usize = 20;

/// A job that a process runs.
#[derive(Debug, Clone)]
pub(crate) struct RunLine {
    pub(crate) job_id: i64,
    /// The same as text, for links.
    pub(crate) id: String,
    pub(crate) class_name: String,
    pub(crate) thread: String,
    pub(crate) seconds: f64,
    pub(crate) is_long: bool,
    pub(crate) verdict: Markup,
}

/// A process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessLine {
    pub(crate) id: i64,
    pub(crate) location: String,
    pub(crate) name: String,
    /// True if it is shown below its supervisor.
    pub(crate) is_child: bool,
    pub(crate) state: Markup,
    /// The explanation of the state.
    pub(crate) sub: &'static str,
    /// The queues of a worker.
    pub(crate) queues: String,
    /// The activity of the process, such as the busy threads of a worker.
    pub(crate) does: String,
    pub(crate) heartbeat: f64,
    pub(crate) is_dead: bool,
    pub(crate) version: String,
    pub(crate) is_old: bool,
    pub(crate) age: f64,
    pub(crate) runs: Vec<RunLine>,
    /// The number of running jobs that are not shown.
    pub(crate) hidden: u64,
    /// The number of jobs that it has claimed and not started.
    pub(crate) ahead: u64,
}

/// The processes in groups: each begins with a supervisor, or is a process without one.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) groups: Vec<Vec<ProcessLine>>,
    /// True if running jobs are shown only for the workers that were asked for.
    pub(crate) is_folded: bool,
}

/// Returns the processes, groups with a dead one first. `open` has the ids of the workers whose jobs
/// are shown in any case.
pub(crate) fn process_tree(now: &ProcessesNow, open: &[String]) -> Tree {
    let members = &now.fleet.members;
    let running: Vec<&HeldJob> = now.held.iter().filter(|job| !job.is_ahead).collect();
    let is_folded = running.len() > SHOWN;
    let newest = newest_version(&now.fleet);
    let line = |member: &Member, is_child: bool| {
        let is_open = !is_folded || open.iter().any(|id| *id == member.row.id.to_string());
        let own = running
            .iter()
            .filter(|job| job.process_id == Some(member.row.id));
        let runs = own.take(if is_open { OF_WORKER } else { 0 });
        let runs: Vec<RunLine> = runs.map(|job| run(job, now)).collect();
        let hidden = member.running.saturating_sub(runs.len() as u64);
        process(member, is_child, &newest, runs, hidden)
    };
    let ids: BTreeSet<i64> = members.iter().map(|member| member.row.id).collect();
    let parent = |member: &Member| member.row.supervisor_id.filter(|id| ids.contains(id));
    let mut children: BTreeMap<i64, Vec<&Member>> = BTreeMap::new();
    for member in members {
        if let Some(parent) = parent(member) {
            children.entry(parent).or_default().push(member);
        }
    }
    let top = members.iter().filter(|member| parent(member).is_none());
    let groups = top.map(|member| {
        let below = children.get(&member.row.id).into_iter().flatten();
        let below = below.map(|child| line(child, true));
        let mut group = vec![line(member, false)];
        group.extend(below);
        group
    });
    let mut groups: Vec<Vec<ProcessLine>> = groups.collect();
    groups.sort_by_key(|group| !group.iter().any(|line| line.is_dead));
    Tree { groups, is_folded }
}

fn run(job: &HeldJob, now: &ProcessesNow) -> RunLine {
    let judged = RunVerdict::of(job, now.usual.get(&job.class_name));
    RunLine {
        job_id: job.job_id,
        id: job.job_id.to_string(),
        class_name: job.class_name.clone(),
        thread: job
            .note
            .thread
            .clone()
            .unwrap_or_else(|| "a thread".to_owned()),
        seconds: job.seconds,
        is_long: judged.is_long,
        verdict: judged.markup,
    }
}

fn process(
    member: &Member,
    is_child: bool,
    newest: &str,
    runs: Vec<RunLine>,
    hidden: u64,
) -> ProcessLine {
    let kind = member.row.kind.to_lowercase();
    let (state, sub) = match member {
        _ if member.is_dead() => (
            verdict("bad", &format!("{kind}, dead")),
            "a supervisor prunes it, and gives its jobs to others",
        ),
        _ if member.row.draining => (
            state("pause ink", &format!("{kind}, stopping")),
            "it claims nothing more, and ends with its last job",
        ),
        _ if member.is_quiet() => (
            state("pause ink", &format!("{kind}, quiet")),
            "it claims nothing until it receives SIGCONT",
        ),
        _ => (verdict("ok", &kind), ""),
    };
    ProcessLine {
        id: member.row.id,
        location: member.location(),
        name: member.row.name.clone(),
        is_child,
        state,
        sub,
        queues: member.queues.replace(',', ", "),
        does: does(member),
        heartbeat: member.row.heartbeat_seconds,
        is_dead: member.is_dead(),
        version: match member.is_of_rails() {
            true => "Rails".to_owned(),
            false => member.version().to_owned(),
        },
        is_old: !member.is_of_rails() && member.version() != newest,
        age: member.row.age_seconds,
        runs,
        hidden,
        ahead: member.ahead,
    }
}

fn does(member: &Member) -> String {
    match member.kind {
        MemberKind::Worker => {
            format!(
                "{} of {} threads",
                count(member.busy()),
                count(member.threads)
            )
        }
        MemberKind::Supervisor => match member.row.metadata["children"].as_u64() {
            Some(1) => "1 process".to_owned(),
            Some(children) => format!("{} processes", count(children)),
            None => String::new(),
        },
        MemberKind::Dispatcher => "makes scheduled jobs ready".to_owned(),
        MemberKind::Scheduler => match member.row.metadata["recurring_schedule"].as_array() {
            Some(tasks) if tasks.len() == 1 => "declares 1 recurring task".to_owned(),
            Some(tasks) if !tasks.is_empty() => {
                format!("declares {} recurring tasks", count(tasks.len()))
            }
            _ => "fires recurring tasks".to_owned(),
        },
        MemberKind::Other => String::new(),
    }
}

// --- The hosts, and the sentence on top of the page ---

/// A host.
#[derive(Debug, Clone)]
pub(crate) struct HostLine {
    pub(crate) name: String,
    pub(crate) processes: usize,
    pub(crate) threads: u64,
    pub(crate) busy: u64,
    /// Each version with whether it is older than the newest of all.
    pub(crate) versions: Vec<(String, bool)>,
    pub(crate) verdict: Markup,
    rank: u8,
}

/// Returns the newest version that runs.
pub(crate) fn newest_version(fleet: &Fleet) -> String {
    let versions = fleet.members.iter().map(Member::version);
    let newest = versions.max_by(|one, other| numbers(one).cmp(&numbers(other)));
    newest.unwrap_or_default().to_owned()
}

fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Returns the hosts, those with dead processes first.
pub(crate) fn hosts_of(fleet: &Fleet) -> Vec<HostLine> {
    let newest = newest_version(fleet);
    let mut hosts: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in &fleet.members {
        hosts.entry(&member.row.hostname).or_default().push(member);
    }
    let lines = hosts
        .into_iter()
        .map(|(name, members)| host(name, &members, &newest));
    let mut lines: Vec<HostLine> = lines.collect();
    lines.sort_by_key(|line| line.rank);
    lines
}

fn host(name: &str, members: &[&Member], newest: &str) -> HostLine {
    let alive = || members.iter().filter(|member| !member.is_dead());
    let mut versions: Vec<&str> = members
        .iter()
        .map(|member| member.version())
        .filter(|version| !version.is_empty())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let versions: Vec<(String, bool)> = versions
        .into_iter()
        .map(|version| (version.to_owned(), version != newest))
        .collect();
    let (rank, verdict) = judge(members, versions.iter().any(|(_, is_old)| *is_old));
    HostLine {
        name: if name.is_empty() {
            "unknown".to_owned()
        } else {
            name.to_owned()
        },
        processes: members.len(),
        threads: alive().map(|member| member.threads).sum(),
        busy: alive().map(|member| member.busy()).sum(),
        versions,
        verdict,
        rank,
    }
}

fn judge(members: &[&Member], is_old: bool) -> (u8, Markup) {
    let of = |is_it: fn(&Member) -> bool| members.iter().filter(move |member| is_it(member));
    let dead = of(Member::is_dead).count();
    if dead > 0 {
        let silent = of(Member::is_dead).map(|member| member.row.heartbeat_seconds);
        let longest = about(silent.fold(0.0, f64::max));
        let text = match members.len() == dead {
            true => format!("all dead: no heartbeat for {longest}"),
            false => format!("{} dead: no heartbeat for {longest}", count(dead)),
        };
        return (0, verdict("bad", &text));
    }
    if let Some(quiet) = of(Member::is_quiet).next() {
        let text = format!("{} is quiet: it claims nothing", quiet.location());
        return (1, verdict("warn", &text));
    }
    if let Some(stopping) = of(|member| member.row.draining).next() {
        let text = format!("{} is stopping", stopping.location());
        return (2, verdict("ok", &text));
    }
    if is_old {
        return (2, verdict("warn", "runs an older version than other hosts"));
    }
    (3, verdict("ok", "all have had a heartbeat within 60 s"))
}

/// Returns the sentence on top.
pub(crate) fn lead(fleet: Option<&Fleet>, died: Option<&[DiedProcess]>) -> Markup {
    let Some(fleet) = fleet else {
        return Markup::default();
    };
    let mut text = workers(fleet);
    let dead: Vec<&Member> = fleet.dead().collect();
    match dead.as_slice() {
        [] => {}
        [one] => text.push_str(&format!(
            " <b class=\"bad\">{} is dead</b>.",
            escaped(&one.location())
        )),
        [first, ..] => text.push_str(&format!(
            " <b class=\"bad\">{} and {} more are dead</b>.",
            escaped(&first.location()),
            count(dead.len() - 1)
        )),
    }
    let newest = died.unwrap_or_default().first();
    if let Some(died) = newest.filter(|died| died.seconds < 3_600.0) {
        let jobs = if died.jobs == 1 { "job" } else { "jobs" };
        text.push_str(&format!(
            " {} died with {} {jobs} running, which were recovered {}.",
            escaped(&died.hostname),
            count(died.jobs),
            ago(died.seconds)
        ));
    }
    Markup::trusted(text)
}

/// Returns how many workers run, and how busy they are.
fn workers(fleet: &Fleet) -> String {
    let (all, alive) = (fleet.workers().count(), fleet.alive_workers().count());
    let (threads, busy) = fleet.threads();
    let at_work = format!(
        "with {} of {} threads at work.",
        count(busy),
        count(threads)
    );
    let more = if fleet.is_more { "+" } else { "" };
    match (all, alive) {
        (0, _) => "No worker is registered.".to_owned(),
        (1, 1) => format!("1 worker runs, {at_work}"),
        (all, alive) if all == alive => format!("{}{more} workers run, {at_work}", count(all)),
        (all, alive) => format!(
            "{} of {}{more} workers are alive, {at_work}",
            count(alive),
            count(all)
        ),
    }
}

// --- The processes and their jobs, read at one moment ---

/// The most running jobs that are read.
const RUNS: i64 = 1_000;

/// The processes and their jobs.
#[derive(Debug, Clone)]
pub(crate) struct ProcessesNow {
    pub(crate) fleet: Fleet,
    /// The jobs that processes hold, the oldest first.
    pub(crate) held: Vec<HeldJob>,
    /// The usual run times of some classes, where the history holds a week.
    pub(crate) usual: UsualRuns,
}

impl ProcessesNow {
    /// Reads them.
    pub(crate) fn read(conn: &mut Conn<'_>, usual: &Cached<UsualRuns>) -> Result<Self> {
        let fleet = Fleet::read(conn)?;
        let held = fleet::oldest(conn, RUNS).during("look at the running jobs")?;
        let usual = usual_runs(conn, usual, held.iter().map(|job| job.class_name.as_str()))?;
        Ok(ProcessesNow { fleet, held, usual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.2") > numbers("0.9.12"));
        assert!(numbers("") < numbers("0.1.0"));
    }
}
