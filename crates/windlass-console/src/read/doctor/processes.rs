//! Checks that waiting jobs have processes to run them.

use crate::read::doctor::scope::{ALIVE, CheckScope, Finding, Verdict, finding};
use crate::read::doctor::{statistics as doctor_statistics, unserved};
use crate::read::duties::{self, DutyNow};
use crate::read::sql::doctor::{self, Load, TaskCounts};
use crate::read::sql::fleet::{self, FleetProcess};
use chrono::Datelike as _;
use windlass::internal::clock;
use windlass::internal::db::table::operations;
use windlass::internal::error::ErrorContext;
use windlass::internal::recurring::time_zone::RulesVersion;
use windlass::{Conn, Result};

/// In seconds. A transaction open for longer keeps dead rows from being removed.
const LONG: f64 = 300.0;

/// In seconds. A job or task due for longer is not being picked up by any process.
const OVERDUE: f64 = 60.0;

/// The end of a finding that only counts dead processes.
pub(crate) const ABOUT_TO_PRUNE: &str = "a supervisor is about to prune them";

/// The registered processes, grouped for this check.
struct ProcessGroups {
    alive: Vec<FleetProcess>,
    dead: usize,
}

impl ProcessGroups {
    fn of(conn: &mut Conn<'_>) -> Result<Self> {
        let all = fleet::list_processes(conn).during("list the processes")?;
        let registered = all.len();
        let is_alive = |one: &FleetProcess| one.heartbeat_seconds <= ALIVE.as_secs_f64();
        let alive: Vec<FleetProcess> = all.into_iter().filter(is_alive).collect();
        Ok(ProcessGroups {
            dead: registered - alive.len(),
            alive,
        })
    }

    fn has(&self, is_it: impl Fn(&FleetProcess) -> bool) -> bool {
        self.alive.iter().any(is_it)
    }

    fn runs(&self, kind: &str) -> bool {
        self.has(|one| one.kind == kind)
    }

    /// Returns whether the supervisor of a quiet worker runs, and is not quiet itself.
    fn is_quiet_alone(&self, worker: &FleetProcess) -> bool {
        let supervisor = worker.supervisor_id;
        supervisor.is_some_and(|id| self.has(|one| one.id == id && !one.is_quiet()))
    }

    /// Returns whether a scheduler of Windlass runs: Solid Queue's has other tasks.
    fn runs_scheduler(&self) -> bool {
        self.has(|one| one.kind == "Scheduler" && one.metadata.get("windlass").is_some())
    }

    /// Returns whether a supervisor of Windlass runs, which continues operations.
    fn runs_operations(&self) -> bool {
        self.has(|one| one.kind == "Supervisor" && one.metadata.get("windlass").is_some())
    }

    /// Returns whether a supervisor runs; Solid Queue's is called `Supervisor(fork)`.
    fn runs_supervisor(&self) -> bool {
        self.has(|one| one.kind.starts_with("Supervisor"))
    }
}

/// Returns whether a process has been running for so long that it has folded the history by now.
fn folds(one: &FleetProcess) -> bool {
    let is_ours = one.metadata.get("windlass").is_some();
    is_ours && ["Supervisor", "Worker"].contains(&&*one.kind) && one.age_seconds > 300.0
}

/// Returns whether a scheduler of Windlass runs.
pub(crate) fn has_scheduler(conn: &mut Conn<'_>) -> Result<bool> {
    Ok(ProcessGroups::of(conn)?.runs_scheduler())
}

/// Checks the processes and their overdue work.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let load = doctor::load(conn).during("look at the load")?;
    let tasks = doctor::tasks(conn, OVERDUE).during("look at the recurring tasks")?;
    let processes = ProcessGroups::of(conn)?;
    let mut findings = registrations(&processes);
    findings.extend(missing(&processes, &load, &tasks));
    findings.extend(quiet(&processes, &load));
    findings.extend(left_quiet(&processes));
    if findings.is_empty() {
        let says = format!("{} run", processes.alive.len());
        findings.push(finding("processes", Verdict::Fine, says));
    }
    findings.extend(late_duties(&processes));
    findings.extend(unserved::check(conn, OVERDUE)?);
    findings.push(scheduled(&load, &processes));
    findings.push(recurring(&tasks, &processes));
    findings.push(zones());
    findings.push(transactions(&load));
    findings.extend(operations(conn, &processes)?);
    findings.push(doctor_statistics::check(conn, processes.has(folds), scope)?);
    Ok(findings)
}

