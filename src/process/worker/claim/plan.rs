//! Plans the next claim of a worker: how many jobs, from which queues and positions in them, and
//! how long to wait before it.

use crate::clock;
use crate::db::Refusal;
use crate::db::model::claim::{Begins, ClaimRequest, Claimed, Claims, ClaimsAtGate, NextJobs};
use crate::db::transition::claim;
use crate::event::logging::Subscriber;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::adjust::Tuning;
use crate::process::worker::claim::assigner::Handoff;
use crate::process::worker::claim::claim_gate::{ClaimGate, GateState};
use crate::process::worker::claim::class_filter::{
    ClassFilter, PausedFront, READ_EVERY, SharedClasses,
};
use crate::process::worker::claim::queues::QueueResolver;
use crate::process::worker::claim::scan_cursors::ScanCursors;
use crate::process::worker::pool::{Pool, TOO_LONG};
use crate::process::worker::settings::WorkerSetup;
use crate::queue::QueueSelector;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Plans the claims of a worker.
pub(crate) struct ClaimPlan {
    gate: ClaimGate,
    resolver: QueueResolver,
    cursors: ScanCursors,
    /// Instead of the cursors while classes are paused.
    front: PausedFront,
    /// The classes as this plan has seen them last.
    classes: ClassFilter,
    shared: Arc<SharedClasses>,
    tuning: Arc<Tuning>,
    /// The version of the settings in use.
    tuned: u64,
    next: Option<Arc<NextJobs>>,
    progress: HandoffProgress,
    /// The most jobs that the next claim takes ahead.
    stride: usize,
    polling_interval: Duration,
    pub(crate) until_idle: bool,
}

/// The progress of jobs that were claimed ahead, on their way to the threads.
#[derive(Debug, Default)]
struct HandoffProgress {
    /// The number of jobs that the threads had started at the last check.
    begun: u64,
    /// The time at which that number last grew, or something was claimed ahead.
    at: Option<Instant>,
    /// The time of the last claim ahead.
    ahead_at: Option<Instant>,
}

/// The bounds on the number of jobs that a worker has with its threads, or on their way to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels {
    /// A claim fills up to this number.
    pub(crate) most: usize,
    /// With no more than this number left, the worker claims again.
    pub(crate) low: usize,
}

/// The most jobs that a claim may find, and the number of free threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimSize {
    pub(crate) max_jobs: usize,
    /// The number of free threads.
    pub(crate) idle: usize,
    /// True if so few are claimed ahead that those which run at most once may be among them.
    pub(crate) once: bool,
}

impl ClaimSize {
    /// Returns whether some of the jobs have to wait for a thread.
    fn is_ahead(self) -> bool {
        self.max_jobs > self.idle
    }

    fn begins(self) -> Begins {
        match (self.is_ahead(), self.once) {
            (false, _) => Begins::All,
            (true, false) => Begins::NotCautious,
            (true, true) => Begins::OnceToo,
        }
    }
}

/// The longest wait of a poller that claims nothing, before it checks the gate again.
const GATE_PAUSE: Duration = Duration::from_secs(60);

/// The first pause of a worker that has begun to listen. Each further one is three times as long, up to the
/// polling interval. A job whose transaction was open when the process started to listen has sent no
/// notification; each later one sends it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The most jobs that the first claim after an empty one takes ahead. Each full one doubles it: if many workers are woken
/// for many jobs at once, each has to pass the rows that the others are taking.
const FIRST_STRIDE: usize = 64;

/// More than any claim takes.
const MOST_STRIDE: usize = 1_024;

impl Levels {
    /// Returns the levels of a pool. Nothing is claimed ahead while claims wait in `handoff` that
    /// may start only on a free thread.
    pub(crate) fn of(pool: &Pool, handoff: &Handoff) -> Self {
        if handoff.has_cautious() {
            Self::with_ahead(pool, 0)
        } else {
            Self::by_estimate(pool)
        }
    }

    /// Returns the levels of a pool as far as the time that its jobs take determines them.
    pub(crate) fn by_estimate(pool: &Pool) -> Self {
        Self::with_ahead(pool, pool.prefetch.ahead(pool.occupancy().threads()))
    }

    fn with_ahead(pool: &Pool, ahead: usize) -> Self {
        let threads = pool.occupancy().threads();
        let low = if ahead > 0 {
            threads + ahead / 2
        } else {
            threads - 1
        };
        let most = threads + ahead;
        Levels { most, low }
    }
}

