//! How long a process relies on its claims.

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a process may rely on its claims: for a limited time after its last heartbeat.
///
/// The time counts from when that heartbeat was *sent*, so that a slow answer does not extend it.
#[derive(Debug)]
pub(crate) struct Lease {
    lasts: Duration,
    /// Milliseconds since boot.
    renewed: AtomicU64,
    lost: AtomicBool,
}

impl Lease {
    /// Creates a lease that starts now.
    pub(crate) fn new(lasts: Duration) -> Self {
        let lease = Lease {
            lasts,
            renewed: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        };
        lease.renew(clock::since_boot());
        lease
    }

    /// Records that a heartbeat sent at `sent` was accepted.
    pub(crate) fn renew(&self, sent: Duration) {
        let sent = u64::try_from(sent.as_millis()).unwrap_or(u64::MAX);
        self.renewed.store(sent, Ordering::Relaxed);
    }

    /// Gives the lease up permanently. Returns `false` if it was lost before.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::Relaxed)
    }

    /// Whether it was given up or has run out.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) || self.has_run_out()
    }

    /// Whether the last heartbeat is too long ago.
    pub(crate) fn has_run_out(&self) -> bool {
        self.age() > self.lasts
    }

    /// Returns how long it lasts without another heartbeat.
    pub(crate) fn left(&self) -> Duration {
        self.lasts.saturating_sub(self.age())
    }

    /// Returns the time since the last accepted heartbeat.
    pub(crate) fn age(&self) -> Duration {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        clock::since_boot().saturating_sub(renewed)
    }
}
