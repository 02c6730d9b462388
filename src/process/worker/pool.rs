//! N named job threads.

use crate::clock;
use crate::db::model::claim::{Claimed, Fence, FinishedRow};
use crate::db::model::outcome::{self, Ending};
use crate::db::transition::dispatch;
use crate::db::{Database, own};
use crate::error::ErrorContext;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::JobId;
use crate::job::context::{Run, RunTrace};
use crate::job::perform::{Outcome, perform};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::running::{Live, Signals, Steps};
use crate::process::base::registration::Registration;
use crate::process::base::shares_in_use::SharesInUse;
use crate::process::base::stop::Stop;
use crate::process::worker::completion::{self, CompletedRun, PendingCompletion, WriteHere};
use crate::process::worker::in_flight::{InFlight, Occupancy, ReservedThread};
use crate::process::worker::ranked::RankedReceiver;
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time that a job waits if the database cannot say whether it has expired.
const UNKNOWN_EXPIRY_DELAY: Duration = Duration::from_secs(1);

/// A claim on its way to a thread.
pub(crate) struct Assignment {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
}

/// The state that the threads share.
pub(crate) struct Pool {
    pub(crate) registry: Registry,
    pub(crate) database: Database,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) stop: Stop,
    pub(crate) subscriber: Subscriber,
    pub(crate) prefetch: Prefetch,
    occupancy: Arc<Occupancy>,
    /// The number of jobs that the threads have started.
    begun: AtomicU64,
    completed: Sender<PendingCompletion>,
    write_here: OnceLock<WriteHere>,
    /// Notified when a job with a timeout starts.
    timed: Sender<()>,
    /// The treatment of the rows of finished jobs whose policy does not set it.
    finished: FinishedRow,
    longest_wait: Duration,
    pub(crate) shares: SharesInUse,
}

impl Pool {
    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    /// Creates what job threads share.
    pub(crate) fn new(setup: PoolSetup) -> Arc<Self> {
        Arc::new(Pool {
            registry: setup.registry,
            database: setup.database,
            in_flight: setup.in_flight,
            stop: setup.stop,
            subscriber: setup.subscriber,
            prefetch: Prefetch::default(),
            occupancy: Arc::new(Occupancy::new(setup.rested)),
            begun: AtomicU64::new(0),
            completed: setup.completed,
            write_here: OnceLock::new(),
            timed: setup.timed,
            finished: setup.finished,
            longest_wait: setup.longest_wait,
            shares: setup.shares,
        })
    }

