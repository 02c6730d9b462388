//! A queue at this moment.

use crate::admin::details::shown_arguments;
use crate::admin::now::{Fleet, Promises, QueueNow};
use crate::db::Conn;
use crate::db::query::load::fleet::{self, HeldJob};
use crate::db::query::load::queue::{self, ScheduledJobs};
use crate::db::query::load::queues;
use crate::db::query::load::totals::CappedCount;
use crate::db::table::pauses;
use crate::error::{Doing as _, Result};
use crate::web::read::places::{ClassesOfQueue, PlaceCounts};

/// The most jobs in line that are shown.
const NEXT: i64 = 10;

/// The most running jobs that are read.
const RUNS: i64 = 2_000;

/// A queue with the processes that serve it.
#[derive(Debug, Clone)]
pub(crate) struct QueueDetails {
    pub(crate) queue: QueueNow,
    pub(crate) fleet: Fleet,
    /// The jobs of the queue that processes hold, among the 2,000 oldest of all queues.
    pub(crate) held: Vec<HeldJob>,
    pub(crate) scheduled: ScheduledJobs,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
    pub(crate) failed_classes: ClassesOfQueue,
}

impl QueueDetails {
    /// Reads what `places` do not have.
    pub(crate) fn read(
        conn: &mut Conn<'_>,
        name: &str,
        promises: &Promises,
        places: &PlaceCounts,
    ) -> Result<Self> {
        let doing = "look at the queue";
        let fleet = Fleet::read(conn)?;
        let ready = queues::ready_of(conn, name).doing(doing)?;
        let pause = pauses::of(conn, name).doing(doing)?;
        let mut held = fleet::oldest(conn, RUNS).doing(doing)?;
        held.retain(|job| job.queue_name == name);
        Ok(QueueDetails {
            queue: QueueNow::new(ready, pause, &fleet, promises),
            fleet,
            held,
            scheduled: queue::scheduled(conn, name).doing(doing)?,
            blocked: places.blocked.of(name),
            failed: places.failed.of(name),
            failed_classes: places.failed_classes(name),
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
    let rows = queue::next(conn, queue, NEXT).doing("look at the next jobs")?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let mut arguments = shown_arguments(conn, &row.class_name, &row.arguments)?;
        if let Some((end, _)) = arguments.char_indices().nth(ARGUMENTS) {
            arguments.truncate(end);
            arguments.push('…');
        }
        jobs.push(LineJob {
            job_id: row.job_id,
            id: row.job_id.to_string(),
            class_name: row.class_name,
            arguments,
            priority: row.priority,
            seconds: row.seconds,
        });
    }
    Ok(jobs)
}

/// A worker that serves the queue.
#[derive(Debug, Clone)]
pub(crate) struct ServingWorker {
    pub(crate) place: String,
    pub(crate) queues: String,
    pub(crate) threads: u64,
    pub(crate) busy: u64,
    /// How many jobs of this queue it runs.
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
            place: worker.place(),
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
