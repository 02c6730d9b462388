//! Enqueueing: limits before any SQL, then one statement or few.

use crate::db::model::new_row::{self, EnqueueOutcome, NewLimit, NewRow};
use crate::db::transition::enqueue;
use crate::db::transition::enqueue::time_priority::rank_by_time;
use crate::db::{AsConn, own};
use crate::error::{Doing, Error, Result};
use crate::job::arguments::{MAX_DEPTH, has_escaped_nul, is_too_deep};
use crate::job::concurrency::Concurrency;
use crate::job::id::JobId;
use crate::job::policy::Policy;
use crate::queue::{MAX_NAME, check_name};
use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use std::time::Duration;

/// A job about to be enqueued, of whatever type.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, NewJob};
/// # #[derive(Serialize, Deserialize)] struct Import { file: String }
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use std::time::Duration;
///
/// let job = NewJob::new(&Import { file: "users.csv".into() })?
///     .queue("slow")
///     .priority(5)
///     .after(Duration::from_secs(60))
///     .idempotency_key("import/users.csv");
/// let first = job.clone().enqueue(&mut conn)?;
/// let again = job.enqueue(&mut conn)?; // the answer was lost, say
/// assert_eq!(first.id, again.id);
/// assert!(!again.is_new);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a job is enqueued by `enqueue` or `enqueue_all`"]
pub struct NewJob {
    pub(crate) row: NewRow,
    pub(crate) policy: Policy,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) max_arguments: usize,
    /// The arguments are the caller's text, which may be no JSON.
    pub(crate) is_text: bool,
}

/// What an enqueue did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job's id.
    pub id: JobId,
    /// False when the idempotency key or the unique id found a job that was
    /// there already; `id` is that job's then.
    pub is_new: bool,
    /// What became of it.
    pub outcome: EnqueueOutcome,
}

impl NewJob {
    /// What is stored, beside the policy, and how long the arguments may be.
    pub(crate) fn into_parts(self) -> (NewRow, Policy, Option<Concurrency>, usize) {
        (self.row, self.policy, self.concurrency, self.max_arguments)
    }

    /// With this limit, or with none.
    pub(crate) fn limited(mut self, limit: Option<Concurrency>) -> Self {
        self.concurrency = limit;
        self
    }

    /// A job of a class that this program does not know, with its arguments
    /// as JSON text: for tools, and for jobs that another program performs. A
    /// text that is not JSON is refused when the job is enqueued.
    pub fn of_class(class: impl Into<String>, arguments: impl Into<String>) -> Self {
        NewJob {
            row: NewRow::new(class.into(), arguments.into(), "default".to_owned(), 0),
            policy: Policy::new(),
            concurrency: None,
            max_arguments: 64 * 1024,
            is_text: true,
        }
    }

