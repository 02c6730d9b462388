//! The state shared by a running job and the threads that supervise it.

use crate::clock;
use crate::db::model::outcome::Ending;
use crate::db::table::claimed::{Note, Progress};
use crate::job::error::{Interrupted, JobError};
use crate::job::run_log::RunLog;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// The time at which the claim was entered into the memory of its worker.
    entered: Option<Instant>,
    /// Set when the job's code starts.
    begun: OnceLock<Begun>,
    /// The job's code has returned.
    has_returned: AtomicBool,
    /// The job's outcome, if its process exits because of it.
    verdict: OnceLock<Ending>,
    /// The job has, or may have, recorded steps.
    has_steps: AtomicBool,
    /// The job ended its claim itself, provided that its transaction was committed.
    ends_itself: AtomicBool,
    progress: Mutex<RunNotes>,
    /// The log lines of the job.
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
    /// The times at which the timeout is raised and the job is stopped by force.
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

    /// Marks the start of the job's code, on this thread, and returns its time.
    pub(crate) fn begin(&self, limit: Option<TimeLimit>) -> Instant {
        let now = clock::instant();
        let deadline = limit.and_then(|limit| now.checked_add(limit.timeout));
        let overrun = limit.and_then(|limit| deadline?.checked_add(limit.grace));
        let _ = self.begun.set(Begun {
            thread: std::thread::current(),
            at: now,
            deadline,
            overrun,
        });
        now
    }

    /// The job's code has returned.
    pub(crate) fn end(&self) {
        self.has_returned.store(true, Ordering::Release);
    }

    pub(crate) fn has_returned(&self) -> bool {
        self.has_returned.load(Ordering::Acquire)
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
        if self.has_returned() || self.verdict().is_some() {
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

// --- Signals to a run, and its report ---

/// The signals of a process to the jobs it runs.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) live: Arc<Live>,
}

impl Signals {
    /// Returns true if this interruption was raised for the job, or the job could see its cause.
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

// --- The lease of a process on its claims ---

/// The time for which a process may rely on its claims: a limited one after its last heartbeat.
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

    /// Returns true if it was given up or has run out.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) || self.has_run_out()
    }

    /// Returns true if the last heartbeat is too long ago.
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

// --- The timeout of a run ---

/// The outcome of a job that exceeded its [`timeout`](crate::Policy::timeout).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnTimeout {
    /// The attempt has failed like any other: the job is retried after the back-off, if an attempt
    /// is left. An at-most-once job fails, and so does any whose delivery is not at least once if it
    /// had to be stopped by force.
    #[default]
    Retry,
    /// The job fails, even if attempts are left.
    Fail,
    /// The job is discarded: it has not failed, and is kept like a finished job, with the reason.
    Discard,
}

/// A duration as stored in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(#[serde(with = "crate::job::policy::millis")] pub(crate) Duration);

/// The time after the timeout until the process of a job that continues is stopped.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The time limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    pub timeout: Duration,
    pub(crate) grace: Duration,
}

/// Practically no limit: `Duration::MAX`, shortened to what a column holds.
pub(crate) const NEVER: Duration = Duration::from_millis(u64::MAX);

// --- The steps of a job, as its current run has them ---

/// The steps of a job, as its current run has them.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub(crate) Mutex<Memory>);

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Steps of earlier runs that this run has not reached yet, once they have been read.
    pub(crate) behind: Option<HashMap<String, String>>,
    /// True if a step of an earlier run was found before they were read.
    pub(crate) has_found_some: bool,
    /// Steps that this run has reached.
    pub(crate) passed: HashSet<String>,
    /// The step at which this run has asked to be parked.
    pub(crate) parked_at: Option<String>,
}

impl Steps {
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        let Steps(memory) = self;
        work(&mut memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the step at which the run has asked to be parked, if it has.
    pub(crate) fn parked_at(&self) -> Option<String> {
        self.with(|steps| steps.parked_at.clone())
    }
}

/// The error of a job that goes on after it has asked to wait.
pub(crate) fn ignored(step: &str) -> JobError {
    let message = format!(
        "the job went on after its wait at the step `{step}` had started: return the error of the wait with `?`"
    );
    JobError::new("wait_ignored", message).fail()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::running::Signals;
    use std::sync::Arc;

    const SECOND: Duration = Duration::from_secs(1);

    fn begun(timeout: Duration) -> Live {
        let live = Live::default();
        live.begin(Some(TimeLimit {
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

#[cfg(test)]
mod timeout_tests {
    use super::*;
    use crate::db::model::outcome::Ending;
    use crate::job::error::{Interrupted, JobError};
    use crate::job::policy::Delivery;
    use crate::job::policy::Policy;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_endless_timeout_is_none_stored_or_not() {
        let policy = Policy::new().timeout(Duration::MAX);
        assert_eq!(policy.time_limit(), None);
        let column = policy.to_column().unwrap();
        let read = Policy::of_columns(Some(&column), None, false);
        assert_eq!(read.time_limit(), None);
        let stubborn = read.or(&Policy::new().timeout(SECOND));
        assert_eq!(stubborn.time_limit(), None, "it overrides the type's");
    }

    #[test]
    fn a_column_holds_all_of_it() {
        let policy = Policy::new()
            .timeout(2 * SECOND)
            .timeout_grace(SECOND)
            .on_timeout(OnTimeout::Discard);
        let column = policy.to_column().unwrap();
        assert_eq!(
            column,
            r#"{"timeout":2000,"timeout_grace":1000,"on_timeout":"discard"}"#
        );
        assert_eq!(Policy::of_columns(Some(&column), None, false), policy);
    }

    #[test]
    fn the_policy_decides_what_a_timeout_means() {
        let judge = |policy: &Policy, attempt| {
            policy.judge(attempt, &JobError::from(Interrupted::TimedOut), None)
        };
        let policy = Policy::new().max_attempts(2).timeout(SECOND);
        assert!(
            matches!(judge(&policy, 1), Ending::Retry(failure, _) if failure.kind == "timeout")
        );
        assert!(matches!(judge(&policy, 2), Ending::Fail(_)));
        let fail = policy.clone().on_timeout(OnTimeout::Fail);
        assert!(matches!(judge(&fail, 1), Ending::Fail(_)));
        let discard = policy.clone().on_timeout(OnTimeout::Discard);
        assert!(matches!(judge(&discard, 2), Ending::Discard(_)));
        let once = policy.delivery(Delivery::AtMostOnce);
        assert!(matches!(judge(&once, 1), Ending::Fail(_)));
    }
}
