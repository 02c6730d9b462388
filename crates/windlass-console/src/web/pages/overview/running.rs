//! The jobs that have run for longest.

use crate::read::curves::QueueCurves;
use crate::read::now::{Fleet, LoadNow, Member, QueueView};
use crate::read::sql::fleet::{self, HeldJob};
use crate::web::cache::Cached;
use crate::web::read::concerns::{UsualRuns, usual_runs};
use crate::web::show::chart::{SparkLocation, spark};
use crate::web::show::{Markup, duration, short, verdict};
use windlass::history::Histogram;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// The most jobs that are shown.
const MOST_RUNNING: i64 = 8;

/// The oldest runs, and the usual run times of their classes, where the history holds a week.
#[derive(Debug, Clone)]
pub(crate) struct OldestRuns {
    jobs: Vec<HeldJob>,
    usual: UsualRuns,
}

/// A job that runs.
#[derive(Debug, Clone)]
pub(crate) struct LongRun {
    pub(crate) job_id: i64,
    /// The same as text, for links.
    pub(crate) id: String,
    pub(crate) class_name: String,
    /// The process and its thread: `app-1:4242 · windlass-job-3`.
    pub(crate) location: String,
    pub(crate) seconds: f64,
    /// True if it has run for much longer than others of its class.
    pub(crate) is_long: bool,
    pub(crate) verdict: Markup,
}

/// Reads the oldest runs.
pub(crate) fn read(conn: &mut Conn<'_>, usual: &Cached<UsualRuns>) -> Result<OldestRuns> {
    let mut jobs = fleet::oldest(conn, 4 * MOST_RUNNING).during("look at the running jobs")?;
    jobs.retain(|job| !job.is_ahead);
    jobs.truncate(usize::try_from(MOST_RUNNING).unwrap_or(usize::MAX));
    let usual = usual_runs(conn, usual, jobs.iter().map(|job| job.class_name.as_str()))?;
    Ok(OldestRuns { jobs, usual })
}

/// Returns the runs as they are shown.
pub(crate) fn rows(runs: OldestRuns, fleet: Option<&Fleet>) -> Vec<LongRun> {
    let usual = &runs.usual;
    let row = |job: HeldJob| {
        let member = fleet.and_then(|fleet| {
            let mut members = fleet.members.iter();
            members.find(|member| Some(member.row.id) == job.process_id)
        });
        let judged = RunVerdict::of(&job, usual.get(&job.class_name));
        LongRun {
            job_id: job.job_id,
            id: job.job_id.to_string(),
            location: location(&job, member),
            seconds: job.seconds,
            is_long: judged.is_long,
            verdict: judged.markup,
            class_name: job.class_name,
        }
    };
    runs.jobs.into_iter().map(row).collect()
}

fn location(job: &HeldJob, member: Option<&Member>) -> String {
    let process = member.map(Member::location).unwrap_or_default();
    match &job.note.thread {
        Some(thread) => format!("{process} · {thread}"),
        None => process,
    }
}

/// The verdict on the run time of a job, compared with its class.
#[derive(Debug, Clone)]
pub(crate) struct RunVerdict {
    pub(crate) is_long: bool,
    pub(crate) markup: Markup,
}

impl RunVerdict {
    /// Judges a run by the usual run times of its class, if they are known.
    pub(crate) fn of(job: &HeldJob, usual: Option<&Histogram>) -> Self {
        let p99 = usual.and_then(|usual| usual.quantile(0.99));
        let p99 = p99.map(|p99| p99.as_secs_f64());
        // The true value may be up to 2.5 times as large as the one of the histogram.
        let is_long = p99.is_some_and(|p99| job.seconds > (2.5 * p99).max(1.0));
        let progress = job.note.progress.as_ref().map(|progress| {
            let percent = short(progress.percent);
            match progress.message.as_str() {
                "" => format!("at {percent} %"),
                message => format!("at {percent} %: {message}"),
            }
        });
        let markup = match (is_long, p99, progress) {
            (true, Some(p99), _) => verdict(
                "bad",
                &format!("99 % of its class take less than {}", duration(p99)),
            ),
            (_, _, Some(progress)) => verdict("ok", &progress),
            (_, Some(_), None) => verdict("ok", "as usual"),
            (_, None, None) => Markup::default(),
        };
        RunVerdict { is_long, markup }
    }
}

// --- The oldest ready job of each queue ---

/// The most queues that are shown.
const MOST_QUEUES: usize = 12;

/// A queue, and the curve of the oldest ready job's age over the last hour.
pub(crate) type QueueRow = (QueueView, Markup);

/// Returns the queues, the worst first.
pub(crate) fn queue_rows(load: &LoadNow, curves: Option<&QueueCurves>) -> Vec<QueueRow> {
    let queues = load.worst_first().into_iter().take(MOST_QUEUES);
    let rows = queues.map(|queue| {
        let curve = curves.and_then(|curves| curves.of(&queue.name));
        let label = format!("oldest ready job of {}, last hour", queue.name);
        let spark = curve.map_or_else(Markup::default, |curve| {
            spark(
                SparkLocation::Cell,
                &curve.oldest_seconds,
                queue.is_late(),
                &label,
            )
        });
        (queue.clone(), spark)
    });
    rows.collect()
}
