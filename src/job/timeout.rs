//! How long a run of a job may take, and what happens to one that takes longer.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens to a job that exceeded its [`timeout`](crate::Policy::timeout).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnTimeout {
    /// The attempt has failed like any other: the job is retried after the back-off, if an attempt
    /// is left. An at-most-once job fails, and so does any whose delivery is not at least once if it
    /// had to be stopped by force.
    #[default]
    Retry,
    /// The job fails, even if attempts are left.
    Fail,
    /// The job is discarded: it has not failed, and is kept like a finished job, with the reason.
    Discard,
}

/// A duration as stored in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Span(#[serde(with = "crate::job::policy::millis")] pub(crate) Duration);

/// How long after the timeout the process of a job that continues is stopped.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The time limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
}

/// Practically no limit: `Duration::MAX`, shortened to what a column holds.
pub(crate) const NEVER: Duration = Duration::from_millis(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::outcome::Ending;
    use crate::job::error::{Interrupted, JobError};
    use crate::job::policy::Policy;
    use crate::job::policy::delivery::Delivery;

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
