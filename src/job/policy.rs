//! What becomes of a job that does not simply succeed, and what is kept of it.

use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::db::model::outcome::Hook;
use crate::job::backoff::Backoff;
use crate::job::id::JobId;
use crate::job::timeout::{GRACE, Limit, NEVER, OnTimeout, Span};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// How a job is to be treated: how often it is tried, and so on.
///
/// One enqueue may have a policy ([`NewJob::policy`](crate::NewJob::policy)),
/// a job type ([`Job::policy`]), and a whole program
/// ([`Registry::defaults`](crate::Registry::defaults)). What one leaves open,
/// the next one says, in this order, and last the defaults that are named
/// here. The first two are stored with the job, so that a supervisor can act
/// on them without the program's code.
///
/// ```
/// use std::time::Duration;
/// use windlass::{Backoff, Policy};
///
/// let policy = Policy::new()
///     .max_attempts(5)
///     .backoff(Backoff::Exponential {
///         first: Duration::from_secs(10),
///         cap: Duration::from_secs(3600),
///     });
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a policy does nothing until a job type, an enqueue or a registry has it"]
pub struct Policy {
    // The first three have columns of their own, which SQL judges by.
    #[serde(skip)]
    pub(crate) max_attempts: Option<u32>,
    #[serde(skip)]
    pub(crate) max_crashes: Option<u32>,
    #[serde(skip)]
    pub(crate) delivery: Option<Delivery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backoff: Option<Backoff>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_failure: Option<Hook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep_finished: Option<bool>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::job::millis::option"
    )]
    pub(crate) keep_result: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unique_scope: Option<UniqueScope>,
    // Only the enqueue asks for it.
    #[serde(skip)]
    pub(crate) on_conflict: Option<OnConflict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_grace: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_timeout: Option<OnTimeout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tick: Option<Tick>,
}

/// The tick of a recurring task for which a job was enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tick {
    pub(crate) task: String,
    pub(crate) at: DateTime<Utc>,
}

/// How often a job may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Until one run has come to an end that the database knows of. A run
    /// that was cut short is followed by another, so that effects outside of
    /// the database may happen twice.
    #[default]
    AtLeastOnce,
    /// Once, or not at all. What is uncertain is never resolved by running
    /// again: when the process dies while the job runs, when the shutdown
    /// deadline passes, when the job overruns its time or returns an error, it
    /// fails and waits for a person. Only what was claimed and not begun goes
    /// back to the queue.
    AtMostOnce,
}

impl Policy {
    /// Says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often the job is tried before it has failed for good. Runs that a
    /// stop or a crash cut short do not count. Default: 1, as failed jobs are
    /// kept for a person to look at.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// How often the process may die while the job runs before the job has
    /// failed. Stored with the job when it is enqueued; a program-wide value
    /// has no effect. Default: 3.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = Some(crashes);
        self
    }

    /// How often the job may start. Stored with the job when it is enqueued;
    /// a program-wide value has no effect. Default: at least once.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// How long to wait before the next attempt, unless
    /// [`Job::retry_in`] knows better. Default: see [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Whether the job's row stays when it has finished, for as long as the
    /// supervisor's [`Retention`](crate::Retention) says. Without it, nobody
    /// can tell that there was such a job, unless its result is kept.
    /// Default: as the worker is set, which keeps it.
    pub fn keep_finished(mut self, keep: bool) -> Self {
        self.keep_finished = Some(keep);
        self
    }

    /// For how long what the job returned can be asked for, by
    /// [`task_info`](crate::task_info) and [`wait_for`](crate::wait_for), also
    /// when its row has gone; and how it ended. Zero: not beyond its row.
    /// Default: 5 minutes, for jobs that return something or have a unique id.
    /// The end of one that returns `()` is told by its row, and only kept
    /// beside it when this is said.
    pub fn keep_result(mut self, time: Duration) -> Self {
        self.keep_result = Some(time);
        self
    }

    /// How long a job with a [unique id](crate::NewJob::unique_id) holds it.
    /// Stored with the job when it is enqueued; a program-wide value has no
    /// effect. Default: until it has finished or failed for good.
    pub fn unique_scope(mut self, scope: UniqueScope) -> Self {
        self.unique_scope = Some(scope);
        self
    }

    /// What becomes of an enqueue whose unique id another job holds. Judged
    /// when it is enqueued; a program-wide value has no effect. Default: it
    /// answers with the job that is there.
    pub fn on_conflict(mut self, policy: OnConflict) -> Self {
        self.on_conflict = Some(policy);
        self
    }

    pub(crate) fn says(&self, on_timeout: OnTimeout) -> bool {
        self.on_timeout == Some(on_timeout)
    }

    pub(crate) fn is_at_most_once(&self) -> bool {
        self.delivery == Some(Delivery::AtMostOnce)
    }

    /// Fills in from `other` what is not said here.
    pub(crate) fn or(self, other: &Policy) -> Policy {
        Policy {
            max_attempts: self.max_attempts.or(other.max_attempts),
            max_crashes: self.max_crashes.or(other.max_crashes),
            delivery: self.delivery.or(other.delivery),
            backoff: self.backoff.or(other.backoff),
            on_failure: self.on_failure.or_else(|| other.on_failure.clone()),
            keep_finished: self.keep_finished.or(other.keep_finished),
            keep_result: self.keep_result.or(other.keep_result),
            unique_scope: self.unique_scope.or(other.unique_scope),
            on_conflict: self.on_conflict.or(other.on_conflict),
            timeout: self.timeout.or(other.timeout),
            timeout_grace: self.timeout_grace.or(other.timeout_grace),
            on_timeout: self.on_timeout.or(other.on_timeout),
            tick: self.tick.or_else(|| other.tick.clone()),
        }
    }

    /// What the column of a job takes: nothing, when nothing is said that has
    /// no column of its own.
    pub(crate) fn to_column(&self) -> Option<String> {
        // As most are.
        if *self == Policy::new() {
            return None;
        }
        serde_json::to_string(self).ok().filter(|text| text != "{}")
    }

    /// Reads the columns of a job. What a newer version of Windlass has added
    /// is passed over.
    pub(crate) fn of_columns(
        policy: Option<&str>,
        max_attempts: Option<i32>,
        at_most_once: bool,
    ) -> Policy {
        let mut read: Policy = policy
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        read.max_attempts = max_attempts.and_then(|attempts| u32::try_from(attempts).ok());
        // At least once is the column's default, and so says nothing.
        read.delivery = at_most_once.then_some(Delivery::AtMostOnce);
        read
    }
}