    /// Returns how many jobs the threads have started so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns how many outcomes the completer has not received yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.completed.len()
    }

    /// Performs jobs until there are no more, or the thread is dismissed.
    pub(crate) fn work(&self, assignments: &RankedReceiver<Assignment>) {
        while let Some(assignment) = assignments.next() {
            // Jobs that a stop finds on their way to a thread are released instead.
            if !self.stop.is_stopped()
                && let Some(live) = self.in_flight.start(assignment.job.claim_id)
            {
                self.begun.fetch_add(1, Ordering::Relaxed);
                let completed = self.perform(assignment, live);
                let keeps_thread = completed.thread.is_some();
                self.complete(completed);
                if keeps_thread {
                    continue;
                }
            }
            self.occupancy.rest();
        }
    }

    /// Lets the threads write outcomes.
    pub(crate) fn let_write(&self, write_here: WriteHere) {
        let _ = self.write_here.set(write_here);
    }

    /// Passes an outcome to the completer, which writes those of all threads together. That of a limited job is written here if
    /// no other is under way.
    fn complete(&self, run: CompletedRun) {
        let is_alone = run.thread.is_some() && self.occupancy.busy() == 1;
        let is_next = is_alone && self.completed.is_empty() && !self.stop.is_stopped();
        let left = match self.write_here.get().filter(|_| is_next) {
            Some(write_here) => write_here(run),
            None => Some(completion::pending(run)),
        };
        if let Some(pending) = left {
            // The send fails only without a completer, and then the process ends.
            let _ = self.completed.send(pending);
        }
    }

    pub(crate) fn perform(&self, assignment: Assignment, live: Arc<Live>) -> CompletedRun {
        let job = &assignment.job;
        let run = self.prepare(&assignment, &live);
        if let Some(ending) = self.expiry_of(&assignment.job, &run) {
            return self.completed(
                assignment,
                live,
                &run,
                Outcome::Ended(ending),
                Duration::ZERO,
            );
        }
        let time_limit = run.policy.time_limit();
        self.subscriber.emit(&Event::Started {
            job: JobId(job.job_id),
            class: &job.class_name,
            queue: &job.queue_name,
            attempt: run.attempt,
            claim: job.claim_id,
        });
        let begun = live.begin(time_limit);
        if time_limit.is_some() {
            // A full channel holds a notification that the timeouts thread has yet to read.
            let _ = self.timed.try_send(());
        }
        let outcome = perform(&self.registry, &job.arguments, &run);
        let ran = begun.elapsed();
        self.prefetch.note(ran);
        if job.has_share {
            self.shares.note_time(job.job_id, ran);
        }
        live.end();
        self.completed(assignment, live, &run, outcome, ran)
    }

    fn completed(
        &self,
        assignment: Assignment,
        live: Arc<Live>,
        run: &Run,
        outcome: Outcome,
        ran: Duration,
    ) -> CompletedRun {
        let is_limited = assignment.job.is_limited;
        CompletedRun {
            thread: is_limited.then(|| ReservedThread::new(&self.occupancy)),
            job: assignment.job,
            registration: assignment.registration,
            outcome,
            ran,
            finished: run.finished,
            keep_result: run.policy.keep_result,
            last_retry: run.policy.last_retry(run.enqueued_at, run.scheduled_at),
            live,
        }
    }

    /// Returns how a job ends that must not start, because it has expired or the database cannot
    /// say whether it has. Only jobs with an expiry cost a statement.
    fn expiry_of(&self, job: &Claimed, run: &Run) -> Option<Ending> {
        // A job that is left to other programs does not start here.
        if !job.may_expire() || !self.registry.can_perform(run) {
            return None;
        }
        let connection = self.database.get();
        let expired = connection.and_then(|mut conn| {
            dispatch::has_expired(&mut own(&mut conn), job.job_id)
                .during("look for the expiry of a job")
        });
        match expired {
            Ok(false) => None,
            Ok(true) => Some(Ending::Expire(outcome::expired())),
            Err(error) => {
                let (class, queue, claim) = (&*job.class_name, &*job.queue_name, job.claim_id);
                let (job, attempt) = (job.job_id, run.attempt);
                log::warn!(job, class, queue, attempt, claim; "{error}; job {job} is given back");
                Some(Ending::Snooze(UNKNOWN_EXPIRY_DELAY))
            }
        }
    }

    /// Returns the context in which a job is performed.
    fn prepare(&self, assignment: &Assignment, live: &Arc<Live>) -> Run {
        let job = &assignment.job;
        let policy = policy(&self.registry, job);
        let finished = self.finished(&policy);
        Run {
            job: Arc::clone(job),
            policy,
            job_id: job.job_id,
            fence: Fence {
                process_id: assignment.registration.id,
                claim_id: job.claim_id,
            },
            batch_id: job.batch_id,
            attempt: job.attempt(),
            enqueued_at: job.created_at,
            scheduled_at: job.scheduled_at,
            trace: RunTrace::of(job, self.subscriber.logs_messages()),
            signals: Signals {
                stopping: self.stop.flag(),
                lease: Arc::clone(&assignment.registration.lease),
                live: Arc::clone(live),
            },
            database: self.database.clone(),
            finished,
            steps: Steps::default(),
            longest_wait: self.longest_wait,
        }
    }

    fn finished(&self, policy: &Policy) -> FinishedRow {
        match policy.keep_finished {
            Some(true) => FinishedRow::Keep,
            Some(false) => FinishedRow::Delete,
            None => self.finished,
        }
    }
}

