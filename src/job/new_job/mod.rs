//! A job about to be enqueued: its limits are checked before any SQL.

pub(crate) mod enqueue;
pub(crate) mod parents;

use crate::db::model::extras::{Follows, Traceparent};
use crate::db::model::new_row::{NewLimit, NewRow};
use crate::db::model::rate::NewRate;
use crate::error::{Error, Result};
use crate::job::bounds::{MAX_ARGUMENTS, ONE_ATTEMPT};
use crate::job::concurrency::Concurrency;
use crate::job::extras::PublicAccess;
use crate::job::policy::Policy;
use crate::job::policy::backoff::Expiry;
use crate::job::policy::quota::{self, Quota};
use crate::job::rate::{self, Rate};
use crate::job::ruby_call::RubyCall;
use crate::queue::{MAX_NAME, check_name};
use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use std::time::Duration;

/// A job about to be enqueued, of any type.
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
/// let again = job.enqueue(&mut conn)?; // for example because the answer was lost
/// assert_eq!(first.id, again.id);
/// assert!(!again.is_new);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a job is enqueued by `enqueue` or `enqueue_all`"]
pub struct NewJob {
    #[doc(hidden)]
    pub row: NewRow,
    #[doc(hidden)]
    pub policy: Policy,
    #[doc(hidden)]
    pub concurrency: Option<Concurrency>,
    pub(crate) quota: Option<Quota>,
    /// `None` is that of the class, which was given by its name.
    pub(crate) max_arguments: Option<usize>,
    /// The arguments are text from the caller and may be invalid JSON.
    pub(crate) is_text: bool,
    pub(crate) access: PublicAccess,
    pub(crate) ruby: Option<Box<RubyCall>>,
    pub(crate) follows: Option<Box<Follows>>,
}

impl NewJob {
    /// Returns what is stored, the policy, the concurrency limit, and the maximum size of the
    /// arguments.
    pub(crate) fn into_parts(self) -> (NewRow, Policy, Option<Concurrency>, usize) {
        let most = self.max_arguments.unwrap_or(MAX_ARGUMENTS);
        (self.row, self.policy, self.concurrency, most)
    }

    /// Sets or removes the limit.
    pub(crate) fn limited(mut self, limit: Option<Concurrency>) -> Self {
        self.concurrency = limit;
        self
    }

    /// Creates a job of a class that this program does not define, with its arguments as JSON text.
    ///
    /// This is for tools, and for jobs that another program performs. Invalid JSON is rejected when
    /// the job is enqueued, and so is a class that a worker has registered as
    /// [internal](crate::Job::INTERNAL).
    ///
    /// One statement more looks the class up. If a worker has stored it, the job has what its type says, unless it is set
    /// here: the queue, the priority, what its [`Job::policy`](crate::Job::policy) says, such as attempts and
    /// [rates](Policy::rate), and the [maximum size](crate::Job::MAX_ARGUMENTS) of the arguments.
    pub fn of_class(class: impl Into<String>, arguments: impl Into<String>) -> Self {
        let mut row = NewRow::new(class.into(), arguments.into(), "default".to_owned(), 0);
        row.left_out.queue = true;
        row.left_out.priority = true;
        row.left_out.rates = true;
        NewJob {
            row,
            policy: Policy::new(),
            concurrency: None,
            quota: None,
            max_arguments: None,
            is_text: true,
            access: PublicAccess::default(),
            ruby: None,
            follows: None,
        }
    }

