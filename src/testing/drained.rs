//! The runs that `drain` performed, and assertions about them.

use crate::db::AsConn;
use crate::db::model::extras::Extras;
use crate::db::table::job_logs::LogLine;
use crate::db::test_support::{self, WaitingJob};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use crate::job::arguments::ArgumentsReader;
use crate::job::class::Job;
use crate::job::error::JobError;
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// With more runs than this, a job must be enqueueing itself endlessly.
const MOST: usize = 10_000;

/// The outcome of a job that was performed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It finished.
    Finished,
    /// It failed permanently, with an error of this kind and text.
    Failed(String, String),
    /// The attempt failed with an error of this kind and text; the next follows after this delay.
    Retried(String, String, Duration),
    /// It was discarded or cancelled, for this kind of reason and text.
    Discarded(String, String),
    /// It asked to run again after this delay.
    Snoozed(Duration),
    /// The database did not answer a call of Windlass, with an error of this kind and text. The run does not count, and
    /// the next follows after this delay.
    Interrupted(String, String, Duration),
    /// It waits at this step, and runs again when the wait is over.
    Waits(String),
    /// Its claim was lost during the run, for example because its own code deleted it.
    Lost,
    /// A [`Fault`](crate::testing::Fault) ended the process in the run, and a supervisor recovered
    /// the job.
    Crashed,
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Performed {
    /// The job.
    pub id: JobId,
    /// Its class.
    pub class_name: String,
    /// The outcome.
    pub outcome: RunOutcome,
    /// The lines that the job logged with [`Context::log`](crate::Context::log).
    pub logs: Vec<LogLine>,
}

/// The result of performing all jobs that were ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a job may have failed: see `assert_all_finished`"]
pub struct Drained {
    /// All runs, in order.
    pub runs: Vec<Performed>,
}

impl Drained {
    /// Returns how many jobs finished.
    pub fn finished(&self) -> usize {
        self.runs
            .iter()
            .filter(|run| run.outcome == RunOutcome::Finished)
            .count()
    }

    /// Asserts that exactly `count` jobs ran, and that all of them finished.
    ///
    /// # Panics
    /// If the assertion fails; the message contains the errors.
    #[track_caller]
    pub fn assert_all_finished(&self, count: usize) {
        let others = self
            .runs
            .iter()
            .filter(|run| run.outcome != RunOutcome::Finished);
        let others: Vec<_> = others.collect();
        assert!(
            others.is_empty(),
            "these jobs have not finished: {others:#?}"
        );
        assert_eq!(
            self.runs.len(),
            count,
            "the number of runs differs: {:#?}",
            self.runs
        );
    }
}

impl Drained {
    /// Asserts that exactly `count` jobs ran, and that the last run of each that kept its claim
    /// finished. Earlier runs may have failed, crashed or snoozed.
    ///
    /// # Panics
    /// If the assertion fails; the message contains all runs.
    #[track_caller]
    pub fn assert_all_finished_in_the_end(&self, count: usize) {
        let mut last = BTreeMap::new();
        for run in &self.runs {
            if run.outcome != RunOutcome::Lost {
                last.insert(run.id.0, &run.outcome);
            }
        }
        assert!(
            last.values()
                .all(|outcome| **outcome == RunOutcome::Finished),
            "the last run of a job has not finished: {:#?}",
            self.runs
        );
        assert_eq!(
            last.len(),
            count,
            "the number of jobs differs: {:#?}",
            self.runs
        );
    }

    pub(crate) fn add(&mut self, run: Performed) {
        self.runs.push(run);
        assert!(
            self.runs.len() < MOST,
            "{MOST} jobs ran and more are ready: does `{}` enqueue itself endlessly?",
            self.runs[self.runs.len() - 1].class_name
        );
    }
}

// --- Assertions about enqueued jobs ---

/// An enqueued job that waits for a worker, until it is due, or for a slot of its concurrency key.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EnqueuedJob<J> {
    /// Its id.
    pub id: JobId,
    /// Its class.
    pub class_name: String,
    /// Its arguments: the job itself, or JSON if the type is not given.
    pub arguments: J,
    /// Its queue.
    pub queue_name: String,
    /// Its priority; a smaller number is more important.
    pub priority: i32,
    /// The number of attempts made.
    pub attempts: u32,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its metadata.
    pub meta: BTreeMap<String, Value>,
    /// The time before which it does not run; `None` if it may run immediately.
    pub scheduled_at: Option<DateTime<Utc>>,
    /// The time until then, by the database's clock.
    pub wait: Duration,
}

