//! What interrupts a run, and what it reports.

use crate::job::error::Interrupted;
use crate::job::lease::Lease;
use crate::job::running::Live;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals of a process to the jobs it runs.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) live: Arc<Live>,
}

impl Signals {
    /// Whether this interruption was raised for the job, or the job could see its cause.
    ///
    /// A raised one need not hold any longer: a heartbeat may have succeeded in the end.
    pub(crate) fn has_raised(&self, interrupted: Interrupted) -> bool {
        let live = &self.live;
        live.raised.load(Ordering::Relaxed) & interrupted.bit() != 0
            || match interrupted {
                Interrupted::Lost => self.lease.is_lost(),
                Interrupted::Stopping => self.stopping.load(Ordering::Relaxed),
                Interrupted::Cancelled => live.is_cancelled(),
                Interrupted::TimedOut => live.has_timed_out(),
            }
    }
}
