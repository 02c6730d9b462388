//! A queue at this moment.

use crate::read::now::{Fleet, Promises, QueueView};
use crate::read::sql::fleet::{self, HeldJob};
use crate::read::sql::totals::{self, ScheduledJobs};
use crate::web::read::concerns::{ready_jobs, who_and_why};
use crate::web::read::{ClassesOfQueue, QueueStateCounts, QueueVerdict};
use crate::web::show::{ago, count, duration};
use serde_json::Value;
use std::time::Duration;
use windlass::internal::admin::secrets::Secrets;
use windlass::internal::db::query::job_view::{self, JobView, TextLimits};
use windlass::internal::db::query::ready::{self, CappedCount};
use windlass::internal::db::table::pauses;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::job::arguments::unlisted;
use windlass::{Conn, Result};

/// The most jobs in line that are shown.
const NEXT: i64 = 10;

/// The most running jobs that are read.
const RUNS: i64 = 2_000;

/// A queue with the processes that serve it.
#[derive(Debug, Clone)]
pub(crate) struct QueueDetails {
    pub(crate) queue: QueueView,
    pub(crate) fleet: Fleet,
    /// The jobs of the queue that processes hold, among the 2,000 oldest of all queues.
    pub(crate) held: Vec<HeldJob>,
    pub(crate) scheduled: ScheduledJobs,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
    pub(crate) failed_classes: ClassesOfQueue,
}

impl QueueDetails {
    /// Reads what `counts` do not have.
    pub(crate) fn read(
        conn: &mut Conn<'_>,
        name: &str,
        promises: &Promises,
        counts: &QueueStateCounts,
    ) -> Result<Self> {
        let action = "look at the queue";
        let fleet = Fleet::read(conn)?;
        let ready = ready::ready_of(conn, name).during(action)?;
        let pause = pauses::pause_of_queue(conn, name).during(action)?;
        let mut held = fleet::oldest(conn, RUNS).during(action)?;
        held.retain(|job| job.queue_name == name);
        Ok(QueueDetails {
            queue: QueueView::new(ready, pause, &fleet, promises),
            fleet,
            held,
            scheduled: totals::scheduled(conn, name).during(action)?,
            blocked: counts.blocked.of(name),
            failed: counts.failed.of(name),
            failed_classes: counts.failed_classes(name),
        })
    }

    /// Returns how many of its jobs run.
    pub(crate) fn running(&self) -> u64 {
        let running = self.held.iter().filter(|job| !job.is_ahead);
        running.count() as u64
    }

    /// Returns how many threads the workers have that serve it and claim, and how many of these
    /// threads run a job of any queue.
    pub(crate) fn threads(&self) -> (u64, u64) {
        let serving = self.fleet.serving(&self.queue.name);
        let claiming = serving.filter(|worker| worker.claims());
        claiming.fold((0, 0), |(threads, busy), worker| {
            (threads + worker.threads, busy + worker.busy())
        })
    }
}

/// A ready job.
#[derive(Debug, Clone)]
pub(crate) struct LineJob {
    pub(crate) job_id: i64,
    /// The same as text, for links.
    pub(crate) id: String,
    pub(crate) class_name: String,
    pub(crate) arguments: String,
    pub(crate) priority: i32,
    pub(crate) seconds: f64,
}

/// The most characters of arguments.
const ARGUMENTS: usize = 120;

/// Reads the jobs that are claimed next.
pub(crate) fn next(conn: &mut Conn<'_>, queue: &str) -> Result<Vec<LineJob>> {
    let action = "look at the next jobs";
    let ids = totals::next(conn, queue, NEXT).during(action)?;
    let jobs = job_view::jobs(conn, &ids, TextLimits::LIST).during(action)?;
    let classes = jobs.iter().map(|job| job.class_name.as_str());
    let secrets = Secrets::of_classes(conn, classes).during("read the class")?;
    let jobs = jobs.into_iter().map(|job| LineJob {
        job_id: job.job_id,
        id: job.job_id.to_string(),
        arguments: shown(&job, secrets.get(&job.class_name).unwrap_or(&Secrets::All)),
        priority: job.priority,
        seconds: job.seconds_since(job.ready_at),
        class_name: job.class_name,
    });
    Ok(jobs.collect())
}