fn registrations(processes: &ProcessGroups) -> Vec<Finding> {
    let mut findings = Vec::new();
    let dead = processes.dead;
    if dead > 0 && !processes.runs_supervisor() {
        let says = format!(
            "{dead} processes have had no heartbeat for {} s, and no supervisor runs that would prune them \
             and give their jobs to others: run one",
            ALIVE.as_secs()
        );
        findings.push(finding("processes", Verdict::Problem, says));
    } else if dead > 0 {
        let says = format!(
            "{dead} processes have had no heartbeat for {} s: {ABOUT_TO_PRUNE}",
            ALIVE.as_secs()
        );
        findings.push(finding("processes", Verdict::Warning, says));
    } else if !processes.alive.is_empty() && !processes.runs_supervisor() {
        let says = "no supervisor runs: the jobs of a process that dies would not be recovered";
        findings.push(finding("processes", Verdict::Warning, says));
    }
    findings
}

/// Returns work that waits although no process would take it.
fn missing(processes: &ProcessGroups, load: &Load, tasks: &TaskCounts) -> Vec<Finding> {
    let waits = load.has_ready || load.has_scheduled || load.has_blocked;
    let mut findings = Vec::new();
    let mut problem = |says: &str| findings.push(finding("processes", Verdict::Problem, says));
    if waits && !processes.runs("Worker") {
        problem(if load.has_ready {
            "jobs are ready and no worker runs: start one"
        } else {
            "jobs wait and no running worker would take them: start one"
        });
    }
    if load.has_scheduled && !processes.runs("Dispatcher") {
        problem("jobs are scheduled and no dispatcher runs to make them ready: start one");
    }
    if tasks.known > 0 && !processes.runs_scheduler() {
        problem("recurring tasks exist and no scheduler runs to fire them: start one");
    }
    findings
}

/// Returns workers that run and claim nothing.
fn quiet(processes: &ProcessGroups, load: &Load) -> Vec<Finding> {
    let is_worker = |one: &&FleetProcess| one.kind == "Worker";
    let workers: Vec<&FleetProcess> = processes.alive.iter().filter(is_worker).collect();
    let quiet: Vec<&&FleetProcess> = workers.iter().filter(|one| one.is_quiet()).collect();
    let claiming = workers
        .iter()
        .filter(|one| !one.is_quiet() && !one.draining);
    let is_still = load.has_ready && !workers.is_empty() && claiming.count() == 0;
    if quiet.is_empty() {
        let says = "jobs are ready and all workers are stopping";
        let found = is_still.then(|| finding("processes", Verdict::Warning, says));
        return found.into_iter().collect();
    }
    let names: Vec<&str> = quiet
        .iter()
        .take(doctor::FIRST)
        .map(|one| one.name.as_str())
        .collect();
    let more = if quiet.len() > names.len() {
        ", .."
    } else {
        ""
    };
    let says = format!(
        "{} of {} workers are quiet: they claim nothing until SIGCONT ({}{more})",
        quiet.len(),
        workers.len(),
        names.join(", ")
    );
    let says = match quiet.iter().find(|one| processes.is_quiet_alone(one)) {
        Some(one) => format!(
            "{says}; {} is quiet although its supervisor is not: send SIGCONT to process {} on {}",
            one.name, one.pid, one.hostname
        ),
        None => says,
    };
    vec![if is_still {
        let says = format!("jobs are ready and no worker claims them: {says}");
        finding("processes", Verdict::Problem, says)
    } else {
        finding("processes", Verdict::Warning, says)
    }]
}

/// Returns workers that are quiet although their supervisor, which would have asked them, is not.
fn left_quiet(processes: &ProcessGroups) -> Option<Finding> {
    let claims = |id: i64| {
        let mut supervisors = processes.alive.iter();
        supervisors.any(|one| one.id == id && !one.is_quiet() && !one.draining)
    };
    let is_left = |one: &&FleetProcess| {
        one.kind == "Worker" && one.is_quiet() && one.supervisor_id.is_some_and(claims)
    };
    let left = processes.alive.iter().filter(is_left);
    let left: Vec<String> = left
        .map(|one| format!("{} (pid {} on {})", one.name, one.pid, one.hostname))
        .collect();
    let (first, rest) = left.split_at(left.len().min(doctor::FIRST));
    let more = if rest.is_empty() { "" } else { ", .." };
    let says = format!(
        "{} workers are quiet although their supervisor is not: {}{more}; unless they were sent SIGTSTP, they have \
         missed that claiming goes on: send them SIGCONT",
        left.len(),
        first.join(", ")
    );
    (!left.is_empty()).then(|| finding("processes", Verdict::Warning, says))
}

