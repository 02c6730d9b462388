//! Whether a process is alive, for its service manager.

use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Signs of life of a process, which are reported to its service manager.
///
/// A supervisor is alive while its loop turns, and while the loop waits for the database for at
/// most the alive threshold. Any other process is alive while its last heartbeat, or its start, is
/// younger than its alive threshold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Liveness(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whether the process has a loop that counts its turns.
    has_loop: AtomicBool,
    turns: AtomicU64,
    /// For a loop: since when it waits for the database, which for a while is no reason to restart
    /// it. For any other process: when its last heartbeat succeeded. In milliseconds on the clock
    /// of [`since_boot`](clock::since_boot); 0 means none.
    waiting_since: AtomicU64,
    /// How long `waiting_since` may be in the past, in milliseconds.
    patience: AtomicU64,
    running: AtomicU64,
    places: AtomicU64,
}

impl Liveness {
    /// Counts the process as alive for this long without an answer of the database.
    pub(crate) fn waits_at_most(&self, patience: Duration) {
        self.0.patience.store(millis(patience), Ordering::Relaxed);
    }

    /// Counts the process as alive only while [`turn`](Self::turn) is called.
    pub(crate) fn has_loop(&self) {
        self.0.has_loop.store(true, Ordering::Relaxed);
    }

    /// Counts one more turn of the loop.
    pub(crate) fn turn(&self, running: usize, places: usize) {
        self.0.running.store(running as u64, Ordering::Relaxed);
        self.0.places.store(places as u64, Ordering::Relaxed);
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the process has started, or that a heartbeat succeeded. That does not show
    /// whether a loop turns.
    pub(crate) fn beat(&self) {
        if !self.0.has_loop.load(Ordering::Relaxed) {
            self.rest();
        }
    }

    /// Runs `work`, which may have to wait for the database.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rest();
        let done = work();
        self.0.waiting_since.store(0, Ordering::Relaxed);
        done
    }

    /// Notes that the loop has ended: only leaving the database remains.
    pub(crate) fn rest(&self) {
        let now = millis(clock::since_boot()).max(1);
        self.0.waiting_since.store(now, Ordering::Relaxed);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let since = self.0.waiting_since.load(Ordering::Relaxed);
        let patience = self.0.patience.load(Ordering::Relaxed);
        since != 0 && millis(clock::since_boot()).saturating_sub(since) < patience
    }

    /// Returns how many child programs run, and how many should. Both are 0 before the first turn.
    pub(crate) fn children(&self) -> (u64, u64) {
        let (running, places) = (&self.0.running, &self.0.places);
        let running = running.load(Ordering::Relaxed);
        (running, places.load(Ordering::Relaxed))
    }

    pub(crate) fn status(&self) -> String {
        match self.children() {
            (_, 0) => "running".to_owned(),
            (running, places) => format!("{running} of {places} children run"),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
