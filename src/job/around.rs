//! Code that runs around every job of a registry.

use crate::db::conn::typed::take_failed_start;
use crate::job::context::{Context, Run};
use crate::job::error::{Interrupted, JobError, JobOutput, PANIC, RequestedEnding};
use crate::job::running::ignored;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
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
                RequestedEnding::Snooze(delay) | RequestedEnding::RateLimited(delay) => {
                    JobEnd::Snoozed(*delay)
                }
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

/// The end of a job's code, before the job's policy decides what happens next.
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

// --- Runs the code of users, and catches its panics ---

/// The state of code that has none.
pub(crate) static NO_STATE: () = ();

/// Runs the code of a job. A panic is an error like any other, and an interruption counts as one only
/// if it was raised for the job.
pub(crate) fn caught(
    run: &Run,
    body: impl FnOnce() -> Result<JobOutput, JobError>,
) -> Result<JobOutput, JobError> {
    // Of an earlier job.
    take_failed_start();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(output)) => match run.steps.parked_at() {
            Some(step) => Err(ignored(&step)),
            None => Ok(output),
        },
        Ok(Err(error)) => {
            let error = error.heed(|interrupted| run.signals.has_raised(interrupted));
            // The COMMIT of its `finish_in`, perhaps, or the start of the transaction before that.
            Err(if run.signals.live.ends_itself() || take_failed_start() {
                error.in_own_transaction()
            } else {
                error
            })
        }
        Err(payload) => Err(panicked(payload)),
    }
}

thread_local! {
    static PERFORMING: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls a function whose panics are caught, and reported as the failure of a job.
pub(crate) fn performing<R>(function: impl FnOnce() -> R) -> R {
    note_panics();
    PERFORMING.set(true);
    let result = function();
    PERFORMING.set(false);
    result
}

/// Forgets the location of a panic that an earlier job has caught itself: a panic that is only
/// resumed records no new one.
pub(crate) fn forget_location() {
    PANICKED_AT.take();
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
                let location = info.location().map(ToString::to_string);
                PANICKED_AT.with_borrow_mut(|noted| *noted = location);
            } else {
                previous(info);
            }
        }));
    });
}

pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JobError {
    // `&*`: a `&Box<dyn Any>` would itself be taken for the payload.
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| (*payload).downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the panic had no message".to_owned());
    // The payload's own destructor may panic as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    let mut error = JobError::new(PANIC, message);
    error.location = PANICKED_AT.take();
    error
}
