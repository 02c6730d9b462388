//! Claims as many jobs as there are idle threads, and more if jobs are so short that the threads
//! would wait for the next claim.

use crate::clock;
use crate::db::model::claim::{Claimed, Claims};
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::assigner::Handoff;
use crate::process::worker::claim::claim_gate::{GateState, IdleEnd};
use crate::process::worker::claim::plan::{ClaimPlan, ClaimSize, Levels};
use crate::process::worker::claim::queues::Sharing;
use crate::process::worker::claim::wakeups::{Busyness, Wakeups, Woken, WorkWait};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::pool::Pool;
use crate::process::worker::release;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The loop of a worker that claims.
pub(crate) struct Poller {
    heartbeat: Arc<Heartbeat>,
    in_flight: Arc<InFlight>,
    pool: Arc<Pool>,
    session: Session,
    stop: Stop,
    plan: ClaimPlan,
    handoff: Handoff,
    wakeups: Wakeups,
    sharing: Sharing,
    idle_end: IdleEnd,
    /// The length of the wait for work that is under way.
    pause: Duration,
}

/// Claims on the thread that hears of new work, if the poller waits for that: the job starts sooner than if the poller
/// had to be woken first. Returns `false` if the poller must look.
pub(crate) fn claim_at_once(poller: &Weak<Mutex<Poller>>) -> bool {
    let Some(poller) = poller.upgrade() else {
        return false;
    };
    // If it is locked, the poller does not wait for work.
    let mut poller = poller.try_lock().ok();
    poller
        .as_mut()
        .is_some_and(|poller| poller.claim_for_listener())
}

/// The result of one poll of the queues.
enum PollResult {
    /// As many jobs as idle threads: there may be more.
    Full,
    /// Fewer: the queues are empty except for jobs that other workers hold.
    Drained,
    /// No thread is idle.
    Busy,
    /// The database is away, or the process not registered.
    NotNow(Duration),
}

/// The result of a claim.
struct ClaimedJobs {
    jobs: Vec<Arc<Claimed>>,
    /// True if blocked jobs wait for a promotion.
    is_wanted: bool,
}

/// The number of unsaved outcomes at which nothing more is claimed: if the process dies then, those
/// jobs run once more. Equal to four chunks.
const MOST_UNWRITTEN: usize = 2_000;

/// The pause when the completer is that far behind.
const FOR_THE_COMPLETER: Duration = Duration::from_millis(10);

/// The time after a worker has become idle during which it asks busy ones for their jobs.
const NEWLY: Duration = Duration::from_secs(2);

/// The pause before the next poll of a process that is not registered, or that drains.
const UNREGISTERED: PollResult = PollResult::NotNow(Duration::from_millis(20));

impl Poller {
    pub(crate) fn new(
        context: &ProcessContext,
        heartbeat: &Arc<Heartbeat>,
        handoff: Handoff,
        plan: ClaimPlan,
        wakeups: Wakeups,
    ) -> Self {
        let pool = Arc::clone(handoff.pool());
        Poller {
            heartbeat: Arc::clone(heartbeat),
            in_flight: Arc::clone(&pool.in_flight),
            session: Session::of_loop(context, "poller"),
            stop: context.stop.clone(),
            idle_end: IdleEnd::new(plan.until_idle),
            plan,
            handoff,
            wakeups,
            sharing: Sharing::default(),
            pause: Duration::ZERO,
            pool,
        }
    }

    /// Runs until stopped. Nothing is claimed after that, not by [`claim_at_once`] either.
    pub(crate) fn run(shared: &Mutex<Self>) {
        loop {
            let mut poller = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if poller.stop.is_stopped() {
                return poller.pass_on();
            }
            if let Some(wait) = poller.turn() {
                drop(poller);
                let woken = wait.wait();
                let mut poller = shared.lock().unwrap_or_else(PoisonError::into_inner);
                poller.after(woken);
            }
        }
    }

    /// Claims once. Returns the wait that must follow if there is no work.
    fn turn(&mut self) -> Option<WorkWait> {
        self.session.moves();
        if self.is_gated() {
            return None;
        }
        match self.poll() {
            PollResult::Full => drop(self.listen(Busyness::Busy)),
            PollResult::Busy => self.wait_for_thread(),
            PollResult::Drained if self.idle_end.is_wanted => self.end_if_idle(),
            PollResult::Drained => return self.wait_for_work(),
            PollResult::NotNow(delay) => {
                self.session.rests();
                self.stop.wait(delay);
            }
        }
        None
    }

    /// Claims for a thread that was notified while the poller waits for work. Returns `false` if the poller must go on.
    fn claim_for_listener(&mut self) -> bool {
        let subscriber = self.session.subscriber();
        let state = self.plan.state(&self.stop, &self.pool, subscriber);
        let may_claim = matches!(state, GateState::Claim) && !self.idle_end.is_wanted;
        if !may_claim || self.stop.is_stopped() || self.handoff.has_cautious() {
            return false;
        }
        self.session.moves();
        self.heed_changes();
        self.wakeups.note_woken();
        let is_drained = matches!(self.poll(), PollResult::Drained);
        self.session.rests();
        let hears_for = self.wakeups.hears_for();
        is_drained
            && self.patience().is_none()
            && self.plan.idle_pause(&self.session, hears_for) >= self.pause
    }

