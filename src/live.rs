//! What a running job and those who watch over it tell each other.

use std::sync::atomic::{AtomicBool, Ordering};

/// One run, from its claim to its end.
#[derive(Debug, Default)]
pub(crate) struct Live {
    cancelled: AtomicBool,
}

impl Live {
    /// Somebody has asked for the job to be cancelled.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