/// The arguments of a job that [`Policy::on_failure`] has enqueued: which job
/// failed, and why.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::{Context, Job, JobFailed, JobResult, Policy};
///
/// #[derive(Serialize, Deserialize)]
/// struct TellSupport(JobFailed);
///
/// impl Job for TellSupport {
///     const NAME: &'static str = "tell_support";
///     type State = ();
///     type Output = ();
///     fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
///         println!("{} {}: {}", self.0.class_name, self.0.job_id, self.0.message);
///         Ok(())
///     }
/// }
///
/// let policy = Policy::new().max_attempts(3).on_failure::<TellSupport>();
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobFailed {
    /// The job that failed.
    pub job_id: JobId,
    /// Its class.
    pub class_name: String,
    /// Its queue.
    pub queue_name: String,
    /// Its arguments.
    pub arguments: Value,
    /// How many attempts it has had.
    pub attempts: u32,
    /// The kind of its last error.
    pub kind: String,
    /// The message of its last error.
    pub message: String,
}

impl Policy {
    /// How long one run may take, by a monotonic clock, from when the job's
    /// code begins. Then [`Context::check`](crate::Context::check) and
    /// [`sleep`](crate::Context::sleep) tell the job that it
    /// [timed out](crate::Interrupted::TimedOut); a job that goes on all the
    /// same is ended by force after the [grace](Self::timeout_grace). Default:
    /// none, and a job without one is never ended for the time it takes.
    /// `Duration::MAX` says so in an enqueue whose job type has one.
    ///
    /// No thread can be ended by force, only its whole process: a
    /// [`Worker`](crate::Worker) that [runs](crate::Worker::run) a program
    /// ends it, after its other jobs have had `shutdown_timeout` to end, and
    /// whoever watches over it starts it again. One that was
    /// [started](crate::Worker::start) within a program leaves it alone: there
    /// the job keeps its thread and its claim until it ends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{OnTimeout, Policy};
    ///
    /// let policy = Policy::new()
    ///     .max_attempts(3)
    ///     .timeout(Duration::from_secs(60))
    ///     .on_timeout(OnTimeout::Fail);
    /// # let _ = policy;
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Span(timeout));
        self
    }

    /// After the [`timeout`](Self::timeout), how long the job has to notice
    /// and end by itself before its process is ended. Default: 5 s;
    /// `Duration::MAX` leaves it to the job alone.
    pub fn timeout_grace(mut self, grace: Duration) -> Self {
        self.timeout_grace = Some(Span(grace));
        self
    }

    /// What becomes of a job that was told of its
    /// [`timeout`](Self::timeout) and passed it on, or was ended by force. One
    /// that ends late in another way, well or badly, has ended so. Default:
    /// [`OnTimeout::Retry`].
    pub fn on_timeout(mut self, then: OnTimeout) -> Self {
        self.on_timeout = Some(then);
        self
    }

    /// `None`: as long as it takes.
    pub(crate) fn limit(&self) -> Option<Limit> {
        let timeout = self.timeout?.0;
        (timeout < NEVER).then(|| Limit {
            timeout,
            grace: self.timeout_grace.map_or(GRACE, |grace| grace.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_said_is_nothing_stored() {
        assert_eq!(Policy::new().max_attempts(3).to_column(), None);
        let policy = Policy::new().backoff(Backoff::Fixed(SECOND));
        let column = policy.to_column().unwrap();
        assert_eq!(column, r#"{"backoff":{"fixed":1000}}"#);
        assert_eq!(Policy::of_columns(Some(&column), None, false), policy);
    }

    #[test]
    fn what_a_newer_version_stores_is_passed_over() {
        let read = Policy::of_columns(Some(r#"{"new":1,"backoff":{"fixed":5}}"#), Some(2), true);
        assert_eq!(read.backoff, Some(Backoff::Fixed(Duration::from_millis(5))));
        assert_eq!(read.max_attempts, Some(2));
        assert_eq!(read.delivery, Some(Delivery::AtMostOnce));
    }
}