/// Returns the policy of a claimed job, with the defaults of its type and the program.
pub(crate) fn policy(registry: &Registry, job: &Claimed) -> Policy {
    let stored = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
    registry.complete(&job.class_name, stored)
}

/// The parts that a pool needs to start.
pub(crate) struct PoolSetup {
    pub(crate) registry: Registry,
    pub(crate) database: Database,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) stop: Stop,
    pub(crate) subscriber: Subscriber,
    pub(crate) rested: Sender<()>,
    pub(crate) completed: Sender<PendingCompletion>,
    pub(crate) timed: Sender<()>,
    pub(crate) finished: FinishedRow,
    pub(crate) longest_wait: Duration,
    pub(crate) shares: SharesInUse,
}

// --- Measures this worker's jobs, and so how many it may claim ahead ---

/// The estimated time of a job. It grows quickly and shrinks slowly, because a job that is claimed
/// too early is not available to other workers.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// In nanoseconds. Threads that write at the same time may lose a measurement.
    guess: AtomicU64,
    /// The mean time of the last jobs, in nanoseconds. One that was interrupted counts little.
    mean: AtomicU64,
    /// Until when nothing is claimed ahead, in nanoseconds since boot.
    paused_until: AtomicU64,
    /// The usual time of a claim, in nanoseconds.
    claiming: AtomicU64,
    /// The number of an [`AheadOf`].
    ahead_of: AtomicU8,
}

/// Until something is measured, jobs count as long.
const UNKNOWN: Duration = Duration::from_secs(1);

/// The most work that a worker may hold before a thread starts it, as running time for each thread.
/// A claim and the outcomes before it take some milliseconds, during which no thread may run out of
/// jobs.
pub(crate) const WINDOW: Duration = Duration::from_millis(16);

/// So many times as long as a claim takes is the window, if that is more: the database is far away, or busy because many
/// processes claim their jobs one by one. Then each claims more jobs at once, and less often.
const CLAIMS: u32 = 8;

/// The longest window.
const WIDEST: Duration = Duration::from_millis(80);

/// Shorter jobs are done sooner by a thread that is awake than by one that is to be woken.
const SHORT: Duration = Duration::from_micros(50);

/// Larger claims are not cheaper.
const MOST: usize = 1_000;

/// The same as [`WINDOW`] while jobs that run at most once, or have passed a line, are claimed. These are marked as started by
/// their claim.
const BRIEF: Duration = Duration::from_millis(2);

/// Jobs of tenants that are not shorter make another tenant wait if many are claimed ahead.
const BRIEF_JOB: Duration = Duration::from_millis(1);

/// The number of jobs over which a mean is taken.
const MEAN_OF: u64 = 64;

/// The same as [`MOST`]: all that run at most once fail if the process dies, and a rate counts starts a little early.
const FEW_ONCE: usize = 100;
const FEW_OF_RATES: usize = 500;

/// The jobs among the last that were claimed of which the fewest may be claimed ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum AheadOf {
    AnyJobs,
    Shares,
    Rates,
    AtMostOnce,
}

impl AheadOf {
    fn job(job: &Claimed) -> Self {
        match job {
            job if job.at_most_once => AheadOf::AtMostOnce,
            job if job.has_rate => AheadOf::Rates,
            job if job.has_share => AheadOf::Shares,
            _ => AheadOf::AnyJobs,
        }
    }

    fn of_number(number: u8) -> Self {
        let all = [AheadOf::AnyJobs, AheadOf::Shares, AheadOf::Rates];
        let found = all.into_iter().find(|one| *one as u8 == number);
        found.unwrap_or(AheadOf::AtMostOnce)
    }
}

/// Claims that no thread has started after this long are released.
pub(crate) const TOO_LONG: Duration = Duration::from_millis(50);

impl Default for Prefetch {
    fn default() -> Self {
        Prefetch {
            guess: AtomicU64::new(nanos(UNKNOWN)),
            mean: AtomicU64::new(nanos(UNKNOWN)),
            paused_until: AtomicU64::new(0),
            claiming: AtomicU64::new(0),
            ahead_of: AtomicU8::new(AheadOf::AnyJobs as u8),
        }
    }
}

