//! Whether a database is away: then one attempt a second is made, and everything else fails at once.

use crate::clock;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing is tried after a failed attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// How often it is logged that it is still away.
const LOGGED: Duration = Duration::from_secs(10);

/// The state of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Away>>);

#[derive(Debug, Clone)]
struct Away {
    since: Instant,
    tried_at: Instant,
    /// When it was logged that it is away.
    logged_at: Instant,
    reason: String,
    /// Whether an attempt is under way.
    is_tried: bool,
}

/// An attempt that is under way.
pub(crate) struct DatabaseAttempt<'o>(&'o Outage);

impl Outage {
    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if the database is away, and was tried a moment ago, or is being tried.
    pub(crate) fn attempt(&self, now: Instant) -> Option<DatabaseAttempt<'_>> {
        if let Some(away) = self.away().as_mut() {
            if away.is_tried || now.saturating_duration_since(away.tried_at) < PAUSE {
                return None;
            }
            (away.tried_at, away.is_tried) = (now, true);
        }
        Some(DatabaseAttempt(self))
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

impl DatabaseAttempt<'_> {
    pub(crate) fn succeeded(self) {
        if let Some(away) = self.0.away().take() {
            let seconds = clock::instant()
                .saturating_duration_since(away.since)
                .as_secs();
            log::info!("web: the database answers again, after {seconds} s");
        }
    }

    pub(crate) fn failed(self, reason: &str, now: Instant) {
        let mut away = self.0.away();
        let is_old = |away: &Away| now.saturating_duration_since(away.logged_at) >= LOGGED;
        if away.as_ref().is_none_or(is_old) {
            log::warn!("web: the database does not answer: {reason}");
        }
        let known = away.as_ref().filter(|away| !is_old(away));
        *away = Some(Away {
            since: away.as_ref().map_or(now, |away| away.since),
            logged_at: known.map_or(now, |away| away.logged_at),
            tried_at: now,
            reason: reason.to_owned(),
            is_tried: false,
        });
    }
}

impl Drop for DatabaseAttempt<'_> {
    fn drop(&mut self) {
        if let Some(away) = self.0.away().as_mut() {
            away.is_tried = false;
        }
    }
}

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct SetOnce(std::sync::atomic::AtomicBool);

impl SetOnce {
    pub(crate) fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
