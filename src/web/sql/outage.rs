//! Whether a database is away: then one attempt a second is made, and everything else fails at once.

use crate::clock;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing is tried after a failed attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Away>>);

#[derive(Debug, Clone)]
struct Away {
    since: Instant,
    tried_at: Instant,
    reason: String,
}

/// An attempt that is under way.
pub(crate) struct Attempt<'o>(&'o Outage);

impl Outage {
    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if the database is away, and was tried a moment ago.
    pub(crate) fn attempt(&self, now: Instant) -> Option<Attempt<'_>> {
        if let Some(away) = self.away().as_mut() {
            if now.saturating_duration_since(away.tried_at) < PAUSE {
                return None;
            }
            away.tried_at = now;
        }
        Some(Attempt(self))
    }

    /// Returns why the last attempt failed, and nothing while the database answers.
    pub(crate) fn reason(&self) -> String {
        let away = self.away();
        away.as_ref()
            .map_or_else(String::new, |away| away.reason.clone())
    }

    /// Returns for how long the database has been away.
    pub(crate) fn age(&self) -> Option<Duration> {
        let since = self.away().as_ref()?.since;
        Some(clock::instant().saturating_duration_since(since))
    }
}

impl Attempt<'_> {
    pub(crate) fn succeeded(self) {
        *self.0.away() = None;
    }

    pub(crate) fn failed(self, reason: &str, now: Instant) {
        let mut away = self.0.away();
        let since = away.as_ref().map_or(now, |away| away.since);
        *away = Some(Away {
            since,
            tried_at: now,
            reason: reason.to_owned(),
        });
    }
}

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct Once(std::sync::atomic::AtomicBool);

impl Once {
    pub(crate) fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