impl Prefetch {
    /// Takes the duration of a claim that found jobs into its estimate. Only the poller calls it.
    pub(crate) fn note_claim(&self, took: Duration) {
        let usual = self.claiming.load(Ordering::Relaxed);
        let next = usual - usual / 8 + nanos(took) / 8;
        self.claiming.store(next, Ordering::Relaxed);
    }

    fn window(&self) -> Duration {
        let claim = Duration::from_nanos(self.claiming.load(Ordering::Relaxed));
        (claim * CLAIMS).clamp(WINDOW, WIDEST)
    }

    /// Takes the duration of a job into the estimate.
    pub(crate) fn note(&self, ran: Duration) {
        let (guess, ran) = (self.guess.load(Ordering::Relaxed), nanos(ran));
        let mean = self.mean.load(Ordering::Relaxed);
        let mean = mean - mean / MEAN_OF + ran / MEAN_OF;
        self.mean.store(mean, Ordering::Relaxed);
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

    /// Notes what was claimed.
    pub(crate) fn note_claimed(&self, jobs: &[Arc<Claimed>]) {
        if let Some(of) = jobs.iter().map(|job| AheadOf::job(job)).max() {
            self.ahead_of.store(of as u8, Ordering::Relaxed);
        }
    }

    fn ahead_of(&self) -> AheadOf {
        AheadOf::of_number(self.ahead_of.load(Ordering::Relaxed))
    }

    /// Returns whether so few are claimed ahead that those which run at most once, or have a rate, may be among them.
    pub(crate) fn is_cautious(&self) -> bool {
        self.ahead_of() > AheadOf::AnyJobs
    }

    /// Returns whether jobs take less time than waking a thread.
    pub(crate) fn are_short(&self) -> bool {
        self.guess.load(Ordering::Relaxed) < nanos(SHORT)
    }

    /// Returns how many jobs may be claimed beyond one for each thread.
    pub(crate) fn ahead(&self, threads: usize) -> usize {
        let paused_until = self.paused_until.load(Ordering::Relaxed);
        if paused_until > 0 && nanos(clock::since_boot()) < paused_until {
            return 0;
        }
        self.within(self.window(), threads)
    }

    /// Returns the most that may have been claimed ahead, whatever the claims took.
    pub(crate) fn most_ahead(&self, threads: usize) -> usize {
        self.within(WIDEST, threads)
    }

    /// Returns how many jobs the threads start within a time.
    fn within(&self, time: Duration, threads: usize) -> usize {
        let guess = self.guess.load(Ordering::Relaxed);
        let mean = guess.min(self.mean.load(Ordering::Relaxed));
        let (time, each, most) = match self.ahead_of() {
            AheadOf::AnyJobs => (time, guess, MOST),
            AheadOf::Shares if mean < nanos(BRIEF_JOB) => (time.min(WINDOW), mean, MOST),
            AheadOf::Shares | AheadOf::Rates => (time.min(BRIEF), mean, FEW_OF_RATES),
            AheadOf::AtMostOnce => (time.min(BRIEF), guess, FEW_ONCE),
        };
        let jobs = nanos(time).saturating_mul(threads as u64) / each.max(1);
        usize::try_from(jobs).unwrap_or(most).min(most)
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
    fn more_is_claimed_ahead_where_claims_take_long() {
        let prefetch = Prefetch::default();
        for _ in 0..400 {
            prefetch.note(9 * MS);
            prefetch.note_claim(MS);
        }
        assert_eq!(prefetch.ahead(1), 1);
        (0..100).for_each(|_| prefetch.note_claim(6 * MS));
        assert_eq!(prefetch.ahead(1), 5);
        (0..100).for_each(|_| prefetch.note_claim(1_000 * MS));
        assert_eq!((prefetch.ahead(1), prefetch.most_ahead(1)), (8, 8));
        (0..100).for_each(|_| prefetch.note_claim(MS));
        assert_eq!((prefetch.ahead(1), prefetch.most_ahead(1)), (1, 8));
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
