//! The lists and details of batches for operators, and the actions on a batch.

pub(crate) mod whole;

use crate::admin::change::Change;
use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::admin::jobs::{BoundedCount, Changed, Jobs};
use crate::db::query::batches::walk::{self, Members};
use crate::db::query::batches::{self, BatchesWanted, FollowingJob, ListedBatch};
use crate::db::query::job_view::TextLimits;
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::{BatchId, JobId};
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;

// --- Lists of batches ---

/// The state of a batch in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Jobs of it have not ended.
    Open,
    /// All of its jobs have ended, and none has failed or was cancelled.
    Succeeded,
    /// All of its jobs have ended, and some have failed or were cancelled.
    Failed,
}

/// A selection of batches by their state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchFilter {
    /// All.
    #[default]
    All,
    /// Those that are not over.
    Open,
    /// Those that are over.
    Over,
    /// Those that are over and have failed.
    Failed,
}

impl BatchFilter {
    fn wanted(self) -> BatchesWanted {
        match self {
            BatchFilter::All => BatchesWanted::All,
            BatchFilter::Open => BatchesWanted::Open,
            BatchFilter::Over => BatchesWanted::Ended,
            BatchFilter::Failed => BatchesWanted::Failed,
        }
    }
}

/// A batch in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchSummary {
    /// Its id.
    pub id: BatchId,
    /// Its name.
    pub name: String,
    /// True if a Rails app has enqueued it. Windlass shows such a batch, and never changes it.
    pub is_of_ruby: bool,
    /// Its state.
    pub state: BatchState,
    /// The number of jobs it has had, and of batches in it. Jobs that were added later are counted some milliseconds
    /// after they were committed.
    pub total: u64,
    /// The number of these jobs and batches that have not ended, counted up to a bound.
    pub open: BoundedCount,
    /// The number of them that have failed or were cancelled so far, counted up to a bound; once it is over, by its end.
    pub failures: BoundedCount,
    /// The time of its creation. All times are by the database's clock.
    pub created_at: DateTime<Utc>,
    /// The time at which it was enqueued. A batch of Ruby may not be enqueued yet.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// The time at which the last of its jobs had ended.
    pub finished_at: Option<DateTime<Utc>>,
}

/// The number up to which the jobs of each batch of a list are counted.
const COUNTED: i64 = 10_000;

impl BatchSummary {
    pub(crate) fn of(row: ListedBatch, most: i64) -> Self {
        let utc = |time: NaiveDateTime| time.and_utc();
        let bounded = |rows: i64| BoundedCount {
            count: u64::try_from(rows.min(most)).unwrap_or(0),
            is_exact: rows <= most,
        };
        let failures = match row.finished_at {
            None => bounded(row.failures),
            Some(_) => BoundedCount {
                count: u64::try_from(row.failures).unwrap_or(0),
                is_exact: true,
            },
        };
        BatchSummary {
            id: BatchId(row.id),
            is_of_ruby: !row.is_ours,
            state: match (row.finished_at, row.failed_at) {
                // Ruby's dispatcher may have marked it before.
                _ if row.open > 0 => BatchState::Open,
                (None, _) => BatchState::Open,
                (Some(_), None) => BatchState::Succeeded,
                (Some(_), Some(_)) => BatchState::Failed,
            },
            total: u64::try_from(row.total).unwrap_or(0),
            open: bounded(row.open),
            failures,
            created_at: utc(row.created_at),
            enqueued_at: row.enqueued_at.map(utc),
            finished_at: row.finished_at.map(utc),
            name: row.name,
        }
    }

    /// Returns how many of its jobs have ended. `None` if there are more open ones than were counted.
    pub fn ended(&self) -> Option<u64> {
        (self.open.is_exact).then(|| self.total.saturating_sub(self.open.count))
    }
}