    /// Sets the queue.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.row.queue_name = name.into();
        self.row.left_out.queue = false;
        self
    }

    /// Sets the priority; a smaller number is more important. It overrides a priority by time.
    pub fn priority(mut self, priority: i32) -> Self {
        self.row.priority = priority;
        self.row.left_out.priority = false;
        self.policy.ahead_by = None;
        self
    }

    /// Sets the priority to the time from which the job waits, minus `ahead`; see
    /// [`Policy::ahead_by`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # use windlass::jobs::{JobState, Jobs};
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use std::time::Duration;
    /// let minutes = Duration::from_secs(600);
    /// NewJob::of_class("report", "{}").behind_by(minutes).enqueue(&mut conn)?;
    /// NewJob::of_class("mail", "{}").ahead_by(Duration::ZERO).enqueue(&mut conn)?;
    /// NewJob::of_class("receipt", "{}").ahead_by(minutes).enqueue(&mut conn)?;
    /// let next = Jobs::in_state(JobState::Ready).list(&mut conn)?;
    /// let next: Vec<&str> = next.iter().map(|job| &*job.class_name).collect();
    /// assert_eq!(next, ["receipt", "mail", "report"]);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.policy = self.policy.ahead_by(ahead);
        self
    }

    /// Sets the priority to the time from which the job waits, plus `behind`; see
    /// [`Policy::behind_by`].
    pub fn behind_by(mut self, behind: Duration) -> Self {
        self.policy = self.policy.behind_by(behind);
        self
    }

    /// Runs the job at this time or later, by the database's clock.
    pub fn at(mut self, time: DateTime<Utc>) -> Self {
        self.row.at = Some(time.naive_utc());
        self.row.delay = None;
        self
    }

    /// Sets an idempotency key of up to 255 bytes.
    ///
    /// Enqueueing again with the same key changes nothing and returns the first job, as long as
    /// that job is kept. So a call whose answer was lost can be repeated safely.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.row.idempotency_key = Some(key.into());
        self
    }

    /// Sets a unique id of up to 255 bytes, which only one job may hold at a time, whatever its
    /// type.
    ///
    /// A database constraint enforces this, also between concurrent enqueues. An enqueue that
    /// conflicts with an open transaction waits until that ends, and succeeds if it rolls back.
    ///
    /// The [`UniqueScope`](crate::policies::UniqueScope) of the [`Policy`] sets how long the job holds the
    /// id. Its [`OnConflict`](crate::OnConflict) sets what happens to an enqueue if another job
    /// holds it.
    ///
    /// A failed job releases the id. When the job is retried by hand, it takes the id again; if
    /// another job holds it by then, the job stays failed.
    ///
    /// ```
    /// # use windlass::NewJob;
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use std::time::Duration;
    /// use windlass::jobs::EnqueueOutcome;
    /// use windlass::{OnConflict, Policy};
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

    /// Sets the policy; its values override those of the job's type.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.or(&self.policy);
        self
    }

    /// Sets the concurrency limit; it overrides that of the job's type.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Adds a [rate](Rate) at which jobs with its key start, in place of one with the same key.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # use windlass::limits::Rate;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// NewJob::of_class("push", "{}")
    ///     .rate(Rate::per_second(10).key("api/acme"))
    ///     .rate(Rate::per_day(1_000).key("api/acme/day"))
    ///     .enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.policy = self.policy.rate(rate);
        self
    }

    /// Removes the rates of the job's type: this job waits for no token, and takes none.
    pub fn without_rates(mut self) -> Self {
        self.policy.rates.clear();
        self.row.left_out.rates = false;
        self
    }

    /// Removes the concurrency limit of the job's type: this job takes no slot and runs beside all
    /// others.
    pub fn unlimited(mut self) -> Self {
        self.concurrency = None;
        self
    }

    /// Sets the maximum size of the arguments as JSON, in bytes.
    pub fn max_arguments(mut self, bytes: usize) -> Self {
        self.max_arguments = Some(bytes);
        self
    }

    #[doc(hidden)]
    pub fn into_row(mut self) -> Result<NewRow> {
        if let Some(call) = self.ruby.take() {
            call.write(&mut self.row, self.concurrency.is_some())?;
        }
        self.check()?;
        let column = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        self.row.by_name = self.is_text;
        self.row.left_out.delivery = self.is_text && self.policy.delivery.is_none();
        self.row.left_out.maximum_of = self.most().is_none().then(|| self.size());
        self.row.max_attempts = self.policy.max_attempts.map(column);
        self.row.max_crashes = self.policy.max_crashes.map(column);
        self.row.at_most_once = self.policy.leaves_unknown();
        self.row.expiry = self.policy.expiry.map(Expiry::to_store);
        self.row.rates = self.rates()?;
        self.policy.rates.clear();
        self.row.policy = self.policy.to_column();
        self.row.limit = self.limit()?;
        self.row.quota = quota::column(self.quota.as_ref(), &self.row.class_name)?;
        self.row.unique_scope = self.policy.unique_scope.unwrap_or_default();
        self.row.on_conflict = self.policy.on_conflict.unwrap_or_default();
        self.row.ahead_by = self.policy.ahead_by;
        self.row.follows = self.follows;
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

    fn rates(&self) -> Result<Vec<NewRate>> {
        let class = &self.row.class_name;
        rate::of_class(&self.policy.rates, class).map_err(|reason| Error::InvalidJob {
            class: class.clone(),
            reason,
        })
    }

    fn wrong_tenant(&self) -> Option<String> {
        let wrong = check_tenant(self.row.tenant.as_deref()?).err();
        wrong.map(|why| format!("its {why}"))
    }

    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
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
        if let Some(header) = &self.row.traceparent
            && Traceparent::parse(header).is_none()
        {
            return refused(format!(
                "its traceparent {header:?} is not one of W3C Trace Context; pass the header as it is, \
                 `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits"
            ));
        }
        let is_kept = |time: NaiveDateTime| (1..=9999).contains(&time.year());
        if self.row.delay.is_some_and(|delay| delay > LONGEST_DELAY)
            || self.row.at.is_some_and(|time| !is_kept(time))
        {
            return refused(
                "its time must be in the years 1 to 9999, and a delay at most 1000 years; what has \
                 no time yet is better enqueued when it has"
                    .to_owned(),
            );
        }
        let wrong_limit = || self.policy.wrong_limit(self.row.at);
        let wrong = self.wrong_parents().or_else(wrong_limit);
        if let Some(problem) = wrong.or_else(|| self.wrong_tenant()) {
            return refused(problem);
        }
        if self.policy.is_at_most_once() && self.policy.max_attempts.is_some_and(|max| max > 1) {
            return refused(ONE_ATTEMPT.to_owned());
        }
        Ok(())
    }
}