impl ClaimPlan {
    pub(crate) fn new(
        settings: &WorkerSetup,
        tuning: Arc<Tuning>,
        shared: Arc<SharedClasses>,
    ) -> Self {
        ClaimPlan {
            gate: ClaimGate::new(settings.recycle),
            resolver: QueueResolver::new(settings.queues.clone()),
            cursors: ScanCursors::default(),
            front: PausedFront::default(),
            classes: shared.last(),
            shared,
            tuned: tuning.version(),
            tuning,
            next: None,
            progress: HandoffProgress::default(),
            stride: FIRST_STRIDE,
            polling_interval: settings.polling_interval,
            until_idle: settings.until_idle,
        }
    }

    /// Returns whether the worker claims at present.
    pub(crate) fn state(&mut self, stop: &Stop, pool: &Pool, subscriber: &Subscriber) -> GateState {
        self.gate.state(stop, pool, subscriber)
    }

    /// Takes over the settings if they have changed, and returns the queues then.
    pub(crate) fn retune(&mut self) -> Option<Vec<QueueSelector>> {
        let version = self.tuning.version();
        if version == self.tuned {
            return None;
        }
        self.tuned = version;
        let queues = self.tuning.queues();
        self.resolver = QueueResolver::new(queues.clone());
        self.cursors.forget();
        self.next = None;
        Some(queues)
    }

    /// Reads the paused classes, once in a while. Returns `true` if they have changed.
    pub(crate) fn read_pauses(&mut self, session: &mut Session) -> bool {
        let now = self.shared.refreshed(session);
        let has_changed = now.version() != self.classes.version();
        if has_changed {
            self.classes = now.clone();
            self.cursors.forget();
            self.front.forget();
            self.next = None;
        }
        has_changed
    }

    pub(crate) fn classes(&self) -> &ClassFilter {
        &self.classes
    }

    /// Makes the next claim look at all ready jobs.
    pub(crate) fn forget_cursors(&mut self) {
        self.cursors.forget();
    }

    /// Makes the next claim look at all ready jobs behind those of paused classes too.
    pub(crate) fn forget_front(&mut self) {
        self.front.forget();
    }

    /// Returns how long a worker that claims nothing waits before it checks again.
    pub(crate) fn gate_pause(&self) -> Duration {
        self.gate.patience(GATE_PAUSE)
    }

    /// Returns how many jobs to claim while the threads have `busy` jobs, or `None` if those are
    /// enough.
    pub(crate) fn max_jobs(&self, pool: &Pool, handoff: &Handoff, busy: usize) -> Option<usize> {
        let levels = Levels::of(pool, handoff);
        let most = levels.most.saturating_sub(busy);
        let most = most.min(pool.occupancy().idle() + self.stride);
        let max_jobs = self.gate.remaining(most);
        (busy <= levels.low && max_jobs > 0).then_some(max_jobs)
    }

    /// Claims up to `size.max_jobs` jobs for a process, from its queues in their order.
    pub(crate) fn claim(
        &mut self,
        session: &mut Session,
        process_id: i64,
        size: ClaimSize,
    ) -> Result<Claims, Duration> {
        let (resolver, cursors) = (&mut self.resolver, &mut self.cursors);
        let mut front = (self.classes.is_any_paused()).then_some(&mut self.front);
        let classes = self.classes.open();
        let begins = size.begins();
        // Long jobs are claimed one by one, and exactly in their order.
        cursors.begin(size.is_ahead());
        let wanted_after = session.wanted.claim();
        let started = clock::instant();
        let found = session.run("claim jobs", |conn| {
            resolver.claim_from_queues(
                conn,
                size.max_jobs,
                wanted_after,
                |conn, queues, max_jobs| {
                    let want = ClaimRequest {
                        process_id,
                        queues,
                        classes,
                        max_jobs,
                        begins,
                        from: &[],
                        wanted_after,
                    };
                    if let Some(front) = &mut front {
                        return front.claim(conn, &want);
                    }
                    let from = &cursors.from(queues);
                    claim::claim(conn, &ClaimRequest { from, ..want })
                },
            )
        });
        match &found {
            Ok(_) => session.wanted.suspect(started.elapsed()),
            Err(_) if session.refusal() == Some(Refusal::Busy) => self.cursors.give_up(),
            Err(_) => {}
        }
        found
    }