    fn pass_on(&mut self) {
        self.wakeups.pass_on(&self.heartbeat, &mut self.session);
    }

    fn listen(&mut self, load: Busyness) -> bool {
        let (heartbeat, session) = (&self.heartbeat, &mut self.session);
        self.wakeups.listen(load, heartbeat, session)
    }

    /// Returns whether nothing may be claimed at present; then it has waited for a change.
    fn is_gated(&mut self) -> bool {
        let subscriber = self.session.subscriber();
        let state = self.plan.state(&self.stop, &self.pool, subscriber);
        if !matches!(state, GateState::Claim) && self.handoff.has_cautious() {
            self.give_back();
        }
        if matches!(state, GateState::Claim) {
            self.heed_changes();
        }
        let next = matches!(state, GateState::Claim).then(|| self.plan.next_jobs());
        self.handoff.set_next(next.flatten());
        match state {
            GateState::Claim => return false,
            GateState::Recycle => self.stop.recycle(),
            GateState::Wait => {
                let (heartbeat, session) = (&self.heartbeat, &mut self.session);
                self.wakeups.listen_no_more(heartbeat, session);
                self.pass_on();
                let pause = self.plan.gate_pause();
                self.session.rests();
                self.wakeups.wait_at_gate(&self.stop, pause);
            }
        }
        true
    }

    /// Takes over settings and pauses that have changed.
    fn heed_changes(&mut self) {
        if let Some(queues) = self.plan.retune() {
            self.handoff.set_queues(queues);
            // There may be fewer threads for them.
            self.release("the settings of the worker were changed");
        }
        if self.plan.read_pauses(&mut self.session) {
            self.release_paused();
        }
    }

    /// Releases the claims of paused classes that no thread has started.
    fn release_paused(&mut self) {
        let classes = self.plan.classes();
        if classes.is_any_paused() {
            let is_paused = |class: &str| classes.is_paused(class);
            self.handoff.clear_classes(is_paused);
            release::paused(&self.in_flight, &mut self.session, is_paused);
        }
    }

    fn poll(&mut self) -> PollResult {
        if self.handoff.has_cautious() {
            return match self.handoff.begin_cautious(&mut self.session) {
                Ok(true) => PollResult::Full,
                Ok(false) => PollResult::Busy,
                Err(delay) => PollResult::NotNow(delay),
            };
        }
        let (busy, idle) = (self.pool.occupancy().busy(), self.pool.occupancy().idle());
        let Some(max_jobs) = self.plan.max_jobs(&self.pool, &self.handoff, busy) else {
            return PollResult::Busy;
        };
        if self.pool.unwritten() > MOST_UNWRITTEN {
            return PollResult::NotNow(FOR_THE_COMPLETER);
        }
        let Some(registration) = self.heartbeat.current() else {
            return UNREGISTERED;
        };
        if self.in_flight.is_closed() {
            return UNREGISTERED;
        }
        self.wakeups.poll();
        let size = ClaimSize {
            max_jobs,
            idle,
            once: self.pool.prefetch.is_cautious(),
        };
        match self.claim(&registration, size) {
            Ok(found) => self.take_over(found, &registration, size),
            Err(result) => result,
        }
    }

    /// Claims jobs for the free threads, and enters them in memory.
    fn claim(
        &mut self,
        registration: &Arc<Registration>,
        size: ClaimSize,
    ) -> Result<ClaimedJobs, PollResult> {
        let claim_lock = self.in_flight.claim_lock();
        let begun = clock::instant();
        let found = self
            .plan
            .claim(&mut self.session, registration.id, size)
            .map_err(PollResult::NotNow)?;
        let Claims::Held { jobs, is_wanted } = found else {
            drop(claim_lock);
            if !self.stop.is_stopped() && !self.in_flight.is_closed() {
                self.heartbeat.lose(
                    registration,
                    "its row is gone: it was treated as dead and pruned",
                );
            }
            return Err(UNREGISTERED);
        };
        let jobs: Vec<Arc<Claimed>> = jobs.into_iter().map(Arc::new).collect();
        self.in_flight.enter(&jobs, registration);
        if !jobs.is_empty() {
            self.pool.prefetch.note_claim(begun.elapsed());
        }
        Ok(ClaimedJobs { jobs, is_wanted })
    }