/// Returns the arguments of a job as compact JSON without its secrets, cut if they are long.
fn shown(job: &JobView, secrets: &Secrets) -> String {
    let arguments = job.arguments.as_deref();
    let mut text = match secrets.show(arguments.unwrap_or("\"too long to show\"")) {
        Value::String(text) => text,
        other => unlisted(&other.to_string()).to_owned(),
    };
    if let Some((end, _)) = text.char_indices().nth(ARGUMENTS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A worker that serves the queue.
#[derive(Debug, Clone)]
pub(crate) struct ServingWorker {
    pub(crate) location: String,
    pub(crate) queues: String,
    pub(crate) threads: u64,
    pub(crate) busy: u64,
    /// The number of this queue's jobs that it runs.
    pub(crate) here: u64,
    pub(crate) heartbeat: f64,
    pub(crate) is_dead: bool,
    /// `quiet`, `stopping`, or nothing.
    pub(crate) state: &'static str,
}

/// The most workers that are shown.
const WORKERS: usize = 50;

/// Returns the workers that serve the queue, dead ones first.
pub(crate) fn serving(details: &QueueDetails) -> Vec<ServingWorker> {
    let serving = details.fleet.serving(&details.queue.name);
    let workers = serving.map(|worker| {
        let here = details.held.iter().filter(|job| !job.is_ahead);
        let here = here.filter(|job| job.process_id == Some(worker.row.id));
        ServingWorker {
            location: worker.location(),
            queues: worker.queues.replace(',', ", "),
            threads: worker.threads,
            busy: worker.busy(),
            here: here.count() as u64,
            heartbeat: worker.row.heartbeat_seconds,
            is_dead: worker.is_dead(),
            state: match (worker.row.draining, worker.is_quiet()) {
                (true, _) => "stopping",
                (_, true) => "quiet",
                _ => "",
            },
        }
    });
    let mut workers: Vec<ServingWorker> = workers.collect();
    workers.sort_by_key(|worker| (!worker.is_dead, std::cmp::Reverse(worker.here)));
    workers.truncate(WORKERS);
    workers
}

// --- The answer on top of a queue: whether its jobs start in time, and if not, why ---

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    /// A class of the style sheet: `bad`, `warn`, or nothing.
    pub(crate) class: &'static str,
    pub(crate) lead: String,
    /// The explanation, or what to do.
    pub(crate) text: String,
}

/// Returns whether the jobs of a queue start in time, and if not, why.
pub(crate) fn why_late(details: &QueueDetails) -> Why {
    let queue = &details.queue;
    let waited = duration(queue.oldest_seconds.unwrap_or_default());
    let why = |class, lead: String, text: String| Why { class, lead, text };
    match queue.verdict {
        QueueVerdict::Late { promise } => why(
            "bad",
            format!("Late: {}", promised(&waited, promise)),
            threads(details),
        ),
        QueueVerdict::Unserved | QueueVerdict::Silent | QueueVerdict::Quiet => {
            unserved(queue, &waited)
        }
        QueueVerdict::Paused => paused(queue),
        QueueVerdict::InTime { promise } => why(
            "",
            format!("In time: {}", promised(&waited, promise)),
            String::new(),
        ),
        QueueVerdict::Unjudged => why(
            "",
            format!("Its oldest ready job has waited for {waited}."),
            threads(details),
        ),
        QueueVerdict::Empty => {
            let lead = "No job is ready on this queue.".to_owned();
            why("", lead, String::new())
        }
    }
}

fn promised(waited: &str, promise: Duration) -> String {
    let promise = duration(promise.as_secs_f64());
    format!("its oldest ready job has waited for {waited}, and {promise} is promised.")
}

/// Returns why no worker takes the jobs of a queue, and what to do.
fn unserved(queue: &QueueView, waited: &str) -> Why {
    let (class, why, text) = match queue.verdict {
        QueueVerdict::Silent => (
            "bad",
            "and the workers of the queue have had no heartbeat for 60 s.",
            "Start workers, and a supervisor that gives the jobs of dead ones to others."
                .to_owned(),
        ),
        QueueVerdict::Quiet => (
            "warn",
            "and all workers of the queue are quiet or stopping.",
            "A quiet worker claims nothing until it receives SIGCONT.".to_owned(),
        ),
        _ => (
            "warn",
            "and no worker serves the queue.",
            format!(
                "Start a worker whose queues include {}: its oldest ready job has waited for {waited}.",
                queue.name
            ),
        ),
    };
    Why {
        class,
        lead: format!("Unserved: {}, {why}", ready_jobs(queue)),
        text,
    }
}

fn paused(queue: &QueueView) -> Why {
    let said = queue.pause.as_ref().map(|pause| {
        let who = who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref());
        format!(" {}{who}", ago(pause.paused_seconds))
    });
    Why {
        class: "warn",
        lead: format!("Paused{}.", said.unwrap_or_default()),
        text: format!(
            "{}. None starts until the queue is resumed.",
            first_upper(&ready_jobs(queue))
        ),
    }
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Returns whether threads are free.
fn threads(details: &QueueDetails) -> String {
    let ((threads, busy), here) = (details.threads(), details.running());
    let jobs = match here {
        0 => "none of them with a job of this queue".to_owned(),
        1 => "1 of them with a job of this queue".to_owned(),
        here => format!("{} of them with jobs of this queue", count(here)),
    };
    match (threads, busy) {
        (0, _) => String::new(),
        (threads, busy) if busy >= threads => format!(
            "All {} threads of the workers that serve it are busy, {jobs}.",
            count(threads)
        ),
        (threads, busy) => format!(
            "{} of the {} threads of the workers that serve it are busy, {jobs}. If jobs wait although \
             threads are free, their classes may be paused, or registered with no worker: look at one of the jobs.",
            count(busy),
            count(threads)
        ),
    }
}