    /// On this queue.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.row.queue_name = name.into();
        self
    }

    /// With this priority; smaller is more important.
    pub fn priority(mut self, priority: i32) -> Self {
        self.row.priority = priority;
        self.row.ahead_by = None;
        self
    }

    /// With the time as its priority, so many seconds ahead of it: among jobs
    /// of this kind the order is that in which they began to wait, whatever
    /// their attempts and schedules, but this one is treated as if it had
    /// begun so much earlier. It overtakes those that wait for less, and
    /// nothing has to wait for ever. `Duration::ZERO` is plain order of time.
    ///
    /// The time is that of the enqueue by the database's clock, or the job's
    /// due time when it has one. Counted in seconds from 2020, such priorities
    /// are far greater than those that people write, which all come first:
    /// give a queue one kind or the other.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::{JobState, Jobs, NewJob};
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use std::time::Duration;
    /// NewJob::of_class("report", "{}").ahead_by(Duration::ZERO).enqueue(&mut conn)?;
    /// let minutes = Duration::from_secs(600);
    /// NewJob::of_class("receipt", "{}").ahead_by(minutes).enqueue(&mut conn)?;
    /// let next = Jobs::in_state(JobState::Ready).list(&mut conn)?;
    /// assert_eq!(next[0].class_name, "receipt");
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.row.ahead_by = Some(i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX));
        self
    }

    /// Not before this time, by the database's clock.
    pub fn at(mut self, time: DateTime<Utc>) -> Self {
        self.row.at = Some(time.naive_utc());
        self.row.delay = None;
        self
    }

    /// Not before so much time has passed, by the database's clock. At most
    /// 1000 years.
    pub fn after(mut self, delay: Duration) -> Self {
        // Too long a one is refused, not shortened.
        self.row.delay = Some(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX));
        self.row.at = None;
        self
    }

    /// Up to 255 bytes by which the caller knows this job. Enqueueing again
    /// with the same key changes nothing and answers with the first job, as
    /// long as that job is kept: so a call whose answer was lost can be
    /// repeated.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.row.idempotency_key = Some(key.into());
        self
    }

    /// Up to 255 bytes that only one job at a time may have, of whatever type:
    /// a constraint of the database, which holds whoever else enqueues at the
    /// same moment. An enqueue that meets another's open transaction waits for
    /// its end, and goes through if that rolls back.
    ///
    /// How long the job holds it is its [`UniqueScope`](crate::UniqueScope), and what becomes of
    /// an enqueue that finds it held is [`OnConflict`](crate::OnConflict); both are part of the
    /// [`Policy`]. A failed job gives it up; when it is retried by hand, it
    /// takes it back, or stays failed where another job has it by then.
    ///
    /// ```
    /// # use windlass::NewJob;
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use std::time::Duration;
    /// use windlass::{EnqueueOutcome, OnConflict, Policy};
    ///
    /// // The index is brought up to date a minute after the last change.
    /// let reindex = |text: &str| {
    ///     NewJob::of_class("reindex", text)
    ///         .unique_id("reindex/article/7")
    ///         .policy(Policy::new().on_conflict(OnConflict::Replace))
    ///         .after(Duration::from_secs(60))
    /// };
    /// let first = reindex("1").enqueue(&mut conn)?;
    /// let second = reindex("2").enqueue(&mut conn)?;
    /// assert_eq!(second.id, first.id);
    /// assert_eq!(second.outcome, EnqueueOutcome::Replaced);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn unique_id(mut self, id: impl Into<String>) -> Self {
        self.row.unique_id = Some(id.into());
        self
    }

    /// What this policy says wins over what the job's type says.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.or(&self.policy);
        self
    }

    /// How many jobs of which key may be under way at once; wins over what the
    /// job's type says.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Whatever the job's type says, this one runs beside any other and takes
    /// no slot.
    pub fn unlimited(mut self) -> Self {
        self.concurrency = None;
        self
    }

    /// How many bytes the arguments may take as JSON.
    pub fn max_arguments(mut self, bytes: usize) -> Self {
        self.max_arguments = bytes;
        self
    }

    /// Enqueues it, on the caller's own connection and in the caller's own
    /// transaction, if there is one.
    ///
    /// # Errors
    /// When a limit is broken (nothing was sent then), a statement fails, or
    /// the unique id is held and [`OnConflict::Refuse`](crate::OnConflict::Refuse) was asked for.
    pub fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued> {
        let (mut rows, mut conn) = ([self.into_row()?], own(conn));
        rank_by_time(&mut conn, &mut rows).doing("read the time")?;
        let [row] = rows;
        let inserted = enqueue::insert(&mut conn, &row).doing("enqueue the job")?;
        if inserted.outcome == EnqueueOutcome::Refused {
            return Err(Error::UniqueIdTaken {
                class: row.class_name,
                unique_id: row.unique_id.unwrap_or_default(),
                existing: inserted.id,
            });
        }
        Ok(inserted.into())
    }

    pub(crate) fn into_row(mut self) -> Result<NewRow> {
        self.check()?;
        let column = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        self.row.max_attempts = self.policy.max_attempts.map(column);
        self.row.max_crashes = self.policy.max_crashes.map(column);
        self.row.at_most_once = self.policy.is_at_most_once();
        self.row.policy = self.policy.to_column();
        self.row.limit = self.limit()?;
        self.row.unique_scope = self.policy.unique_scope.unwrap_or_default();
        self.row.on_conflict = self.policy.on_conflict.unwrap_or_default();
        Ok(self.row)
    }

    fn limit(&self) -> Result<Option<NewLimit>> {
        let class = &self.row.class_name;
        let limit = self.concurrency.as_ref();
        let limit = limit.map(|limit| limit.of_class(class)).transpose();
        limit.map_err(|reason| Error::InvalidJob {
            class: class.clone(),
            reason,
        })
    }

    /// Refuses what a database would refuse or a worker could not take.
    fn check_arguments(&self) -> Result<()> {
        let refused = |reason: String| {
            Err(Error::InvalidJob {
                class: self.row.class_name.clone(),
                reason,
            })
        };
        let size = self.row.arguments.len();
        if size > self.max_arguments {
            return refused(format!(
                "its arguments take {size} bytes, more than the {} allowed; store the data elsewhere and \
                 pass a reference, or raise `MAX_ARGUMENTS`",
                self.max_arguments
            ));
        }
        // In JSON a NUL can only stand escaped; a raw one is no JSON at all.
        if self.row.arguments.contains('\0') || has_escaped_nul(&self.row.arguments) {
            return refused(
                "its arguments contain a NUL character, which Postgres cannot keep; encode binary data"
                    .to_owned(),
            );
        }
        if is_too_deep(&self.row.arguments) {
            return refused(format!(
                "its arguments are nested deeper than {MAX_DEPTH} arrays and objects, and could not be \
                 decoded again; store the data elsewhere and pass a reference"
            ));
        }
        if self.is_text
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&self.row.arguments)
        {
            // The text itself may be a secret.
            return refused(format!("its arguments are not JSON: {error}"));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check_name(&self.row.class_name, "class name")?;
        check_name(&self.row.queue_name, "queue name")?;
        self.check_arguments()?;
        let refused = |reason: String| {
            Err(Error::InvalidJob {
                class: self.row.class_name.clone(),
                reason,
            })
        };
        for (key, what) in [
            (&self.row.idempotency_key, "idempotency key"),
            (&self.row.unique_id, "unique id"),
        ] {
            if let Some(key) = key
                && (key.is_empty() || key.len() > MAX_NAME || key.contains('\0'))
            {
                return refused(format!("its {what} must have 1 to 255 bytes and no NUL"));
            }
        }
        let is_kept = |time: NaiveDateTime| (1..=9999).contains(&time.year());
        if self.row.delay.is_some_and(|delay| delay > LONGEST_DELAY)
            || self.row.at.is_some_and(|time| !is_kept(time))
        {
            return refused(
                "its time must lie in the years 1 to 9999, and a delay be at most 1000 years; what has \
                 no time yet is better enqueued when it has"
                    .to_owned(),
            );
        }
        if self.policy.is_at_most_once() && self.policy.max_attempts.is_some_and(|max| max > 1) {
            return refused(
                "it is to run at most once, but also to be tried more than once; choose one"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// In microseconds. SQLite writes no year after 9999: a job for later would
/// have no time, and be ready at once.
const LONGEST_DELAY: i64 = 1_000 * 366 * 86_400 * 1_000_000;

impl From<new_row::Inserted> for Enqueued {
    fn from(inserted: new_row::Inserted) -> Self {
        Enqueued {
            id: JobId(inserted.id),
            is_new: inserted.is_new,
            outcome: inserted.outcome,
        }
    }
}

/// Enqueues many jobs, of different types if need be, in few statements: all
/// of them or none.
///
/// The answers stand in the order of the jobs, one for each: a unique id that is held makes no difference to the other jobs, and what
/// [`OnConflict::Refuse`](crate::OnConflict::Refuse) refuses is no error here
/// but [`EnqueueOutcome::Refused`].
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, NewJob};
/// # #[derive(Serialize, Deserialize)] struct Import { file: String }
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let jobs = ["a.csv", "b.csv"].map(|file| NewJob::new(&Import { file: file.into() }));
/// let jobs = jobs.into_iter().collect::<windlass::Result<Vec<_>>>()?;
/// assert_eq!(windlass::enqueue_all(&mut conn, jobs)?.len(), 2);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// When one job breaks a limit (nothing was sent then) or a statement fails.
pub fn enqueue_all<C: AsConn + ?Sized>(
    conn: &mut C,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    let mut rows = jobs
        .into_iter()
        .map(NewJob::into_row)
        .collect::<Result<Vec<_>>>()?;
    let mut conn = own(conn);
    rank_by_time(&mut conn, &mut rows).doing("read the time")?;
    let inserted = enqueue::insert_all(&mut conn, &rows).doing("enqueue the jobs")?;
    Ok(inserted.into_iter().map(Enqueued::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_speak_before_the_database_does() {
        let job = |arguments: &str| NewJob::of_class("a", arguments);
        assert!(job("{}").check().is_ok());
        assert!(job("{}").queue("").check().is_err());
        assert!(job("{}").idempotency_key("").check().is_err());
        assert!(job("{}").unique_id("x".repeat(256)).check().is_err());
        let error = job("{to").check().unwrap_err().to_string();
        assert!(error.contains("its arguments are not JSON"), "{error}");
        assert!(job("").check().is_err());
        let error = job(&"x".repeat(70_000)).check().unwrap_err().to_string();
        assert!(error.contains("70000 bytes"), "{error}");
        assert!(
            job(&format!("\"{}\"", "x".repeat(70_000)))
                .max_arguments(80_000)
                .check()
                .is_ok()
        );
    }
}
