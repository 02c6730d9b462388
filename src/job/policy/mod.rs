//! The policy of a job: its attempts, delivery and limits, and what is kept of it.

pub mod backoff;
pub(crate) mod millis;
pub mod quota;
mod time_limits;

use crate::db::model::extras::{Extras, FollowUpJob, readable};
use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::job::JobId;
use crate::job::policy::backoff::{Backoff, Expiry, RetryLimit};
use crate::job::rate::Rate;
use crate::job::running::{GRACE, NEVER, OnTimeout, Span, TimeLimit};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The rules by which a job is run: attempts, timeouts, delivery, uniqueness and what is kept.
///
/// A policy can be set for one enqueue ([`NewJob::policy`](crate::NewJob::policy)), for a job type
/// ([`Job::policy`](crate::Job::policy)) and for a whole program
/// ([`Registry::defaults`](crate::Registry::defaults)). A value that is not set is taken from the
/// next level, in this order, and finally from the defaults named here. The first two are stored
/// with the job, so that a supervisor can apply them without the program's code.
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
    // The first three have columns of their own, which SQL conditions use.
    #[doc(hidden)]
    #[serde(skip)]
    pub max_attempts: Option<u32>,
    #[serde(skip)]
    pub(crate) max_crashes: Option<u32>,
    /// In JSON only as far as its column does not know it.
    #[serde(
        default,
        skip_serializing_if = "Delivery::is_stored_elsewhere",
        deserialize_with = "readable"
    )]
    #[doc(hidden)]
    pub delivery: Option<Delivery>,
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_failure: Option<FollowUpJob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep_finished: Option<bool>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::job::policy::millis::option"
    )]
    #[doc(hidden)]
    pub keep_result: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unique_scope: Option<UniqueScope>,
    // Only used during the enqueue.
    #[serde(skip)]
    pub(crate) on_conflict: Option<OnConflict>,
    /// In seconds; negative behind. Only used during the enqueue.
    #[doc(hidden)]
    #[serde(skip)]
    pub ahead_by: Option<i64>,
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_grace: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_timeout: Option<OnTimeout>,
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Tick>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "readable"
    )]
    #[doc(hidden)]
    pub expiry: Option<Expiry>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "readable"
    )]
    #[doc(hidden)]
    pub retry_limit: Option<RetryLimit>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "readable"
    )]
    pub(crate) propagation_style: Option<PropagationStyle>,
    /// Those of an enqueue are in columns of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rates: Vec<Rate>,
    /// Tags, metadata and the version of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extras: Option<Box<Extras>>,
}

/// The tick of a recurring task for which a job was enqueued.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    pub task: String,
    pub at: DateTime<Utc>,
}

