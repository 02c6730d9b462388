//! The processes, and what they run.

pub(crate) mod hosts;

use crate::admin::now::{Fleet, Member, MemberKind};
use crate::db::query::load::fleet::{self, DiedProcess, HeldJob};
use crate::error::Doing as _;
use crate::web::http::{PageError, Response};
use crate::web::pages::overview::running::RunVerdict;
use crate::web::pages::processes::hosts::{HostLine, ProcessesNow, newest_version};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, filters, state, verdict};
use crate::web::site::Section;
use askama::Template;
use std::collections::{BTreeMap, BTreeSet};

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
        fleet::died(conn).doing("look for processes that died")
    });
    let open: Vec<String> = cx.query().all("open").map(str::to_owned).collect();
    let fleet = now.ready().map(|now| &now.fleet);
    let page = ProcessesPage {
        lead: hosts::lead(fleet, died.ready().map(Vec::as_slice)),
        has_rails: fleet.is_some_and(Fleet::has_rails),
        is_more: fleet.is_some_and(|fleet| fleet.is_more),
        hosts: now.clone().map(|now| hosts::hosts_of(&now.fleet)),
        tree: now.map(|now| of(&now, &open)),
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
    pub(crate) place: String,
    pub(crate) name: String,
    /// Whether it stands below its supervisor.
    pub(crate) is_child: bool,
    pub(crate) state: Markup,
    /// What explains the state.
    pub(crate) sub: &'static str,
    /// The queues of a worker.
    pub(crate) queues: String,
    /// What it does, or how busy it is.
    pub(crate) does: String,
    pub(crate) heartbeat: f64,
    pub(crate) is_dead: bool,
    pub(crate) version: String,
    pub(crate) is_old: bool,
    pub(crate) age: f64,
    pub(crate) runs: Vec<RunLine>,
    /// How many running jobs are not shown.
    pub(crate) hidden: u64,
    /// How many jobs it has claimed that have not started.
    pub(crate) ahead: u64,
}

/// The processes in groups: each begins with a supervisor, or is a process without one.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) groups: Vec<Vec<ProcessLine>>,
    /// Whether some running jobs are left out, of workers that were not asked for.
    pub(crate) is_folded: bool,
}

/// Returns the processes, groups with a dead one first. `open` has the ids of the workers whose jobs
/// are shown in any case.
pub(crate) fn of(now: &ProcessesNow, open: &[String]) -> Tree {
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
        place: member.place(),
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
