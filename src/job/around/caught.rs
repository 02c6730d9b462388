//! Runs the code of users, and catches its panics.

use crate::db::conn::typed::take_failed_start;
use crate::job::context::Run;
use crate::job::error::{JobError, JobOutput, PANIC};
use crate::job::step_memory::ignored;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

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
        Ok(Ok(output)) => match run.steps.waits_at() {
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
pub(crate) fn forget_place() {
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
                let place = info.location().map(ToString::to_string);
                PANICKED_AT.with_borrow_mut(|noted| *noted = place);
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
    error.place = PANICKED_AT.take();
    error
}
