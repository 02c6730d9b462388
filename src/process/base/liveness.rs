//! Whether a process is alive, for its service manager.

use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Signs of life of a process, for the thread that tells its service manager.
///
/// A supervisor lives while its loop goes round, and while the loop waits for
/// the database, for at most its alive threshold. Any other process lives while
/// its last heartbeat, or its start, is younger than its alive threshold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Liveness(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// It has a loop that shows whether it goes round.
    has_loop: AtomicBool,
    turns: AtomicU64,
    /// Of a loop: since when it waits for the database, which for a while is no
    /// reason to be started again. Of any other process: when its last
    /// heartbeat got through. Milliseconds on the clock of
    /// [`since_boot`](clock::since_boot), 0 for not.
    waiting_since: AtomicU64,
    /// For how long: milliseconds.
    patience: AtomicU64,
    running: AtomicU64,
    places: AtomicU64,
}

impl Liveness {
    /// Counts as alive for this long without an answer of the database.
    pub(crate) fn waits_at_most(&self, patience: Duration) {
        self.0.patience.store(millis(patience), Ordering::Relaxed);
    }

    /// From now on it lives while [`turn`](Self::turn) is called.
    pub(crate) fn has_loop(&self) {
        self.0.has_loop.store(true, Ordering::Relaxed);
    }

    /// The loop has gone round once more.
    pub(crate) fn turn(&self, running: usize, places: usize) {
        self.0.running.store(running as u64, Ordering::Relaxed);
        self.0.places.store(places as u64, Ordering::Relaxed);
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// The process has started, or a heartbeat has got through. That does not
    /// tell whether a loop goes round.
    pub(crate) fn beat(&self) {
        if !self.0.has_loop.load(Ordering::Relaxed) {
            self.rest();
        }
    }

    /// Does what may have to wait for the database.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rest();
        let done = work();
        self.0.waiting_since.store(0, Ordering::Relaxed);
        done
    }

    /// The loop has ended: what is left is to leave the database.
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

    pub(crate) fn status(&self) -> String {
        let (running, places) = (&self.0.running, &self.0.places);
        match places.load(Ordering::Relaxed) {
            0 => "running".to_owned(),
            places => {
                let running = running.load(Ordering::Relaxed);
                format!("{running} of {places} children run")
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
