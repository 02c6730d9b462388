//! A value that was read, and that several requests use for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The greatest age of a value that is used while a thread reads it anew, or twice its
/// lifetime if that is longer.
const STALE: Duration = Duration::from_secs(10);

/// The pause after a read that took too long, in which no other is tried.
const LATE: Duration = Duration::from_secs(10);

/// After this time, another thread reads it anew: the first has failed.
const RENEWED: Duration = Duration::from_secs(20);

/// The last value, and when it was read.
#[derive(Debug)]
pub(crate) struct Cached<T>(Mutex<RenewalState<T>>);

#[derive(Debug)]
struct RenewalState<T> {
    last: Option<LastRead<T>>,
    /// Since when a thread has been reading it anew.
    renewed_since: Option<Instant>,
    /// The time of the last read that took too long.
    late_at: Option<Instant>,
    /// Changes when what was read before is not valid any more.
    generation: u64,
}

#[derive(Debug)]
struct LastRead<T> {
    value: T,
    read_at: Instant,
    lifetime: Duration,
}

/// The use of a cached value, with its age.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Freshness<T> {
    /// Use it.
    Fresh(T, Duration),
    /// Use it, then read it anew: no other thread does.
    Stale(T, Duration),
    /// A moment ago, reading it took too long.
    Late,
    /// Read it.
    Nothing,
}

/// A read that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartedRead {
    at: Instant,
    generation: u64,
}

impl<T> RenewalState<T> {
    fn is_renewed(&self, now: Instant) -> bool {
        self.renewed_since
            .is_some_and(|at| now.saturating_duration_since(at) < RENEWED)
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached(Mutex::new(RenewalState {
            last: None,
            renewed_since: None,
            late_at: None,
            generation: 0,
        }))
    }
}

impl<T> Cached<T> {
    fn state(&self) -> MutexGuard<'_, RenewalState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read a value.
    pub(crate) fn begin(&self, now: Instant) -> StartedRead {
        StartedRead {
            at: now,
            generation: self.state().generation,
        }
    }

    /// Returns whether the caller is to read the value anew, as no other thread does.
    pub(crate) fn claim_renewal(&self, now: Instant) -> bool {
        let mut state = self.state();
        let is_renewed = state.is_renewed(now);
        if !is_renewed {
            state.renewed_since = Some(now);
        }
        !is_renewed
    }

    /// Lets another thread read the value anew: the caller does not.
    pub(crate) fn release_renewal(&self) {
        self.state().renewed_since = None;
    }

    /// Ends a read that took too long, or failed.
    pub(crate) fn failed(&self, now: Instant, is_late: bool) {
        let mut state = self.state();
        state.renewed_since = None;
        state.late_at = is_late.then_some(now);
    }

    /// Forgets the value, also if it is being read.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        state.last = None;
        state.late_at = None;
        state.generation += 1;
    }
}

impl<T: Clone> Cached<T> {
    /// Returns the value and its age, if it is younger than `most`.
    pub(crate) fn get(&self, now: Instant, most: Duration) -> Option<(T, Duration)> {
        let state = self.state();
        let last = state.last.as_ref()?;
        let age = now.saturating_duration_since(last.read_at);
        (age < most).then(|| (last.value.clone(), age))
    }

    /// Returns what is there of the value.
    pub(crate) fn lookup(&self, now: Instant) -> Freshness<T> {
        let mut state = self.state();
        let is_renewed = state.is_renewed(now);
        let since = |at: Instant| now.saturating_duration_since(at);
        let is_late = state.late_at.is_some_and(|at| since(at) < LATE);
        let found = state.last.as_ref().and_then(|last| {
            let age = since(last.read_at);
            let stale = match last.lifetime {
                Duration::ZERO => Duration::ZERO,
                lifetime => STALE.max(2 * lifetime),
            };
            (age < stale).then(|| (last.value.clone(), age, age < last.lifetime))
        });
        match found {
            Some((value, age, is_fresh)) if is_fresh || is_renewed || is_late => {
                Freshness::Fresh(value, age)
            }
            Some((value, age, _)) => {
                state.renewed_since = Some(now);
                Freshness::Stale(value, age)
            }
            None if is_late => Freshness::Late,
            None => Freshness::Nothing,
        }
    }