impl Policy {
    /// Creates a policy without any values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a [rate](Rate) at which jobs with its key start, in place of one with the same key. An enqueue whose policy has
    /// rates has none of its type.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rates.retain(|other| other.has_other_key(&rate));
        self.rates.push(rate);
        self
    }

    /// Returns the rates by themselves.
    pub(crate) fn without_rates(mut self) -> (Self, Vec<Rate>) {
        let rates = std::mem::take(&mut self.rates);
        (self, rates)
    }

    /// Replaces the rates, if there are any.
    pub(crate) fn with_rates(mut self, rates: Vec<Rate>) -> Self {
        if !rates.is_empty() {
            self.rates = rates;
        }
        self
    }

    /// Sets how many attempts the job has before it fails permanently.
    ///
    /// Runs that a stop or a crash cut short do not count. Default: 1, and the failed job is kept
    /// for inspection.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Sets how many times the process may die during the job before the job fails. Default: 3.
    ///
    /// The value is stored when the job is enqueued; a program-wide value has no effect.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = Some(crashes);
        self
    }

    /// Sets how many times the job may start. Default: at least once.
    ///
    /// The value is stored when the job is enqueued; a program-wide value has no effect.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Sets the delay before the next attempt, unless [`Job::retry_in`](crate::Job::retry_in)
    /// returns one. Default: see [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Sets whether the job's row is kept after it finished, for the time that the supervisor's
    /// [`Retention`](crate::processes::Retention) sets.
    ///
    /// Without the row there is no trace of the job, unless its result is kept. Default: the
    /// worker's setting, which is to keep it.
    pub fn keep_finished(mut self, keep: bool) -> Self {
        self.keep_finished = Some(keep);
        self
    }

    /// Sets how long the job's return value and outcome can be read by
    /// [`jobs::status`](crate::jobs::status) and [`wait_for`](crate::jobs::wait_for), even after its row was
    /// deleted.
    ///
    /// With zero, the result is deleted together with the row. Default: 5 min, for jobs that return
    /// a value or have a unique id. The outcome of a job that returns `()` is in its row, and is
    /// kept beyond it only if this is set.
    pub fn keep_result(mut self, time: Duration) -> Self {
        self.keep_result = Some(time);
        self
    }

    /// Sets how long a job with a [unique id](crate::NewJob::unique_id) holds it. Default: until it
    /// has finished or failed permanently.
    ///
    /// The value is stored when the job is enqueued; a program-wide value has no effect.
    pub fn unique_scope(mut self, scope: UniqueScope) -> Self {
        self.unique_scope = Some(scope);
        self
    }

    /// Sets what happens to an enqueue if another job holds the unique id. Default: it returns the
    /// existing job.
    ///
    /// This is applied during the enqueue; a program-wide value has no effect.
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

    /// Returns true if the job fails when the outcome of a run is unknown, instead of running again.
    pub(crate) fn leaves_unknown(&self) -> bool {
        self.is_at_most_once() || self.delivery == Some(Delivery::AfterKnownOutcome)
    }

    /// Fills in missing values from `other`. Tags and metadata of both are kept.
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
            ahead_by: self.ahead_by.or(other.ahead_by),
            timeout: self.timeout.or(other.timeout),
            timeout_grace: self.timeout_grace.or(other.timeout_grace),
            on_timeout: self.on_timeout.or(other.on_timeout),
            tick: self.tick.or_else(|| other.tick.clone()),
            expiry: self.expiry.or(other.expiry),
            retry_limit: self.retry_limit.or(other.retry_limit),
            propagation_style: self.propagation_style.or(other.propagation_style),
            rates: match self.rates.is_empty() {
                true => other.rates.clone(),
                false => self.rates,
            },
            extras: both(self.extras, other.extras.as_deref()),
        }
    }

    /// Returns the value of the job's column, or `None` if no value lacks a column of its own.
    pub(crate) fn to_column(&self) -> Option<String> {
        // The case for most jobs.
        if *self == Policy::new() {
            return None;
        }
        serde_json::to_string(self).ok().filter(|text| text != "{}")
    }

    /// Reads the columns of a job. Values that a newer version of Windlass added are ignored.
    #[doc(hidden)]
    pub fn of_columns(
        policy: Option<&str>,
        max_attempts: Option<i32>,
        at_most_once: bool,
    ) -> Policy {
        let mut read: Policy = policy
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        read.max_attempts = max_attempts.and_then(|attempts| u32::try_from(attempts).ok());
        // At least once is the column's default, so it counts as not set.
        let stored = at_most_once.then_some(Delivery::AtMostOnce);
        read.delivery = Delivery::refined(stored, read.delivery);
        read
    }
}

/// Returns the extras of both.
fn both(own: Option<Box<Extras>>, other: Option<&Extras>) -> Option<Box<Extras>> {
    match (own, other) {
        (Some(mut own), Some(other)) => {
            own.add(other);
            Some(own)
        }
        (own, other) => own.or_else(|| other.cloned().map(Box::new)),
    }
}

impl Policy {
    /// Sets how long one run may take, by a monotonic clock, counted from the start of the job's
    /// code. Default: no limit.
    ///
    /// After this time, [`Context::check`](crate::Context::check) and
    /// [`sleep`](crate::Context::sleep) return
    /// [`Interrupted::TimedOut`](crate::Interrupted::TimedOut). A job that continues is stopped by
    /// force after the [grace](Self::timeout_grace). In an enqueue, `Duration::MAX` removes the
    /// timeout of the job type.
    ///
    /// A single thread cannot be stopped by force, only the whole process. A
    /// [`Worker`](crate::Worker) that [runs](crate::Worker::run) as a program first gives its other
    /// jobs `shutdown_timeout` to finish. Then it exits, and its supervisor or service manager starts
    /// it again. A worker that was [started](crate::Worker::start) within a program does not exit:
    /// the job keeps its thread and its claim until it returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Policy;
    /// use windlass::policies::OnTimeout;
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

    /// Sets how long a job may continue after its [`timeout`](Self::timeout) before its process
    /// exits. Default: 5 s.
    ///
    /// With `Duration::MAX`, the process never exits for this reason.
    pub fn timeout_grace(mut self, grace: Duration) -> Self {
        self.timeout_grace = Some(Span(grace));
        self
    }

