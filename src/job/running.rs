//! The state shared by a running job and the threads that supervise it.

use crate::clock;
use crate::db::model::outcome::Ending;
use crate::db::table::claimed::{Note, Progress};
use crate::job::error::Interrupted;
use crate::job::lease::Lease;
use crate::job::run_log::RunLog;
use crate::job::timeout::Limit;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// One run, from its claim to its end.
#[derive(Debug, Default)]
pub(crate) struct Live {
    cancelled: AtomicBool,
    /// The process is stopping and no longer waits for the job.
    called_off: AtomicBool,
    /// The interruptions that were raised for the job.
    pub(crate) raised: AtomicU8,
    /// This run was ended by the stop of its process.
    is_cut_short: AtomicBool,
    /// When the claim was entered into the memory of its worker.
    entered: Option<Instant>,
    /// Set when the job's code starts.
    begun: OnceLock<Begun>,
    /// The job's code has returned.
    is_over: AtomicBool,
    /// The job's outcome, if its process exits because of it.
    verdict: OnceLock<Ending>,
    /// The job has, or may have, recorded steps.
    has_steps: AtomicBool,
    /// The job ended its claim itself, provided that its transaction was committed.
    ends_itself: AtomicBool,
    progress: Mutex<RunNotes>,
    /// What the job has logged.
    pub(crate) log: RunLog,
    /// The context whose span is that of this run, if there is one.
    #[cfg(feature = "otel")]
    pub(crate) span: OnceLock<opentelemetry::Context>,
    /// For a sleeping job.
    sleep: Mutex<()>,
    woken: Condvar,
}

#[derive(Debug)]
struct Begun {
    thread: Thread,
    at: Instant,
    /// When the timeout is raised, and when the job is stopped by force.
    deadline: Option<Instant>,
    overrun: Option<Instant>,
}

#[derive(Debug, Default)]
struct RunNotes {
    progress: Option<Progress>,
    /// The number of changes; the name of the thread is the first.
    change: u64,
    /// The last change that a heartbeat has stored.
    carried: Option<u64>,
}

