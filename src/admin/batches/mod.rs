//! What people ask about batches, and what they do to them.

pub(crate) mod details;
pub(crate) mod whole;

use crate::admin::bulk::change::Change;
use crate::admin::jobs::{BoundedCount, Changed, Jobs};
use crate::db::query::batches::{self, BatchesWanted, ListedBatch};
use crate::db::{AsConn, own};
use crate::error::{Doing as _, Result};
use crate::job::BatchId;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;

// --- Lists of batches ---

/// The state of a batch in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchState {
    /// Jobs of it have not ended.
    Open,
    /// All of its jobs have ended, and none has failed or was cancelled.
    Succeeded,
    /// All of its jobs have ended, and some have failed or were cancelled.
    Failed,
}

/// Which batches to list.
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
            BatchFilter::Over => BatchesWanted::Over,
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
    /// Whether a Rails app has enqueued it. Windlass shows such a batch, and never changes it.
    pub is_of_ruby: bool,
    /// Its state.
    pub state: BatchState,
    /// How many jobs it has had, and batches in it. Jobs that were added later are counted some milliseconds after
    /// they were committed.
    pub total: u64,
    /// How many of them have not ended; counted up to a bound.
    pub open: BoundedCount,
    /// How many have failed, or were cancelled, so far; once it is over, by its end. Counted up to a bound.
    pub failures: BoundedCount,
    /// When it was created. All times are by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When it was enqueued. A batch of Ruby may not be enqueued yet.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// When the last of its jobs had ended.
    pub finished_at: Option<DateTime<Utc>>,
}

/// How far the jobs of each batch of a list are counted.
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
/// use windlass::{Batch, BatchFilter, NewJob};
///
/// Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?;
/// for batch in windlass::batches(&mut conn, BatchFilter::Open, None, 20)? {
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
    let rows = rows.doing("list the batches")?.into_iter();
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
    /// use windlass::{Batch, Change, NewJob};
    ///
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?.id;
    /// let jobs = batch.open_jobs().by("ada").reason("the file was wrong");
    /// let operation = jobs.in_background(Change::Cancel).start(&mut conn)?;
    /// println!("operation {} cancels the batch", operation.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn open_jobs(self) -> Jobs {
        self.whole(Jobs::waiting_or_running())
    }

    /// Selects all failed jobs of the batch, and those of the batches in it, as [`open_jobs`](Self::open_jobs) does.
    /// Jobs that were cancelled are not failed.
    pub fn failed_jobs(self) -> Jobs {
        self.whole(Jobs::failed())
    }

    fn whole(self, mut jobs: Jobs) -> Jobs {
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
