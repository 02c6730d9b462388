//! Quotas: how many jobs may be enqueued.

use crate::db::model::new_row::{Inserted, NewQuota, NewRow, QuotaLimits, QuotaRefusal};
use crate::db::table::quotas as table;
use crate::db::transition::enqueue::admit::{self, NotEnqueued};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::queue::MAX_NAME;
use serde::Serialize;

/// Limits how many jobs are enqueued, and how many wait.
///
/// Set it for a class in [`Job::class_quota`](crate::Job::class_quota), for a job by its arguments in
/// [`Job::quota`](crate::Job::quota), or for one enqueue in [`NewJob::quota`](crate::NewJob::quota). All jobs with a quota of the same name count together.
/// An enqueue that exceeds it is refused with [`Error::QuotaExceeded`], or its jobs are [discarded](Self::shed).
///
/// ```
/// # use windlass::{Error, NewJob};
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::Quota;
///
/// let quota = Quota::of_class("export").per_day(1);
/// let export = |text: &str| NewJob::of_class("export", text).quota(quota.clone());
/// export("1").enqueue(&mut conn)?;
/// let refused = export("2").enqueue(&mut conn).unwrap_err();
/// assert!(matches!(refused, Error::QuotaExceeded { limit: 1, .. }));
/// # Ok::<(), Error>(())
/// ```
///
/// Seconds, minutes and days are those of UTC, by the database's clock. Only new jobs count: not an enqueue
/// that finds an existing job. A transaction that is rolled back gives its places back.
///
/// SQLite counts exactly. On Postgres no enqueue waits for the transaction of another. The limit is
/// not exceeded; of a limit above 1,000, less than 0.1 % is hidden by each slot of places that an
/// open transaction has used. The algorithm is that of sharded counters, with `SKIP LOCKED` instead
/// of a random choice. Under `repeatable read` and `serializable`, such an enqueue may fail with a
/// serialization failure.
///
/// Jobs that Windlass itself enqueues, for recurring tasks and after failures, are neither refused
/// nor counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a quota does nothing until a job has it"]
pub struct Quota(NewQuota);

impl Quota {
    /// Creates a quota with this name, for jobs of any types. Without limits it admits everything.
    ///
    /// Names have 1 to 255 bytes and no NUL.
    pub fn named(name: impl Into<String>) -> Self {
        Quota(NewQuota {
            name: name.into(),
            limits: QuotaLimits::default(),
        })
    }

    /// Creates a quota with the name `class NAME`.
    pub fn of_class(class: &str) -> Self {
        Self::named(format!("class {class}"))
    }

    /// Creates a quota with the name `queue NAME`.
    ///
    /// It counts the jobs that have this quota, and no others of the queue.
    pub fn of_queue(queue: &str) -> Self {
        Self::named(format!("queue {queue}"))
    }

    /// Sets how many jobs may wait: ready, scheduled or blocked. Default: any number.
    ///
    /// A job that waits for another attempt may not be counted.
    pub fn waiting(mut self, jobs: u64) -> Self {
        self.0.limits.waiting = Some(number(jobs));
        self
    }

    /// Sets how many jobs may be enqueued in one second. Default: any number.
    pub fn per_second(mut self, jobs: u64) -> Self {
        self.0.limits.per_second = Some(number(jobs));
        self
    }

    /// Sets how many jobs may be enqueued in one minute. Default: any number.
    pub fn per_minute(mut self, jobs: u64) -> Self {
        self.0.limits.per_minute = Some(number(jobs));
        self
    }

    /// Sets how many jobs may be enqueued in one day. Default: any number.
    pub fn per_day(mut self, jobs: u64) -> Self {
        self.0.limits.per_day = Some(number(jobs));
        self
    }

