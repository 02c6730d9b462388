//! What a policy makes of an attempt that ended with an error.

use super::Policy;
use crate::db::attempts::Ending;
use crate::db::failed::Failure;
use crate::outcome::{Decision, Interrupted, JobError};
use crate::timeout::OnTimeout;
use std::time::Duration;

impl Policy {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Delivery;

    const SECOND: Duration = Duration::from_secs(1);

    fn error() -> JobError {
        JobError::from("no")
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
}