    /// Returns what may be claimed when a limited job has finished. Nothing if the number of jobs
    /// is limited, which only the poller counts.
    pub(crate) fn next_jobs(&mut self) -> Option<Arc<NextJobs>> {
        if self.gate.counts_jobs() {
            return None;
        }
        let known = self.next.as_ref();
        if !known.is_some_and(|next| self.resolver.is_at(&next.queues)) {
            let next = self.resolver.few().map(|queues| NextJobs {
                queues,
                classes: self.classes.open().to_vec(),
            });
            self.next = next.map(Arc::new);
        }
        self.next.clone()
    }

    /// Returns the jobs that the process claims of those which its promotion lets through, after a claim that has found so many. None
    /// if the number of jobs is limited.
    pub(crate) fn at_gate(
        &mut self,
        process_id: i64,
        size: ClaimSize,
        found: usize,
    ) -> Option<ClaimsAtGate> {
        let most = match size.begins() {
            Begins::All | Begins::OnceToo => size.max_jobs,
            // They are marked as started, so that a thread must be free for each.
            Begins::NotCautious => size.idle,
        };
        Some(ClaimsAtGate {
            process_id,
            next: self.next_jobs()?,
            most: most.saturating_sub(found),
            is_ahead: size.is_ahead(),
        })
    }

    /// Notes how many jobs the process has claimed with those that its promotion has let through.
    pub(crate) fn note_at_gate(&mut self, jobs: usize, size: ClaimSize) {
        self.note_ahead(jobs, size);
        if jobs >= size.max_jobs {
            self.stride = self.stride.max(2 * size.max_jobs).min(MOST_STRIDE);
        }
    }

    fn note_ahead(&mut self, jobs: usize, size: ClaimSize) {
        if jobs > size.idle {
            self.progress.ahead_at = Some(clock::instant());
        }
    }

    /// Notes what a claim found. Returns `true` if there may be more.
    pub(crate) fn note_claimed(&mut self, jobs: &[Arc<Claimed>], size: ClaimSize) -> bool {
        self.note_ahead(jobs.len(), size);
        self.gate.count(jobs.len());
        if self.classes.is_any_paused() {
            return !jobs.is_empty();
        }
        let is_full = jobs.len() >= size.max_jobs;
        self.stride = match is_full {
            true => (self.stride * 2).min(MOST_STRIDE),
            false => FIRST_STRIDE,
        };
        let there_is_more = is_full || self.cursors.passed_some();
        self.cursors.reach(jobs, size.max_jobs);
        there_is_more
    }

    /// Returns how long to wait for new work after the queues were found empty, of which the worker has
    /// heard for this time.
    pub(crate) fn idle_pause(&self, session: &Session, hears_for: Duration) -> Duration {
        let pause = (hears_for * 2).max(FIRST_PAUSE).min(self.polling_interval);
        let mut pause = self.gate.patience(pause);
        // A class that goes on is noticed when the pauses are read again.
        if self.classes.is_any_paused() {
            pause = pause.min(READ_EVERY);
        }
        let passed = [
            self.cursors.patience(),
            session.wanted.patience(),
            session.until_rate(),
        ];
        passed.into_iter().flatten().fold(pause, Duration::min)
    }

    /// Returns how long jobs that were claimed ahead may still wait for a thread, or `None` if none
    /// waits.
    pub(crate) fn patience(&mut self, pool: &Pool, handoff: &Handoff) -> Option<Duration> {
        let busy = pool.occupancy().busy();
        if busy <= pool.occupancy().running() && !handoff.has_cautious() {
            self.progress.at = None;
            return None;
        }
        let begun = pool.begun();
        let progress = &mut self.progress;
        if progress.begun != begun || progress.at.is_none() {
            progress.begun = begun;
            progress.at = Some(clock::instant());
        }
        // If the estimate has changed meanwhile, too many wait already.
        let ahead = match handoff.has_cautious() {
            true => 0,
            false => pool.prefetch.most_ahead(pool.occupancy().threads()),
        };
        let since = if busy > pool.occupancy().threads() + ahead {
            progress.ahead_at
        } else {
            progress.at
        };
        since.map(|since| TOO_LONG.saturating_sub(since.elapsed()))
    }

    /// Notes that the claims that no thread has started are released.
    pub(crate) fn note_given_back(&mut self) {
        self.cursors.forget();
        self.progress = HandoffProgress::default();
    }
}