    /// Discards jobs that exceed the quota, instead of refusing the enqueue.
    ///
    /// The enqueue succeeds with [`EnqueueOutcome::Shed`](crate::jobs::EnqueueOutcome::Shed). The job is
    /// kept as a discarded one, with the reason. It takes no unique id, idempotency key or slot.
    pub fn shed(mut self) -> Self {
        self.0.limits.shed = true;
        self
    }
}

fn number(jobs: u64) -> i64 {
    i64::try_from(jobs).unwrap_or(i64::MAX)
}

/// Returns what is stored of a job's quota.
pub(crate) fn column(quota: Option<&Quota>, class: &str) -> Result<Option<NewQuota>> {
    let Some(Quota(quota)) = quota else {
        return Ok(None);
    };
    let name = &quota.name;
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        return Err(Error::InvalidJob {
            class: class.to_owned(),
            reason: "the name of its quota must have 1 to 255 bytes and no NUL".to_owned(),
        });
    }
    Ok(Some(quota.clone()))
}

/// Enqueues jobs of which some have a quota.
pub(crate) fn enqueue_all(conn: &mut Conn<'_>, rows: &[NewRow]) -> Result<Vec<Inserted>> {
    refusal_to_error(admit::insert_all(conn, rows))
}

/// Returns the error of an enqueue that was refused.
pub(crate) fn refusal_to_error<T>(inserted: std::result::Result<T, NotEnqueued>) -> Result<T> {
    let action = "enqueue the jobs";
    inserted.map_err(|refused| match refused {
        NotEnqueued::Quota(QuotaRefusal {
            class,
            quota,
            limit,
            counts,
            wanted,
            retry_after,
        }) => Error::QuotaExceeded {
            class,
            quota,
            limit,
            counts,
            wanted,
            retry_after,
        },
        NotEnqueued::Failed(source) => Error::Query { action, source },
        // Handled where they arise.
        NotEnqueued::TooMany(_) | NotEnqueued::Uncounted(..) => Error::Query {
            action,
            source: diesel::result::Error::RollbackTransaction,
        },
    })
}

/// A quota that was used in the last days: its limits, and how much is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuotaStatus {
    /// Its name.
    pub name: String,
    /// The most jobs that may wait, as set by a recent enqueue.
    pub most_waiting: Option<i64>,
    /// The number of jobs that wait. 0 if that is not limited.
    pub waiting: i64,
    /// The most jobs that may be enqueued in one second.
    pub most_per_second: Option<i64>,
    /// The number of jobs that were enqueued in this second. 0 if that is not limited.
    pub this_second: i64,
    /// The most jobs that may be enqueued in one minute.
    pub most_per_minute: Option<i64>,
    /// The number of jobs that were enqueued in this minute. 0 if that is not limited.
    pub this_minute: i64,
    /// The most jobs that may be enqueued in one day.
    pub most_per_day: Option<i64>,
    /// The number of jobs that were enqueued on this day. 0 if that is not limited.
    pub this_day: i64,
    /// True if jobs that exceed it are discarded, instead of an error.
    pub sheds: bool,
}

/// Returns the quotas that were used in the last seven days, by name. What open transactions have
/// enqueued is not counted here.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for quota in windlass::quotas::list(&mut conn)? {
///     println!("{}: {} jobs this minute, of {:?}", quota.name, quota.this_minute, quota.most_per_minute);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn quotas<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<QuotaStatus>> {
    let all = table::list_quotas(&mut own(conn)).during("read the quotas")?;
    let status = all.into_iter().map(|used| {
        let limits = QuotaLimits::of_column(used.limits.as_deref());
        QuotaStatus {
            name: used.name,
            most_waiting: limits.waiting,
            waiting: used.waiting,
            most_per_second: limits.per_second,
            this_second: used.a_second,
            most_per_minute: limits.per_minute,
            this_minute: used.a_minute,
            most_per_day: limits.per_day,
            this_day: used.a_day,
            sheds: limits.shed,
        }
    });
    Ok(status.collect())
}
