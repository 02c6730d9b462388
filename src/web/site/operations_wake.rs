//! Wakes the thread that runs operations.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Wakes the thread: there is an operation, or a stop.
pub(crate) type OperationsWake = Sender<()>;

/// Returns a way to wake the thread, and what the thread waits on.
pub(crate) fn wake() -> (OperationsWake, Receiver<()>) {
    // One that is not yet received is as good as many.
    bounded(1)
}
