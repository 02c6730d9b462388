//! How long a run of a job may take, and what becomes of one that takes longer.

use crate::policy::{Policy, millis};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What becomes of a job that has overrun its
/// [`timeout`](Policy::timeout).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnTimeout {
    /// It was an attempt like any other that failed: the next one comes after
    /// the back-off, if one is left. An at-most-once job fails.
    #[default]
    Retry,
    /// The job has failed, however many attempts are left.
    Fail,
    /// The job has ended without having failed, and is kept like a finished
    /// one, with the reason.
    Discard,
}

/// A duration as a column holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Span(#[serde(with = "millis")] pub(crate) Duration);

/// After the timeout, until the process of a job that does not end is ended.
const GRACE: Duration = Duration::from_secs(5);

/// The time that one run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
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

/// What is as good as no limit: `Duration::MAX`, cut to what a column holds.
const NEVER: Duration = Duration::from_millis(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::attempts::Ending;
    use crate::outcome::{Interrupted, JobError};
    use crate::policy::Delivery;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_endless_timeout_is_none_stored_or_not() {
        let policy = Policy::new().timeout(Duration::MAX);
        assert_eq!(policy.limit(), None);
        let column = policy.to_column().unwrap();
        let read = Policy::of_columns(Some(&column), None, false);
        assert_eq!(read.limit(), None);
        let stubborn = read.or(&Policy::new().timeout(SECOND));
        assert_eq!(stubborn.limit(), None, "it overrides the type's");
    }

    #[test]
    fn a_column_holds_all_of_it() {
        let policy = Policy::new()
            .timeout(2 * SECOND)
            .timeout_grace(SECOND)
            .on_timeout(OnTimeout::Discard);
        let column = policy.to_column().unwrap();
        assert_eq!(
            column,
            r#"{"timeout":2000,"timeout_grace":1000,"on_timeout":"discard"}"#
        );
        assert_eq!(Policy::of_columns(Some(&column), None, false), policy);
    }

    #[test]
    fn the_policy_decides_what_a_timeout_means() {
        let judge = |policy: &Policy, attempt| {
            policy.judge(attempt, &JobError::from(Interrupted::TimedOut), None)
        };
        let policy = Policy::new().max_attempts(2).timeout(SECOND);
        assert!(
            matches!(judge(&policy, 1), Ending::Retry(failure, _) if failure.kind == "timeout")
        );
        assert!(matches!(judge(&policy, 2), Ending::Fail(_)));
        let fail = policy.clone().on_timeout(OnTimeout::Fail);
        assert!(matches!(judge(&fail, 1), Ending::Fail(_)));
        let discard = policy.clone().on_timeout(OnTimeout::Discard);
        assert!(matches!(judge(&discard, 2), Ending::Discard(_)));
        let once = policy.delivery(Delivery::AtMostOnce);
        assert!(matches!(judge(&once, 1), Ending::Fail(_)));
    }
}