/// In microseconds. SQLite writes no year after 9999: a job due later would have no time, and be
/// ready immediately.
pub(crate) const LONGEST_DELAY: i64 = 1_000 * 366 * 86_400 * 1_000_000;

impl NewJob {
    /// Discards the job if it has not started by this time, by the database's clock; see
    /// [`Policy::expires_in`], which this replaces. A time that has passed already discards it
    /// instead of its first run; a time in the year 9999 or later counts as December 30, 9999.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let departure = "2099-11-24T08:00:00Z".parse().unwrap();
    /// NewJob::of_class("remind", "{}").not_after(departure).enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn not_after(mut self, time: DateTime<Utc>) -> Self {
        self.policy.expiry = Some(Expiry::At(time));
        self
    }

    /// Discards the job if it has not started so long after it is due; see [`Policy::expires_in`].
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.policy = self.policy.expires_in(time);
        self
    }
}

/// Checks the name of a tenant.
pub(crate) fn check_tenant(tenant: &str) -> std::result::Result<(), String> {
    let is_valid =
        !tenant.is_empty() && tenant.len() <= MAX_NAME && !tenant.chars().any(char::is_control);
    match is_valid {
        true => Ok(()),
        false => Err("tenant must have 1 to 255 bytes and no control character".to_owned()),
    }
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
        let large = || job(&format!("\"{}\"", "x".repeat(70_000)));
        let error = large().max_arguments(70_001).check().unwrap_err();
        assert!(error.to_string().contains("70002 bytes"), "{error}");
        assert!(large().max_arguments(80_000).check().is_ok());
        // The class decides, which the enqueue looks up.
        assert!(large().check().is_ok());
    }
}