    /// Ends a read. The value is fresh for its lifetime, counted from the begin.
    pub(crate) fn set(&self, read: StartedRead, value: &T, lifetime: Duration) {
        let mut state = self.state();
        state.renewed_since = None;
        state.late_at = None;
        if state.generation == read.generation {
            state.last = Some(LastRead {
                value: value.clone(),
                read_at: read.at,
                lifetime,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::internal::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_value_is_used_for_its_lifetime_and_once_more_while_one_thread_reads_it_anew() {
        let (cached, start) = (Cached::default(), clock::instant());
        assert_eq!(cached.lookup(start), Freshness::Nothing);
        cached.set(cached.begin(start), &1, 2 * SECOND);
        assert_eq!(cached.lookup(start + SECOND), Freshness::Fresh(1, SECOND));
        let later = start + 3 * SECOND;
        assert_eq!(cached.lookup(later), Freshness::Stale(1, 3 * SECOND));
        assert_eq!(cached.lookup(later), Freshness::Fresh(1, 3 * SECOND));
        cached.set(cached.begin(later), &2, 2 * SECOND);
        assert_eq!(cached.lookup(later + SECOND), Freshness::Fresh(2, SECOND));
        // It was used rarely.
        assert_eq!(cached.lookup(later + STALE), Freshness::Nothing);
    }

    #[test]
    fn what_costs_nothing_is_read_each_time() {
        let (cached, start) = (Cached::default(), clock::instant());
        cached.set(cached.begin(start), &1, Duration::ZERO);
        assert_eq!(cached.lookup(start), Freshness::Nothing);
    }

    #[test]
    fn what_took_too_long_is_not_tried_again_at_once() {
        let (cached, start) = (Cached::default(), clock::instant());
        cached.failed(start, true);
        assert_eq!(cached.lookup(start + SECOND), Freshness::<u8>::Late);
        assert_eq!(cached.lookup(start + LATE), Freshness::Nothing);
        cached.set(cached.begin(start), &1, SECOND);
        assert_eq!(cached.lookup(start + SECOND), Freshness::Stale(1, SECOND));
        cached.failed(start + SECOND, true);
        assert_eq!(
            cached.lookup(start + 2 * SECOND),
            Freshness::Fresh(1, 2 * SECOND)
        );
    }

    #[test]
    fn a_renewal_that_found_no_place_is_asked_for_again() {
        let (cached, start) = (Cached::default(), clock::instant());
        cached.set(cached.begin(start), &1, SECOND);
        let later = start + 2 * SECOND;
        assert!(matches!(cached.lookup(later), Freshness::Stale(..)));
        cached.release_renewal();
        assert!(matches!(cached.lookup(later), Freshness::Stale(..)));
    }

    #[test]
    fn a_thread_that_died_is_replaced() {
        let (cached, start) = (Cached::default(), clock::instant());
        cached.set(cached.begin(start), &1, 40 * SECOND);
        let later = start + 41 * SECOND;
        assert!(matches!(cached.lookup(later), Freshness::Stale(..)));
        assert!(matches!(
            cached.lookup(later + SECOND),
            Freshness::Fresh(..)
        ));
        assert!(matches!(
            cached.lookup(later + RENEWED),
            Freshness::Stale(..)
        ));
    }

    #[test]
    fn what_was_read_before_a_change_is_forgotten() {
        let (cached, start) = (Cached::default(), clock::instant());
        let before = cached.begin(start);
        cached.forget();
        cached.set(before, &1, SECOND);
        assert_eq!(cached.lookup(start), Freshness::Nothing);
    }
}