/// Returns the waiting jobs of type `J`, in the order in which they were enqueued.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// # #[derive(Debug, Serialize, Deserialize)] struct Remind { email: String }
/// # impl Job for Remind {
/// #     const NAME: &'static str = "remind";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use windlass::testing::{self, TestDatabase};
///
/// let mut db = TestDatabase::in_memory()?;
/// Remind { email: "ada@example.com".into() }.enqueue(&mut db)?;
/// assert_eq!(testing::enqueued::<Remind>(&mut db)?[0].arguments.email, "ada@example.com");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer, or the arguments of a job do not match the type. Arguments of
/// an older version are [converted](Job::upcast).
pub fn enqueued<J: Job>(conn: &mut (impl AsConn + ?Sized)) -> Result<Vec<EnqueuedJob<J>>> {
    let rows = test_support::waiting(&mut conn.as_conn()).during("list the jobs")?;
    let is_it =
        |row: &WaitingJob| row.class_name == J::NAME || J::ALIASES.contains(&&*row.class_name);
    let typed = rows.into_iter().filter(is_it).map(|row| {
        typed(row, |text, version| {
            ArgumentsReader::of::<J>().read(text, version)
        })
    });
    typed.collect()
}

/// Returns all waiting jobs, in the order in which they were enqueued.
///
/// ```
/// # use windlass::NewJob;
/// use windlass::testing::{self, TestDatabase};
/// let mut db = TestDatabase::in_memory()?;
/// NewJob::of_class("import", r#"{"file":"a.csv"}"#).enqueue(&mut db)?;
/// let jobs = testing::enqueued_any(&mut db)?;
/// assert_eq!(jobs[0].arguments["file"], "a.csv");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer, or the arguments of a job are not JSON.
pub fn enqueued_any(conn: &mut (impl AsConn + ?Sized)) -> Result<Vec<EnqueuedJob<Value>>> {
    let rows = test_support::waiting(&mut conn.as_conn()).during("list the jobs")?;
    let typed = rows
        .into_iter()
        .map(|row| typed(row, |text, _| Ok(serde_json::from_str(text)?)));
    typed.collect()
}

fn typed<J>(
    row: WaitingJob,
    decode: impl FnOnce(&str, u32) -> Result<J, JobError>,
) -> Result<EnqueuedJob<J>> {
    let text = row.arguments.as_deref().unwrap_or("null");
    let extras = Extras::of_policy(row.policy.as_deref());
    let arguments =
        decode(text, extras.arguments_version()).map_err(|error| Error::InvalidJob {
            class: row.class_name.clone(),
            reason: format!(
                "the arguments of job {} do not match its type: {error}",
                row.id
            ),
        })?;
    let wait = row.scheduled_at.map(|at| at - row.now);
    Ok(EnqueuedJob {
        id: JobId(row.id),
        arguments,
        queue_name: row.queue_name,
        priority: row.priority,
        attempts: u32::try_from(row.attempts).unwrap_or(0),
        idempotency_key: row.idempotency_key,
        tags: extras.tags,
        meta: extras.meta,
        scheduled_at: row.scheduled_at.map(|at| at.and_utc()),
        wait: wait.and_then(|wait| wait.to_std().ok()).unwrap_or_default(),
        class_name: row.class_name,
    })
}

/// Asserts that exactly one job of type `J` waits, and returns it.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// # #[derive(Debug, Serialize, Deserialize)] struct Remind { email: String }
/// # impl Job for Remind {
/// #     const NAME: &'static str = "remind";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use windlass::testing::{self, TestDatabase};
///
/// let mut db = TestDatabase::in_memory()?;
/// Remind { email: "ada@example.com".into() }.enqueue(&mut db)?;
/// assert_eq!(testing::assert_enqueued::<Remind>(&mut db).arguments.email, "ada@example.com");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Panics
/// If there is none or more than one; the message lists the waiting jobs.
#[track_caller]
pub fn assert_enqueued<J: Job>(conn: &mut (impl AsConn + ?Sized)) -> EnqueuedJob<J> {
    let mut jobs = match enqueued::<J>(conn) {
        Ok(jobs) => jobs,
        Err(error) => panic!("{error}"),
    };
    match (jobs.pop(), jobs.len()) {
        (Some(job), 0) => job,
        (last, others) => panic!(
            "{} jobs `{}` are enqueued, not one; enqueued are: {}",
            others + usize::from(last.is_some()),
            J::NAME,
            listing(conn)
        ),
    }
}

/// Asserts that no job of type `J` waits.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// # #[derive(Debug, Serialize, Deserialize)] struct Remind { email: String }
/// # impl Job for Remind {
/// #     const NAME: &'static str = "remind";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use windlass::testing::{self, TestDatabase};
///
/// let mut db = TestDatabase::in_memory()?;
/// testing::assert_not_enqueued::<Remind>(&mut db);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Panics
/// If one does.
#[track_caller]
pub fn assert_not_enqueued<J: Job>(conn: &mut (impl AsConn + ?Sized)) {
    match enqueued::<J>(conn) {
        Ok(jobs) if jobs.is_empty() => {}
        Ok(jobs) => panic!("{} jobs `{}` are enqueued, not none", jobs.len(), J::NAME),
        Err(error) => panic!("{error}"),
    }
}

/// Lists classes and queues, without arguments, which may be secret.
fn listing(conn: &mut (impl AsConn + ?Sized)) -> String {
    let rows = test_support::waiting(&mut conn.as_conn()).unwrap_or_default();
    let rows = rows.iter();
    let names: Vec<String> = rows
        .map(|row| format!("`{}` on {}", row.class_name, row.queue_name))
        .collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