/// Returns the newest batches, at most `limit`, before the id `before` if one is given. Those of Rails apps are among
/// them.
///
/// The jobs of each are counted up to 10,000.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::batches::BatchFilter;
/// use windlass::{Batch, NewJob};
///
/// Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?;
/// for batch in windlass::batches::list(&mut conn, BatchFilter::Open, None, 20)? {
///     println!("{} {}: {} of {} jobs are open", batch.id, batch.name, batch.open.count, batch.total);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn batches<C: AsConn + ?Sized>(
    conn: &mut C,
    filter: BatchFilter,
    before: Option<BatchId>,
    limit: u32,
) -> Result<Vec<BatchSummary>> {
    let before = before.map_or(i64::MAX, |batch| batch.0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let rows = batches::page(&mut own(conn), filter.wanted(), before, limit, COUNTED);
    let rows = rows.during("list the batches")?.into_iter();
    Ok(rows.map(|row| BatchSummary::of(row, COUNTED)).collect())
}

// --- Cancelling and retrying batches ---

impl BatchId {
    /// Selects all jobs of the batch that have not ended, and those of the batches in it.
    ///
    /// They are found when they are changed: jobs that are added to the batch until the change has passed all of them
    /// are changed too. Nothing else can select among them; [`Jobs::batch`] does that.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::jobs::Change;
    /// use windlass::{Batch, NewJob};
    ///
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?.id;
    /// let jobs = batch.open_jobs().by("ada").reason("the file was wrong");
    /// let operation = jobs.in_background(Change::Cancel).start(&mut conn)?;
    /// println!("operation {} cancels the batch", operation.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn open_jobs(self) -> Jobs {
        self.of_whole_batch(Jobs::waiting_or_running())
    }

    /// Selects all failed jobs of the batch, and those of the batches in it, as [`open_jobs`](Self::open_jobs) does.
    /// Jobs that were cancelled are not failed.
    pub fn failed_jobs(self) -> Jobs {
        self.of_whole_batch(Jobs::failed())
    }

    fn of_whole_batch(self, mut jobs: Jobs) -> Jobs {
        jobs.filter.whole_batch = Some(self.0);
        jobs
    }

    /// Cancels all jobs of the batch that have not ended, and those of the batches in it: waiting ones at once, running
    /// ones are asked to stop. The batch is over, and has failed, when the last of them has ended; what follows failure
    /// then runs.
    ///
    /// It cancels 500 jobs in a transaction. If it is interrupted, cancel again, or use
    /// [`open_jobs`](Self::open_jobs) with [`Jobs::in_background`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?.id;
    /// assert_eq!(batch.cancel(&mut conn)?.changed, 1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`](crate::Error::NoSuchBatch) if there is none, [`Error::BatchOfRuby`](crate::Error::BatchOfRuby)
    /// if it is of Ruby. Also if the database does not answer or has no tables; jobs that were cancelled stay so.
    pub fn cancel<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Changed> {
        self.open_jobs().change(conn, Change::Cancel)
    }

    /// Retries all failed jobs of the batch, and those of the batches in it, without those that may run at most once.
    ///
    /// A batch that is over stays so, and nothing follows, unless a job still
    /// [waits for retries](crate::Batch::wait_for_retries).
    ///
    /// # Errors
    /// As for [`cancel`](Self::cancel).
    pub fn retry<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Changed> {
        let change = Change::Retry {
            even_at_most_once: false,
        };
        self.failed_jobs().change(conn, change)
    }
}

// --- One batch, with what follows it ---

/// A batch, with what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchDetails {
    /// The summary that a list shows of it. Its jobs are counted up to 1,000,000.
    #[serde(flatten)]
    pub batch: BatchSummary,
    /// Its metadata as JSON.
    pub metadata: Option<String>,
    /// The batch around it, if it is in one.
    pub outer: Option<BatchId>,
    /// Batches in it, at most 20.
    pub inner: Vec<BatchId>,
    /// The jobs that follow it, at most 20.
    pub follows: Vec<BatchFollower>,
    /// The first of its jobs that ended without success, at most 10.
    pub failed: Vec<FailedOfBatch>,
}

/// The state of a job that follows a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowerState {
    /// It waits for the end of the batch.
    Waits,
    /// It waits until failed jobs of the batch are retried, and have succeeded.
    WaitsForRetries,
    /// It was deleted, because the batch had another outcome.
    NotWanted,
    /// The batch has the outcome that it waited for; its status says the rest.
    Follows,
    /// An operator has cancelled or deleted it, or let it run before.
    Withdrawn,
}

/// A job that follows a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchFollower {
    /// Its id.
    pub job_id: JobId,
    /// Its class, while its row or its result is kept.
    pub class_name: Option<String>,
    /// On which outcome of the batch it runs: `success`, `failure` or `finish`.
    pub runs_on: String,
    /// Its state as a follower of the batch.
    pub state: FollowerState,
    /// Its status, while its row or its result is kept.
    pub status: Option<TaskStatus>,
}

