//! How long a process trusts its claims.

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a process may trust its claims: until a while after its last
/// heartbeat, counted from when that beat was *sent*, so that a slow answer
/// does not lengthen the trust.
#[derive(Debug)]
pub(crate) struct Lease {
    lasts: Duration,
    /// Milliseconds since boot.
    renewed: AtomicU64,
    lost: AtomicBool,
}

impl Lease {
    /// A lease that begins now.
    pub(crate) fn new(lasts: Duration) -> Self {
        let lease = Lease {
            lasts,
            renewed: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        };
        lease.renew(clock::since_boot());
        lease
    }

    /// A heartbeat that was sent at `sent` has been accepted.
    pub(crate) fn renew(&self, sent: Duration) {
        let sent = u64::try_from(sent.as_millis()).unwrap_or(u64::MAX);
        self.renewed.store(sent, Ordering::Relaxed);
    }

    /// Gives it up for good. False: it was lost before.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::Relaxed)
    }

    /// Whether it was given up or has run out.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) || self.has_run_out()
    }

    /// Whether too much time has passed since the last heartbeat.
    pub(crate) fn has_run_out(&self) -> bool {
        self.age() > self.lasts
    }

    /// How long it lasts without another heartbeat.
    pub(crate) fn left(&self) -> Duration {
        self.lasts.saturating_sub(self.age())
    }

    /// The time since the last heartbeat that was accepted.
    pub(crate) fn age(&self) -> Duration {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        clock::since_boot().saturating_sub(renewed)
    }
}
