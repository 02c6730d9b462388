//! Performs one claimed job, from its arguments to its outcome.

use crate::db::model::outcome::Ending;
use crate::job::around::caught::{forget_place, performing};
use crate::job::context::Run;
use crate::job::error::{Interrupted, JobError, JobOutput, RequestedEnding};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::trace::spans;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

    /// Whether the job was not performed, because only other programs can.
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
        forget_place();
        match performing(|| registry.perform(arguments, run)) {
            Some(Ok(output)) => Outcome::Finished(output),
            Some(Err(error)) => Outcome::Ended(judge_run(registry, run, &error)),
            None => Outcome::UnknownClass,
        }
    };
    match registry.has(&run.class_name) {
        true => spans::process(run, perform, Outcome::ending),
        false => Outcome::UnknownClass,
    }
}

fn judge_run(registry: &Registry, run: &Run, error: &JobError) -> Ending {
    if error.decision == RequestedEnding::Interrupted(Interrupted::Stopping) {
        run.signals.live.note_cut_short();
    }
    judge(registry, &run.class_name, &run.policy, run.attempt, error)
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
