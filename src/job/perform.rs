//! Performs one claimed job, from its arguments to its outcome.

use crate::db::model::outcome::Ending;
use crate::job::context::Run;
use crate::job::error::{Interrupted, JobError, JobOutput, RequestedEnding};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

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
    /// Whether the job was not performed, because only other programs can.
    pub(crate) fn is_for_others(&self) -> bool {
        matches!(self, Outcome::UnknownClass | Outcome::NewerVersion)
    }
}

/// Decodes the arguments, runs the job and catches its panics.
pub(crate) fn perform(registry: &Registry, arguments: &str, run: &Run) -> Outcome {
    if registry.is_outdated(run) {
        return Outcome::NewerVersion;
    }
    note_panics();
    // An earlier job may have caught its own panic, and a panic that is only resumed records no new
    // location.
    PANICKED_AT.take();
    PERFORMING.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| registry.perform(arguments, run)));
    PERFORMING.set(false);
    match result {
        Ok(Some(Ok(output))) => Outcome::Finished(output),
        Ok(Some(Err(error))) => Outcome::Ended(judge_run(registry, run, error)),
        Ok(None) => Outcome::UnknownClass,
        Err(payload) => Outcome::Ended(judge_run(registry, run, panicked(payload))),
    }
}

fn judge_run(registry: &Registry, run: &Run, error: JobError) -> Ending {
    let error = error.heed(|interrupted| run.signals.has_raised(interrupted));
    if error.decision == RequestedEnding::Interrupted(Interrupted::Stopping) {
        run.signals.live.note_cut_short();
    }
    judge(registry, &run.class_name, &run.policy, run.attempt, &error)
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
    note_panics();
    PERFORMING.set(true);
    let computed = catch_unwind(AssertUnwindSafe(|| {
        registry.retry_in(class_name, attempt, error)
    }));
    PERFORMING.set(false);
    policy.judge(attempt, error, computed.unwrap_or_default())
}

thread_local! {
    static PERFORMING: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records the location of a panic, which its payload does not contain.
///
/// The previous hook still runs for all other threads; the panic of a job is reported as its
/// failure instead.
fn note_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if PERFORMING.get() {
                let place = info.location().map(ToString::to_string);
                PANICKED_AT.with_borrow_mut(|noted| *noted = place);
            } else {
                previous(info);
            }
        }));
    });
}

fn panicked(payload: Box<dyn Any + Send>) -> JobError {
    // `&*`: a `&Box<dyn Any>` would itself be taken for the payload.
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| (*payload).downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the panic had no message".to_owned());
    // The payload's own destructor may panic as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    let mut error = JobError::new("panic", message);
    error.place = PANICKED_AT.take();
    error
}
