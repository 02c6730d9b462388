//! Performs one claimed job, from its arguments to its outcome.

use crate::db::model::outcome::{Ending, JobFailure};
use crate::job::around::{forget_location, performing};
use crate::job::context::Run;
use crate::job::error::{Interrupted, JobError, JobOutput, RequestedEnding};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::running::OnTimeout;
use crate::job::trace::spans;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The outcome of performing a job.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// The job returned this.
    Finished(JobOutput),
    /// The job returned an error or panicked, or its arguments were invalid; this is what its
    /// policy decided.
    Ended(Ending),
    /// No type of this class is registered in this program.
    UnknownClass,
    /// Its arguments are of a newer version than this program knows.
    NewerVersion,
}

impl Outcome {
    /// Returns how the job ended, unless it finished.
    fn ending(&self) -> Option<&Ending> {
        match self {
            Outcome::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Returns true if the job was not performed, because only other programs can.
    pub(crate) fn is_for_others(&self) -> bool {
        matches!(self, Outcome::UnknownClass | Outcome::NewerVersion)
    }
}

/// Decodes the arguments and runs the job, with the functions around it.
pub(crate) fn perform(registry: &Registry, arguments: &str, run: &Run) -> Outcome {
    if registry.is_outdated(run) {
        return Outcome::NewerVersion;
    }
    let perform = || {
        forget_location();
        match performing(|| registry.perform(arguments, run)) {
            Some(Ok(output)) => Outcome::Finished(output),
            Some(Err(error)) => Outcome::Ended(judge_run(registry, run, &error)),
            None => Outcome::UnknownClass,
        }
    };
    match registry.has(&run.job.class_name) {
        true => spans::process(run, perform, Outcome::ending),
        false => Outcome::UnknownClass,
    }
}

fn judge_run(registry: &Registry, run: &Run, error: &JobError) -> Ending {
    if error.decision == RequestedEnding::Interrupted(Interrupted::Stopping) {
        run.signals.live.note_cut_short();
    }
    judge(
        registry,
        &run.job.class_name,
        &run.policy,
        run.attempt,
        error,
    )
}

/// Returns what happens to a job after an attempt that ended with `error`. A `retry_in` that panics
/// is ignored.
pub(crate) fn judge(
    registry: &Registry,
    class_name: &str,
    policy: &Policy,
    attempt: u32,
    error: &JobError,
) -> Ending {
    let retry_in = || registry.retry_in(class_name, attempt, error);
    let computed = performing(|| catch_unwind(AssertUnwindSafe(retry_in)));
    policy.judge(attempt, error, computed.unwrap_or_default())
}

// --- Decides what happens after an attempt that ended with an error ---

impl Policy {
    /// Returns what happens to a job after an attempt (starting at 1) that ended with `error`.
    ///
    /// `computed` is the delay that the job's type returned.
    pub(crate) fn judge(
        &self,
        attempt: u32,
        error: &JobError,
        computed: Option<Duration>,
    ) -> Ending {
        let failure = JobFailure::new(&error.kind, &error.message).at(error.location.clone());
        let judge = |requested| self.judge_as(requested, attempt, failure.clone(), computed);
        match &error.decision {
            RequestedEnding::Unanswered if !self.is_at_most_once() => Ending::GiveBack {
                otherwise: Box::new(judge(&RequestedEnding::ByPolicy)),
                failure,
                delay: Duration::ZERO,
            },
            RequestedEnding::Unanswered => judge(&RequestedEnding::ByPolicy),
            requested => judge(requested),
        }
    }

    fn judge_as(
        &self,
        requested: &RequestedEnding,
        attempt: u32,
        failure: JobFailure,
        computed: Option<Duration>,
    ) -> Ending {
        let tries_left = attempt < self.max_attempts.unwrap_or(1);
        let once = self.is_at_most_once();
        match requested {
            RequestedEnding::Interrupted(Interrupted::Cancelled) => Ending::Cancel(failure),
            // Not caused by anything that the job did or failed to do.
            // The job has returned, so its outcome is known unless it may run only once.
            RequestedEnding::Interrupted(Interrupted::Lost) => {
                self.given_back(LOST, "could not rely on its claim any more")
            }
            RequestedEnding::Interrupted(Interrupted::Stopping) => {
                self.given_back(STOPPED, "stopped")
            }
            // Its outcome is known, so an at-most-once job waits too.
            RequestedEnding::Park(wait) => Ending::Park((**wait).clone()),
            RequestedEnding::Discard => Ending::Discard(failure),
            RequestedEnding::Fail => Ending::Fail(failure),
            RequestedEnding::Interrupted(Interrupted::TimedOut)
                if self.says(OnTimeout::Discard) =>
            {
                Ending::Discard(failure)
            }
            RequestedEnding::Interrupted(Interrupted::TimedOut) if self.says(OnTimeout::Fail) => {
                Ending::Fail(failure)
            }
            requested if once && requested.asks_for_more() => Ending::Fail(refused(failure)),
            RequestedEnding::RateLimited(after) => Ending::RateLimited(*after),
            RequestedEnding::Snooze(delay) => Ending::Snooze(*delay),
            _ if once || !tries_left => Ending::Fail(failure),
            RequestedEnding::RetryAfter(delay) => Ending::Retry(failure, *delay),
            RequestedEnding::ByPolicy
            | RequestedEnding::Unanswered
            | RequestedEnding::Interrupted(Interrupted::TimedOut) => {
                let delay =
                    computed.unwrap_or_else(|| self.backoff.unwrap_or_default().after(attempt));
                Ending::Retry(failure, delay)
            }
        }
    }

    /// Returns the ending of a run that its process cut off.
    fn given_back(&self, why: &str, how: &str) -> Ending {
        if self.is_at_most_once() {
            Ending::Fail(JobFailure::outcome_unknown(how))
        } else {
            Ending::Release(why.to_owned(), None)
        }
    }
}

/// Why claims are released, for readers.
const LOST: &str = "the process could not rely on the claim any more";

const STOPPED: &str = "the stop of the process interrupted it";

fn refused(failure: JobFailure) -> JobFailure {
    JobFailure::new(
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
    use crate::job::policy::Delivery;

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
    fn what_the_process_cuts_off_is_given_back_uncounted() {
        let once = Policy::new().delivery(Delivery::AtMostOnce);
        let known = Policy::new().delivery(Delivery::AfterKnownOutcome);
        for interrupted in [Interrupted::Lost, Interrupted::Stopping] {
            let error = JobError::from(interrupted);
            let ending = known.judge(1, &error, None);
            assert!(matches!(ending, Ending::Release(..)), "{ending:?}");
            for attempts in 1..3 {
                let ending = Policy::new().max_attempts(attempts).judge(1, &error, None);
                assert!(matches!(ending, Ending::Release(..)), "{ending:?}");
            }
            let ending = once.judge(1, &error, None);
            let Ending::Fail(failure) = &ending else {
                panic!("{ending:?}")
            };
            assert_eq!(failure.kind, "outcome_unknown");
        }
        let cancelled = once.judge(1, &JobError::from(Interrupted::Cancelled), None);
        assert!(matches!(cancelled, Ending::Cancel(_)), "{cancelled:?}");
    }

    #[test]
    fn what_got_no_answer_is_given_back_uncounted() {
        let broken = || crate::error::Error::from(diesel::result::Error::BrokenTransactionManager);
        for attempts in 1..3 {
            let policy = Policy::new().max_attempts(attempts);
            let ending = policy.judge(1, &broken().into(), None);
            let Ending::GiveBack { otherwise, .. } = ending else {
                panic!("{ending:?}")
            };
            assert_eq!(matches!(*otherwise, Ending::Retry(..)), attempts == 2);
        }
        let once = Policy::new().delivery(Delivery::AtMostOnce);
        let ending = once.judge(1, &broken().into(), None);
        assert!(matches!(ending, Ending::Fail(_)), "{ending:?}");
        let content = crate::error::Error::from(diesel::result::Error::NotFound);
        let ending = Policy::new().judge(1, &content.into(), None);
        assert!(matches!(ending, Ending::Fail(_)), "{ending:?}");
        // A statement of the job's own is its own affair, outside of a step.
        let own = JobError::from(diesel::result::Error::BrokenTransactionManager);
        let ending = Policy::new().judge(1, &own, None);
        assert!(matches!(ending, Ending::Fail(_)), "{ending:?}");
        let ending = Policy::new().judge(1, &own.in_own_transaction(), None);
        assert!(matches!(ending, Ending::GiveBack { .. }), "{ending:?}");
    }

    #[test]
    fn after_a_known_outcome_it_is_tried_again() {
        let known = Policy::new().delivery(Delivery::AfterKnownOutcome);
        let ending = known.judge(1, &error(), None);
        assert!(matches!(ending, Ending::Fail(_)), "{ending:?}");
        let ending = known.judge(1, &JobError::snooze(SECOND), None);
        assert!(matches!(ending, Ending::Snooze(_)), "{ending:?}");
        let known = known.max_attempts(2);
        for error in [error(), JobError::from(Interrupted::TimedOut)] {
            let ending = known.judge(1, &error, None);
            assert!(matches!(ending, Ending::Retry(..)), "{ending:?}");
            let ending = known.judge(2, &error, None);
            assert!(matches!(ending, Ending::Fail(_)), "{ending:?}");
        }
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