/// A note that no heartbeat has stored yet.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) note: Note,
    change: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Creates the run of a claim that is entered now.
    pub(crate) fn entered(now: Instant) -> Self {
        Live {
            entered: Some(now),
            ..Live::default()
        }
    }

    /// Returns how long the claim was in memory before the job's code started. Returns `None` if it
    /// has not started.
    pub(crate) fn waited(&self) -> Option<Duration> {
        let begun = self.begun.get()?;
        Some(
            begun
                .at
                .saturating_duration_since(self.entered.unwrap_or(begun.at)),
        )
    }

    /// Marks the start of the job's code, on this thread.
    pub(crate) fn begin(&self, limit: Option<Limit>) {
        let now = clock::instant();
        let deadline = limit.and_then(|limit| now.checked_add(limit.timeout));
        let overrun = limit.and_then(|limit| deadline?.checked_add(limit.grace));
        let _ = self.begun.set(Begun {
            thread: std::thread::current(),
            at: now,
            deadline,
            overrun,
        });
    }

    /// The job's code has returned.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns how long ago the job's code started.
    pub(crate) fn age(&self) -> Duration {
        self.begun
            .get()
            .map_or(Duration::ZERO, |begun| begun.at.elapsed())
    }

    /// Returns when the job times out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.begun.get()?.deadline
    }

    /// Returns when the process must exit because of this job. Returns `None` once the job has
    /// returned, or that has been decided.
    pub(crate) fn overrun(&self) -> Option<Instant> {
        if self.is_over() || self.verdict().is_some() {
            return None;
        }
        self.begun.get()?.overrun
    }

    /// Records that the job overran its time, with the outcome that is stored with its claim.
    pub(crate) fn decide(&self, verdict: Ending) {
        let _ = self.verdict.set(verdict);
    }

    pub(crate) fn verdict(&self) -> Option<&Ending> {
        self.verdict.get()
    }

    /// Marks that the process is stopping and no longer waits for the job.
    pub(crate) fn call_off(&self) {
        self.called_off.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Marks that this interruption was, or could have been, seen by the job.
    pub(crate) fn raise(&self, interrupted: Interrupted) {
        self.raised.fetch_or(interrupted.bit(), Ordering::Relaxed);
    }

    /// Marks that the stop of the process ended this run.
    pub(crate) fn note_cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// Marks the job as cancelled.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn note_steps(&self) {
        self.has_steps.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_steps(&self) -> bool {
        self.has_steps.load(Ordering::Relaxed)
    }

    pub(crate) fn note_own_end(&self) {
        self.ends_itself.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ends_itself(&self) -> bool {
        self.ends_itself.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, progress: Progress) {
        let mut told = lock(&self.progress);
        if told.progress.as_ref() != Some(&progress) {
            told.progress = Some(progress);
            told.change += 1;
        }
    }

    /// Returns what the next heartbeat stores, or `None` if nothing has changed.
    pub(crate) fn news(&self) -> Option<News> {
        let begun = self.begun.get()?;
        let told = lock(&self.progress);
        (told.carried != Some(told.change)).then(|| News {
            note: Note {
                thread: begun.thread.name().map(str::to_owned),
                progress: told.progress.clone(),
            },
            change: told.change,
        })
    }

    pub(crate) fn carried(&self, news: &News) {
        lock(&self.progress).carried = Some(news.change);
    }

    /// Wakes a sleeping job, so that it checks whether it should stop.
    pub(crate) fn wake(&self) {
        // Locked, so that a job which has checked but does not wait yet is not missed.
        let _sleep = lock(&self.sleep);
        self.woken.notify_all();
    }

    pub(crate) fn has_timed_out(&self) -> bool {
        self.deadline().is_some_and(|at| clock::instant() >= at)
    }

    pub(crate) fn check(&self, lease: &Lease) -> Result<(), Interrupted> {
        let interrupted = if self.called_off.load(Ordering::Relaxed) && !self.has_timed_out() {
            // Before the claim, which such a process gives up.
            Interrupted::Stopping
        } else if lease.is_lost() {
            Interrupted::Lost
        } else if self.is_cancelled() {
            Interrupted::Cancelled
        } else if self.has_timed_out() {
            Interrupted::TimedOut
        } else {
            return Ok(());
        };
        self.raise(interrupted);
        Err(interrupted)
    }

    pub(crate) fn sleep(&self, until: Instant, lease: &Lease) -> Result<(), Interrupted> {
        let mut sleep = lock(&self.sleep);
        loop {
            self.check(lease)?;
            let now = clock::instant();
            if now >= until {
                return Ok(());
            }
            let next = self.deadline().map_or(until, |at| at.min(until));
            // A lease that is renewed meanwhile is checked again.
            let lease_left = lease.left().max(Duration::from_millis(1));
            let pause = next.saturating_duration_since(now).min(lease_left);
            sleep = match self.woken.wait_timeout(sleep, pause) {
                Ok((sleep, _)) => sleep,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::signals::Signals;
    use std::sync::Arc;

    const SECOND: Duration = Duration::from_secs(1);

    fn begun(timeout: Duration) -> Live {
        let live = Live::default();
        live.begin(Some(Limit {
            timeout,
            grace: SECOND,
        }));
        live
    }

    #[test]
    fn a_sleep_ends_at_the_deadline() {
        let (live, lease) = (begun(Duration::from_millis(10)), Lease::new(60 * SECOND));
        let slept = live.sleep(clock::deadline(Duration::MAX), &lease);
        assert_eq!(slept, Err(Interrupted::TimedOut));
        assert_eq!(live.sleep(clock::instant(), &lease), slept);
    }

    #[test]
    fn a_sleep_ends_with_the_lease() {
        let live = Live::default();
        let lease = Lease::new(Duration::from_millis(10));
        let slept = live.sleep(clock::deadline(Duration::MAX), &lease);
        assert_eq!(slept, Err(Interrupted::Lost));
    }

    #[test]
    fn a_sleep_ends_when_a_stop_waits_no_longer() {
        let (live, lease) = (Arc::new(Live::default()), Lease::new(600 * SECOND));
        let other = Arc::clone(&live);
        let stops = std::thread::spawn(move || other.call_off());
        let slept = live.sleep(clock::deadline(Duration::MAX), &lease);
        assert_eq!(slept, Err(Interrupted::Stopping));
        stops.join().unwrap();
        lease.lose();
        assert_eq!(live.check(&lease), Err(Interrupted::Stopping));
    }

    #[test]
    fn a_stop_does_not_hide_that_the_time_was_over() {
        let (live, lease) = (begun(Duration::ZERO), Lease::new(60 * SECOND));
        live.call_off();
        assert_eq!(live.check(&lease), Err(Interrupted::TimedOut));
    }

    #[test]
    fn what_was_raised_counts_when_it_is_over() {
        let signals = Signals {
            stopping: Arc::default(),
            lease: Arc::new(Lease::new(Duration::ZERO)),
            live: Arc::default(),
        };
        clock::nap(Duration::from_millis(2));
        let (live, lease) = (&signals.live, &signals.lease);
        assert_eq!(live.check(lease), Err(Interrupted::Lost));
        lease.renew(clock::since_boot() + 60 * SECOND);
        assert!(!lease.is_lost() && signals.has_raised(Interrupted::Lost));
        for other in [
            Interrupted::Stopping,
            Interrupted::Cancelled,
            Interrupted::TimedOut,
        ] {
            assert!(!signals.has_raised(other), "{other:?}");
        }
        signals.stopping.store(true, Ordering::Relaxed);
        assert!(signals.has_raised(Interrupted::Stopping));
    }

    #[test]
    fn a_sleep_is_as_long_as_was_asked() {
        let (live, lease) = (Live::default(), Lease::new(60 * SECOND));
        let start = clock::instant();
        live.sleep(start + Duration::from_millis(20), &lease)
            .unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let (live, lease) = (Arc::new(Live::default()), Lease::new(600 * SECOND));
        let other = Arc::clone(&live);
        let cancels = std::thread::spawn(move || other.cancel());
        let slept = live.sleep(clock::deadline(Duration::MAX), &lease);
        assert_eq!(slept, Err(Interrupted::Cancelled));
        cancels.join().unwrap();
    }

    #[test]
    fn what_has_returned_overruns_nothing() {
        let live = begun(SECOND);
        assert!(live.overrun().unwrap() - live.deadline().unwrap() == SECOND);
        live.end();
        assert_eq!(live.overrun(), None);
        assert!(begun(Duration::MAX).overrun().is_none());
    }

    #[test]
    fn only_changes_are_news() {
        let live = Live::default();
        assert!(live.news().is_none(), "it has not started");
        live.begin(None);
        let first = live.news().unwrap();
        assert_eq!(first.note.progress, None);
        live.carried(&first);
        assert!(live.news().is_none());
        live.tell(Progress::new(1.0, "a".to_owned()));
        let second = live.news().unwrap();
        live.tell(Progress::new(2.0, "a".to_owned()));
        live.carried(&second);
        let third = live.news().unwrap();
        assert_eq!(
            third.note.progress,
            Some(Progress::new(2.0, "a".to_owned()))
        );
        live.carried(&third);
        live.tell(Progress::new(2.0, "a".to_owned()));
        assert!(live.news().is_none());
    }
}