    /// Sets what happens to a job that returned the interruption of its [`timeout`](Self::timeout),
    /// or was stopped by force. Default: [`OnTimeout::Retry`].
    ///
    /// A job that returns late with another result keeps that result.
    pub fn on_timeout(mut self, then: OnTimeout) -> Self {
        self.on_timeout = Some(then);
        self
    }

    /// Returns the time limit of a run; `None` if there is no limit.
    #[doc(hidden)]
    pub fn time_limit(&self) -> Option<TimeLimit> {
        let timeout = self.timeout?.0;
        (timeout < NEVER).then(|| TimeLimit {
            timeout,
            grace: self.timeout_grace.map_or(GRACE, |grace| grace.0),
        })
    }
}

// --- Delivery: at least once, or at most once ---

/// The delivery guarantee of a job: how many times it may start.
///
/// ```
/// use windlass::{Delivery, Policy};
///
/// let policy = Policy::new().delivery(Delivery::AtMostOnce);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The job runs until the outcome of one run is stored in the database.
    ///
    /// A run that was cut short is repeated, so effects outside the database may happen twice.
    #[default]
    AtLeastOnce,
    /// The job runs once or not at all.
    ///
    /// An uncertain outcome is never resolved by running the job again. The job fails, to be
    /// checked by hand, if its process dies during the run or the shutdown deadline passes. It also
    /// fails if it exceeds its timeout or returns an error. Only a job that was claimed but not
    /// started goes back to the queue.
    AtMostOnce,
    /// The job runs again only after a run whose outcome is known.
    ///
    /// If the job's code returns, its outcome is known: an error, a panic, a snooze, and an
    /// interruption that the job noticed itself are treated as with
    /// [`AtLeastOnce`](Self::AtLeastOnce), with as many attempts as the policy has. If a run is cut
    /// off, because its process died, the shutdown deadline passed or the job overran its timeout
    /// and the grace, the job fails with the kind `outcome_unknown`, to be checked by hand, as with
    /// [`AtMostOnce`](Self::AtMostOnce).
    ///
    /// Programs of versions without this value treat such jobs as at most once.
    AfterKnownOutcome,
}

impl Delivery {
    /// Returns the delivery that every version knows, as columns of their own name it.
    pub(crate) fn as_every_version_knows_it(self) -> Self {
        match self {
            Delivery::AfterKnownOutcome => Delivery::AtMostOnce,
            other => other,
        }
    }

    /// Returns the delivery of a stored value and the refinement of it in the policy.
    pub(crate) fn refined(stored: Option<Self>, refinement: Option<Self>) -> Option<Self> {
        match (stored, refinement) {
            (Some(Delivery::AtMostOnce), Some(Delivery::AfterKnownOutcome)) => refinement,
            _ => stored,
        }
    }

    /// Returns true if the policy's JSON does not have to name it.
    pub(crate) fn is_stored_elsewhere(delivery: &Option<Self>) -> bool {
        *delivery != Some(Delivery::AfterKnownOutcome)
    }
}

// --- The arguments of a job that follows a failure ---

/// The arguments of a job that [`Policy::on_failure`](crate::Policy::on_failure) enqueued: which job failed, and why.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::policies::JobFailed;
/// use windlass::{Context, Job, JobResult, Policy};
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
    /// The number of attempts made.
    pub attempts: u32,
    /// The kind of its last error.
    pub kind: String,
    /// The message of its last error.
    pub message: String,
}

// --- The trace of a run: a link to the enqueue, or its child ---

/// The relation of the span of a run to the trace in which the job was enqueued.
///
/// This only matters in programs with the feature `otel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PropagationStyle {
    /// The span starts a trace of its own, with a link to the enqueue.
    #[default]
    Link,
    /// The span of the first run is a child of the enqueue, in the same trace and sampled with it.
    /// Later runs, and jobs that were enqueued for a later time, have a link: a trace should not
    /// be open for hours.
    Child,
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

    #[test]
    fn the_third_delivery_refines_the_second() {
        let policy = Policy::new().delivery(Delivery::AfterKnownOutcome);
        let column = policy.to_column().unwrap();
        assert_eq!(column, r#"{"delivery":"after_known_outcome"}"#);
        assert_eq!(Policy::of_columns(Some(&column), None, true), policy);
        // An older program has replaced the column.
        assert_eq!(
            Policy::of_columns(Some(&column), None, false),
            Policy::new()
        );
    }
}