/// Returns the duties that no process has done for long, although some have them.
fn late_duties(processes: &ProcessGroups) -> Option<Finding> {
    let duties = duties::duties_of_processes(processes.alive.iter().map(|one| &one.metadata));
    let is_late = |late: &f64| *late > OVERDUE;
    let late = duties
        .iter()
        .filter(|duty| duty.late_seconds.as_ref().is_some_and(is_late));
    let name = |duty: &DutyNow| {
        let name: String = duty.name.chars().take(60).collect();
        format!("`{name}` ({:.0} s ago)", duty.last_turn_seconds.min(1e9))
    };
    let late: Vec<String> = late.map(name).collect();
    let (first, rest) = late.split_at(late.len().min(doctor::FIRST));
    let more = if rest.is_empty() { "" } else { ", .." };
    let says = format!(
        "duties of the maintenance are late: {}{more}; look at the logs of the supervisors and dispatchers, and at \
         `windlass processes`",
        first.join(", ")
    );
    (!late.is_empty()).then(|| finding("duties", Verdict::Warning, says))
}

fn scheduled(load: &Load, processes: &ProcessGroups) -> Finding {
    match load.overdue {
        Some(seconds) if seconds > OVERDUE => {
            let says = format!("a scheduled job has been due for {seconds:.0} s");
            let says = match processes.runs("Dispatcher") {
                true => format!(
                    "{says} although a dispatcher runs: the database may refuse to make it ready, which the log of the \
                     dispatcher says, or so many jobs are due that they take their time"
                ),
                false => format!("{says}: run a dispatcher"),
            };
            Finding {
                jobs: load.first_due.into_iter().collect(),
                ..finding("scheduled", Verdict::Warning, says)
            }
        }
        _ => finding("scheduled", Verdict::Fine, "no scheduled job is overdue"),
    }
}

fn recurring(tasks: &TaskCounts, processes: &ProcessGroups) -> Finding {
    let Some(late) = &tasks.late else {
        let mut says = format!("{} tasks, none is overdue", tasks.known);
        if let Some(first) = tasks.undeclared.first() {
            says += &format!(
                "; no scheduler that runs declares `{first}`{} any more, and it is deleted a week after one did",
                match tasks.undeclared.len() - 1 {
                    0 => String::new(),
                    others => format!(" and {others} others"),
                }
            );
        }
        return finding("recurring", Verdict::Fine, says);
    };
    let says = format!(
        "{} of {} tasks are overdue, `{}` since {:.0} s",
        tasks.overdue, tasks.known, late.key, late.seconds
    );
    if !processes.runs_scheduler() {
        let says = format!("{says}: no scheduler runs; start one");
        return finding("recurring", Verdict::Problem, says);
    }
    // A program that no longer has a task leaves its row for a while.
    let verdict = if late.is_declared {
        Verdict::Warning
    } else {
        Verdict::Problem
    };
    let says = format!(
        "{says}: the schedulers that run do not fire it; start one of the program that declares it, or look \
         at the logs of the schedulers"
    );
    finding("recurring", verdict, says)
}

/// Returns which rules of time zones this program follows.
fn zones() -> Finding {
    let rules = RulesVersion::current();
    let says = format!("the rules of time zones are {rules}");
    if rules.is_old(clock::calendar().year()) {
        let says = format!(
            "{says}: they are old, so that tasks may be due an hour early or late; update the system's package of \
             time zones (`tzdata`), or this program"
        );
        return finding("zones", Verdict::Warning, says);
    }
    finding("zones", Verdict::Fine, says)
}

/// Returns whether the operation that has not moved for longest will go on.
fn operations(conn: &mut Conn<'_>, processes: &ProcessGroups) -> Result<Option<Finding>> {
    let Some(stillest) = operations::stillest(conn).during("look at the operations")? else {
        return Ok(None);
    };
    let (id, action) = (stillest.id, &stillest.action);
    let seconds = (stillest.now - stillest.moved_at).as_seconds_f64();
    let found = |verdict, says: String| Ok(Some(finding("operations", verdict, says)));
    if seconds <= OVERDUE {
        let says = format!("operation {id} ({action}) runs; `windlass operations list` shows all");
        return found(Verdict::Fine, says);
    }
    let says = format!("operation {id} ({action}) has not moved for {seconds:.0} s");
    if !processes.runs_operations() {
        let says = format!("{says}, and no supervisor runs that would go on with it: start one");
        return found(Verdict::Warning, says);
    }
    found(
        Verdict::Warning,
        format!(
            "{says}, although a supervisor runs: look at its log; a newer version may have started the \
             operation; `windlass operations stop {id}` stops it"
        ),
    )
}

fn transactions(load: &Load) -> Finding {
    match load.transaction {
        Some(seconds) if seconds > LONG => {
            let holder = load.holder.as_deref().unwrap_or("unknown");
            let says = format!(
                "a transaction has been open for {seconds:.0} s ({holder}): the rows of finished jobs cannot be \
                 cleared while it is, and claiming gets slower; end it"
            );
            finding("transactions", Verdict::Warning, says)
        }
        _ => finding(
            "transactions",
            Verdict::Fine,
            "none has been open for a long time",
        ),
    }
}