    /// Passes claimed jobs to the threads, and promotes blocked jobs if that is due.
    fn take_over(
        &mut self,
        ClaimedJobs { jobs, is_wanted }: ClaimedJobs,
        registration: &Arc<Registration>,
        size: ClaimSize,
    ) -> PollResult {
        let there_is_more = self.plan.note_claimed(&jobs, size);
        self.pool.prefetch.note_claimed(&jobs);
        self.idle_end.note_claimed(jobs.len());
        if !jobs.is_empty() {
            self.wakeups.note_found(&self.session);
        }
        let has_shares = self.session.note_shares(&jobs);
        let found = jobs.len();
        let classes = self.plan.classes();
        // Rows that Ruby made ready name no class, and are claimed whatever it is.
        let has_paused =
            classes.is_any_paused() && jobs.iter().any(|job| classes.is_paused(&job.class_name));
        if has_paused {
            self.release_paused();
        }
        self.handoff.take_over(jobs, registration);
        let is_rate_due = self.session.until_rate().is_some_and(|left| left.is_zero());
        let is_due = self.session.wanted.is_due() || is_rate_due;
        let may_promote = !there_is_more || self.session.may_promote(has_shares);
        let promotes = is_due || ((is_wanted || has_shares) && may_promote);
        let has_promoted = promotes && self.promote(registration, size, found);
        if there_is_more || has_promoted {
            PollResult::Full
        } else {
            self.wakeups.note_drained();
            PollResult::Drained
        }
    }

    /// Promotes blocked jobs, and starts those that it lets through and has free threads for. Returns `true` if there may be more
    /// to do.
    fn promote(&mut self, registration: &Arc<Registration>, size: ClaimSize, found: usize) -> bool {
        let claim_lock = self.in_flight.claim_lock();
        let claims = self.plan.at_gate(registration.id, size, found);
        let (is_progress, jobs) = self.session.promote_to_claim(claims);
        let jobs: Vec<Arc<Claimed>> = jobs.into_iter().map(Arc::new).collect();
        self.in_flight.enter(&jobs, registration);
        drop(claim_lock);
        if !jobs.is_empty() {
            self.pool.prefetch.note_claimed(&jobs);
            self.plan.note_at_gate(found + jobs.len(), size);
            self.idle_end.note_claimed(jobs.len());
            self.session.note_shares(&jobs);
            self.handoff.take_over(jobs, registration);
        }
        is_progress
    }

    fn wait_for_thread(&mut self) {
        self.listen(Busyness::Busy);
        let low = Levels::of(&self.pool, &self.handoff).low;
        self.pool.occupancy().tell_at(low);
        if self.pool.occupancy().busy() <= low || self.share() {
            return;
        }
        let stuck = self.patience();
        self.session.rests();
        let woken = self.wakeups.wait_for_thread(&self.stop, stuck);
        self.after(woken);
    }

    /// Returns the wait for new work, or `None` if the worker must look once more.
    fn wait_for_work(&mut self) -> Option<WorkWait> {
        // Listening starts before the last poll, so that no job is missed in between.
        if self.listen(Busyness::Idle) {
            return None;
        }
        let hears_for = self.wakeups.hears_for();
        if hears_for < NEWLY {
            self.sharing.ask(&self.heartbeat, &mut self.session);
        }
        self.session.look_for_rate_at_times();
        self.pause = self.plan.idle_pause(&self.session, hears_for);
        let stuck = self.patience();
        self.session.rests();
        Some(self.wakeups.wait_for_work(&self.stop, stuck, self.pause))
    }

    /// Ends the worker if no job is left that it could run.
    fn end_if_idle(&mut self) {
        let is_idle = self.in_flight.is_empty() && self.pool.unwritten() == 0;
        // The next poll passes over none.
        self.plan.forget_cursors();
        if is_idle {
            self.plan.forget_front();
        }
        let (session, wakeups) = (&mut self.session, &mut self.wakeups);
        self.idle_end
            .stop_or_wait(is_idle, session, wakeups, &self.stop);
    }

    fn after(&mut self, woken: Woken) {
        match woken {
            Woken::Poll => {}
            Woken::Work => self.wakeups.note_woken(),
            Woken::Stuck => self.give_back_stuck(),
            Woken::PassOn => self.pass_on(),
        }
    }

    /// Returns how long jobs that were claimed ahead may still wait, or `None` if none waits.
    fn patience(&mut self) -> Option<Duration> {
        self.plan.patience(&self.pool, &self.handoff)
    }

    /// Releases jobs that were claimed ahead when those before them take longer than estimated, so
    /// that another worker can run them.
    fn give_back_stuck(&mut self) {
        if self.patience().is_some_and(|left| left.is_zero()) {
            self.pool.prefetch.slow_down();
            self.give_back();
        }
    }

    /// Releases what no thread has started, if an idle worker has asked for it. Returns whether it
    /// did.
    fn share(&mut self) -> bool {
        let is_ahead = self.pool.occupancy().busy() > self.pool.occupancy().threads();
        let is_asked = is_ahead
            && self.wakeups.is_woken()
            && self.sharing.is_asked(&self.heartbeat, &mut self.session);
        if is_asked {
            self.pool.prefetch.pause();
            self.release("an idle worker has asked for them");
        }
        is_asked
    }

    /// Releases the claims that no thread has started, because the jobs before them take long.
    fn give_back(&mut self) {
        self.release("they were claimed ahead, and the jobs before them take long");
    }

    fn release(&mut self, why: &str) {
        self.handoff.clear();
        self.plan.note_given_back();
        release::claimed_ahead(&self.in_flight, &mut self.session, why);
    }
}
