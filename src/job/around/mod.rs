//! Code that runs around every job of a registry.

pub(crate) mod caught;

use crate::job::around::caught::{NO_STATE, panicked};
use crate::job::context::{Context, Run};
use crate::job::error::{Interrupted, JobError, JobOutput, RequestedEnding};
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// One function around every job; see [`Registry::around`](crate::Registry::around).
pub(crate) type Around = dyn for<'n> Fn(&Context<'_, ()>, Next<'n>) -> JobRan<'n> + Send + Sync;

/// The rest of a job's performance: the functions further inside, and the job itself.
///
/// A function given to [`Registry::around`](crate::Registry::around) must call [`run`](Self::run),
/// which returns the value that the function itself has to return.
#[must_use = "call `run` to perform the job"]
pub struct Next<'n> {
    rest: &'n [Arc<Around>],
    run: &'n Run,
    body: &'n mut (dyn FnMut() -> Result<JobOutput, JobError> + 'n),
    end: &'n OnceCell<Result<JobOutput, JobError>>,
}

impl<'n> Next<'n> {
    /// Performs the job, and returns its outcome.
    ///
    /// A panic of the job, or of a function further inside, is an outcome too: this method does not
    /// panic because of it.
    pub fn run(self) -> JobRan<'n> {
        let Next {
            rest,
            run,
            body,
            end,
        } = self;
        JobRan {
            end: end.get_or_init(|| perform(rest, run, body)),
            brand: PhantomData,
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// Proof that a job was performed, with its outcome. Only [`Next::run`] creates it, and it belongs to
/// that run: it cannot be kept and returned for another job.
#[must_use = "return it from the function around the job"]
pub struct JobRan<'n> {
    end: &'n Result<JobOutput, JobError>,
    /// Makes the lifetime invariant, so that it fits no other run.
    brand: PhantomData<Cell<&'n ()>>,
}

impl JobRan<'_> {
    /// Returns how the job ended. It cannot be changed.
    pub fn outcome(&self) -> JobEnd<'_> {
        match self.end {
            Ok(output) => JobEnd::Finished(output.text.as_deref()),
            Err(error) => match &error.decision {
                RequestedEnding::Interrupted(interrupted) => JobEnd::Interrupted(*interrupted),
                RequestedEnding::Snooze(delay) => JobEnd::Snoozed(*delay),
                RequestedEnding::Park(wait) => JobEnd::Waits(&wait.step),
                RequestedEnding::Discard => JobEnd::Discarded(error),
                _ if error.is_panic() => JobEnd::Panicked(error),
                _ => JobEnd::Failed(error),
            },
        }
    }
}

impl fmt::Debug for JobRan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobRan").field(&self.outcome()).finish()
    }
}

/// How the code of a job ended, before its policy decides what happens next.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum JobEnd<'a> {
    /// The job returned a value: this one, as JSON. `None` for `()`, and for a value that is not
    /// kept because it is too large.
    Finished(Option<&'a str>),
    /// The job returned this error, or its arguments could not be decoded. It may be retried.
    Failed(&'a JobError),
    /// The job, or a function further inside, panicked.
    Panicked(&'a JobError),
    /// The job asked to end without a failure; see [`JobError::discard`].
    Discarded(&'a JobError),
    /// The job asked to run again after this delay; see [`JobError::snooze`].
    Snoozed(Duration),
    /// The job waits at this step, and runs again when the wait is over; see
    /// [`Context::pause_for`](crate::Context::pause_for).
    Waits(&'a str),
    /// The job stopped because it was told to.
    Interrupted(Interrupted),
}

/// Performs a job with these functions around it, the first one outermost.
pub(crate) fn perform<'f>(
    around: &[Arc<Around>],
    run: &Run,
    body: &mut (dyn FnMut() -> Result<JobOutput, JobError> + 'f),
) -> Result<JobOutput, JobError> {
    let Some((first, rest)) = around.split_first() else {
        return body();
    };
    let end = OnceCell::new();
    let call = || {
        let next = Next {
            rest,
            run,
            body: &mut *body,
            end: &end,
        };
        let mut cx = Context::new(&NO_STATE, run);
        cx.is_around = true;
        let _ = first(&cx, next);
    };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(()) => end.into_inner().unwrap_or_else(|| Err(not_performed())),
        Err(payload) => Err(panicked(payload)),
    }
}

/// The types rule this out.
fn not_performed() -> JobError {
    JobError::new("not_performed", "a function around the job did not run it")
}
