//! What becomes of a job that does not simply succeed, and what is kept of it.

use crate::db::attempts::Ending;
use crate::db::failed::{Failure, Hook};
use crate::db::unique::{OnConflict, UniqueScope};
use crate::job::{Job, JobId};
use crate::outcome::{Decision, Interrupted, JobError};
use crate::timeout::{OnTimeout, Span};
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
    #[serde(default, skip_serializing_if = "Option::is_none", with = "opt_millis")]
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

/// How long to wait before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backoff {
    /// The same time after every attempt.
    Fixed(#[serde(with = "millis")] Duration),
    /// `first` after the first attempt, twice as long after every further
    /// one, up to `cap`. Each delay is between half and the whole of that, so
    /// that jobs which failed together do not come back together.
    Exponential {
        /// After the first attempt.
        #[serde(with = "millis")]
        first: Duration,
        /// The longest delay.
        #[serde(with = "millis")]
        cap: Duration,
    },
}

impl Default for Backoff {
    /// Exponential, from 10 seconds up to an hour.
    fn default() -> Self {
        Backoff::Exponential {
            first: Duration::from_secs(10),
            cap: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// The delay after this attempt; 1 is the first.
    pub(crate) fn after(self, attempt: u32) -> Duration {
        match self {
            Backoff::Fixed(delay) => delay,
            Backoff::Exponential { first, cap } => {
                let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
                let whole = first.saturating_mul(doubled).min(cap);
                whole.mul_f64(0.5 + 0.5 * fastrand::f64())
            }
        }
    }
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

    /// When the job has failed for good, enqueues a job of type `J` in the
    /// same transaction, whoever notices: also a supervisor that has none of
    /// the program's code. It gets a [`JobFailed`] as its arguments.
    pub fn on_failure<J: Job>(mut self) -> Self {
        self.on_failure = Some(Hook {
            class: J::NAME.to_owned(),
            queue: J::QUEUE.to_owned(),
            priority: J::PRIORITY,
        });
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

    fn says(&self, on_timeout: OnTimeout) -> bool {
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

    /// What is to become of a job after an attempt (1 is the first) that
    /// ended with `error`. `computed` is the delay that the job's type wants.
    pub(crate) fn judge(
        &self,
        attempt: u32,
        error: &JobError,
        computed: Option<Duration>,
    ) -> Ending {
        let failure = Failure::new(&error.kind, &error.message).at(error.place.clone());
        let tries_left = attempt < self.max_attempts.unwrap_or(1);
        let once = self.is_at_most_once();
        match error.decision {
            Decision::Interrupted(Interrupted::Cancelled) => Ending::Cancel(failure),
            Decision::Discard => Ending::Discard(failure),
            Decision::Fail => Ending::Fail(failure),
            Decision::Interrupted(Interrupted::TimedOut) if self.says(OnTimeout::Discard) => {
                Ending::Discard(failure)
            }
            Decision::Interrupted(Interrupted::TimedOut) if self.says(OnTimeout::Fail) => {
                Ending::Fail(failure)
            }
            Decision::Snooze(_) | Decision::RetryAfter(_) if once => Ending::Fail(refused(failure)),
            Decision::Snooze(delay) => Ending::Snooze(delay),
            _ if once || !tries_left => Ending::Fail(failure),
            Decision::RetryAfter(delay) => Ending::Retry(failure, delay),
            Decision::ByPolicy
            | Decision::Interrupted(Interrupted::Lost | Interrupted::TimedOut) => {
                let delay =
                    computed.unwrap_or_else(|| self.backoff.unwrap_or_default().after(attempt));
                Ending::Retry(failure, delay)
            }
        }
    }
}

fn refused(failure: Failure) -> Failure {
    Failure::new(
        "at_most_once",
        format!(
            "it asked to be run again, which an at-most-once job never is by itself: {}",
            failure.message
        ),
    )
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

/// Durations as whole milliseconds, which people can read in a column.
pub(crate) mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        u64::deserialize(input).map(Duration::from_millis)
    }
}

/// The same, where nothing may be said.
mod opt_millis {
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        super::millis::serialize(&value.unwrap_or_default(), out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::millis::deserialize(input).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn error() -> JobError {
        JobError::from("no")
    }

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

    #[test]
    fn one_attempt_is_the_default() {
        assert!(matches!(
            Policy::new().judge(1, &error(), None),
            Ending::Fail(_)
        ));
        let policy = Policy::new().max_attempts(2);
        assert!(matches!(policy.judge(1, &error(), None), Ending::Retry(..)));
        assert!(matches!(policy.judge(2, &error(), None), Ending::Fail(_)));
    }

    #[test]
    fn the_body_decides_before_the_policy() {
        let policy = Policy::new().max_attempts(2);
        let judge = |error: JobError| policy.judge(1, &error, Some(SECOND));
        assert!(matches!(judge(error().fail()), Ending::Fail(_)));
        assert!(matches!(judge(error().discard()), Ending::Discard(_)));
        assert!(matches!(judge(error()), Ending::Retry(_, SECOND)));
        assert!(matches!(
            judge(error().retry_after(2 * SECOND)),
            Ending::Retry(_, delay) if delay == 2 * SECOND
        ));
        assert!(matches!(
            judge(JobError::snooze(SECOND)),
            Ending::Snooze(SECOND)
        ));
    }

    #[test]
    fn at_most_once_is_never_tried_again() {
        let policy = Policy::new().max_attempts(9).delivery(Delivery::AtMostOnce);
        for error in [
            error(),
            error().retry_after(SECOND),
            JobError::snooze(SECOND),
        ] {
            assert!(matches!(policy.judge(1, &error, None), Ending::Fail(_)));
        }
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let backoff = Backoff::Exponential {
            first: SECOND,
            cap: 10 * SECOND,
        };
        for (attempt, whole) in [(1, 1), (2, 2), (3, 4), (5, 10), (u32::MAX, 10)] {
            let delay = backoff.after(attempt);
            assert!(
                delay >= whole * SECOND / 2 && delay <= whole * SECOND,
                "{attempt}: {delay:?}"
            );
        }
    }
}
