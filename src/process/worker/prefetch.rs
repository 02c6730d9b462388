//! Measures how long this worker's jobs take, and so how many it may claim ahead of its threads: as
//! many as these will start within sixteen milliseconds.

use crate::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The estimated time of a job. It grows quickly and shrinks slowly, because a job that is claimed
/// too early is not available to other workers.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// In nanoseconds. Threads that write at the same time may lose a measurement.
    guess: AtomicU64,
    /// Until when nothing is claimed ahead, in nanoseconds since boot.
    paused_until: AtomicU64,
}

/// Until something is measured, jobs count as long.
const UNKNOWN: Duration = Duration::from_secs(1);

/// How much work a worker may hold that no thread has started. A claim and the outcomes before it
/// take some milliseconds, during which no thread may run out of jobs.
pub(crate) const WINDOW: Duration = Duration::from_millis(16);

/// Larger claims are not cheaper.
const MOST: usize = 1_000;

/// Claims that no thread has started after this long are released.
pub(crate) const TOO_LONG: Duration = Duration::from_millis(50);

impl Default for Prefetch {
    fn default() -> Self {
        Prefetch {
            guess: AtomicU64::new(nanos(UNKNOWN)),
            paused_until: AtomicU64::new(0),
        }
    }
}

impl Prefetch {
    /// Takes the duration of a job into the estimate.
    pub(crate) fn note(&self, ran: Duration) {
        let (guess, ran) = (self.guess.load(Ordering::Relaxed), nanos(ran));
        let next = if ran > guess {
            guess.midpoint(ran)
        } else {
            guess - (guess - ran) / 8
        };
        if next != guess {
            self.guess.store(next, Ordering::Relaxed);
        }
    }

    /// Raises the estimate, because jobs take longer at present.
    pub(crate) fn slow_down(&self) {
        self.guess.fetch_max(nanos(UNKNOWN), Ordering::Relaxed);
    }

    /// Claims nothing ahead for a moment, because another worker is idle.
    pub(crate) fn pause(&self) {
        let until = nanos(clock::since_boot() + WINDOW);
        self.paused_until.store(until, Ordering::Relaxed);
    }

    /// Returns how many jobs may be claimed beyond one for each thread.
    pub(crate) fn ahead(&self, threads: usize) -> usize {
        let paused_until = self.paused_until.load(Ordering::Relaxed);
        if paused_until > 0 && nanos(clock::since_boot()) < paused_until {
            return 0;
        }
        let guess = self.guess.load(Ordering::Relaxed).max(1);
        let jobs = nanos(WINDOW).saturating_mul(threads as u64) / guess;
        usize::try_from(jobs).unwrap_or(MOST).min(MOST)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_claimed_ahead_of_long_jobs() {
        let prefetch = Prefetch::default();
        assert_eq!(prefetch.ahead(16), 0);
        for _ in 0..200 {
            prefetch.note(1_000 * MS);
        }
        assert_eq!(prefetch.ahead(16), 0);
    }

    #[test]
    fn the_work_ahead_is_the_same_whatever_the_job_takes() {
        for (each, jobs) in [(1, 256), (2, 128), (5, 51), (20, 12), (50, 5)] {
            let prefetch = Prefetch::default();
            for _ in 0..400 {
                prefetch.note(each * MS);
            }
            let ahead = prefetch.ahead(16);
            assert!((jobs - 1..=jobs).contains(&ahead), "{each} ms: {ahead}");
        }
    }

    #[test]
    fn short_ones_are_claimed_ahead_once_they_are_known() {
        let prefetch = Prefetch::default();
        for _ in 0..200 {
            prefetch.note(MS / 1000);
        }
        assert_eq!(prefetch.ahead(1), MOST);
    }

    #[test]
    fn a_long_one_among_them_ends_that() {
        let prefetch = Prefetch::default();
        for _ in 0..200 {
            prefetch.note(MS / 1000);
        }
        prefetch.note(1_000 * MS);
        assert_eq!(prefetch.ahead(16), 0);
        for _ in 0..200 {
            prefetch.note(MS / 1000);
        }
        prefetch.slow_down();
        assert_eq!(prefetch.ahead(16), 0);
    }
}