/// A job of a batch that has ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedOfBatch {
    /// Its id.
    pub job_id: JobId,
    /// The failed batch that it stands for, if it is not a job.
    pub inner: Option<BatchId>,
    /// Its class, while its row or its result is kept.
    pub class_name: Option<String>,
    /// Its status. It may have been retried since.
    pub status: Option<TaskStatus>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The number up to which the jobs of one batch are counted, in 0.1 s for each kind.
const COUNTED_OF_ONE: i64 = 1_000_000;

/// The most following jobs, and the most inner batches, that are read.
const NAMED: usize = 20;

/// The most failed jobs that are read.
const FIRST_FAILED: usize = 10;

impl BatchId {
    /// Returns the batch with what follows it, and its first failed jobs.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let report = NewJob::of_class("report", "{}");
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).on_success(report);
    /// let details = batch.enqueue(&mut conn)?.id.details(&mut conn)?;
    /// assert_eq!(details.follows[0].class_name.as_deref(), Some("report"));
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`] if there is none, or it is not kept any more. Also if the database does not answer or has
    /// no tables.
    pub fn details<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<BatchDetails> {
        read(&mut own(conn), self, COUNTED_OF_ONE)?.ok_or(Error::NoSuchBatch { id: self.0 })
    }
}

/// Reads a batch, and counts its jobs up to `most`.
pub fn read(conn: &mut Conn<'_>, batch: BatchId, most: i64) -> Result<Option<BatchDetails>> {
    const ACTION: &str = "read the batch";
    let Some(row) = batches::one(conn, batch.0, most).during(ACTION)? else {
        return Ok(None);
    };
    let following = batches::following(conn, batch.0, NAMED).during(ACTION)?;
    let outer = following.iter().find_map(|job| job.outer_batch);
    let inner = batches::inner(conn, &[batch.0], NAMED).during(ACTION)?;
    let failed = walk::page(conn, Members::Failed, (batch.0, 0), FIRST_FAILED).during(ACTION)?;
    let follows = following.iter().filter(|job| job.outer_batch.is_none());
    let jobs = failed.iter().filter(|row| row.inner_batch.is_none());
    let jobs = jobs.map(|row| row.job_id);
    let ids: Vec<i64> = follows.clone().map(|job| job.job_id).chain(jobs).collect();
    let tasks = job_info::read(conn, &ids, TextLimits::OUTCOME)?;
    let task = |id: i64| tasks.get(&id).map(|(task, _)| task);
    Ok(Some(BatchDetails {
        metadata: row.metadata.clone(),
        batch: BatchSummary::of(row, most),
        outer: outer.map(BatchId),
        inner: inner.into_iter().map(|(_, id)| BatchId(id)).collect(),
        follows: follows.map(|job| follower(job, task(job.job_id))).collect(),
        failed: failed
            .iter()
            .map(|row| failed_job(row, task(row.job_id)))
            .collect(),
    }))
}

fn follower(job: &FollowingJob, task: Option<&TaskInfo>) -> BatchFollower {
    let status = task.map(|task| task.status);
    BatchFollower {
        job_id: JobId(job.job_id),
        state: state(job, status),
        class_name: task.map(|task| task.class_name.clone()),
        runs_on: job.runs_on.clone(),
        status,
    }
}

fn state(job: &FollowingJob, status: Option<TaskStatus>) -> FollowerState {
    let waits = status == Some(TaskStatus::Queued);
    let fits = match (&*job.runs_on, job.outcome.as_deref()) {
        (_, None) if waits => return FollowerState::Waits,
        (_, None) => return FollowerState::Withdrawn,
        ("success", Some(outcome)) => outcome == "succeeded",
        ("failure", Some(outcome)) => outcome == "failed",
        (_, Some(_)) => true,
    };
    match (fits, &*job.otherwise) {
        (true, _) => FollowerState::Follows,
        (false, "wait") if waits => FollowerState::WaitsForRetries,
        (false, _) if status.is_some() => FollowerState::Withdrawn,
        (false, _) => FollowerState::NotWanted,
    }
}

fn failed_job(row: &walk::MemberRow, task: Option<&TaskInfo>) -> FailedOfBatch {
    let task = task.filter(|_| row.inner_batch.is_none());
    FailedOfBatch {
        job_id: JobId(row.job_id),
        inner: row.inner_batch.map(BatchId),
        status: task.map(|task| task.status),
        error: task.and_then(|task| task.error.clone()),
        class_name: task.map(|task| task.class_name.clone()),
    }
}
