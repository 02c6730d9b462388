//! The hosts, and the sentence on top of the page.

use crate::admin::now::{Fleet, Member};
use crate::db::Conn;
use crate::db::query::load::fleet::{self, DiedProcess, HeldJob};
use crate::error::{Doing as _, Result};
use crate::web::kept::Kept;
use crate::web::read::concerns::{UsualRuns, usual_runs};
use crate::web::show::{Markup, about, ago, count, escaped, verdict};
use std::collections::BTreeMap;

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
        let text = format!("{} is quiet: it claims nothing", quiet.place());
        return (1, verdict("warn", &text));
    }
    if let Some(stopping) = of(|member| member.row.draining).next() {
        let text = format!("{} is stopping", stopping.place());
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
            escaped(&one.place())
        )),
        [first, ..] => text.push_str(&format!(
            " <b class=\"bad\">{} and {} more are dead</b>.",
            escaped(&first.place()),
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

// --- The processes and their jobs, as one look at the tables ---

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
    pub(crate) fn read(conn: &mut Conn<'_>, usual: &Kept<UsualRuns>) -> Result<Self> {
        let fleet = Fleet::read(conn)?;
        let held = fleet::oldest(conn, RUNS).doing("look at the running jobs")?;
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
