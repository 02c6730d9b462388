//! The claims of a worker in memory, which mirror its claimed executions.

use crate::clock;
use crate::db::model::claim::{Claimed, Fence};
use crate::db::table::claimed::{self, ClaimNote};
use crate::db::table::job_logs::{self, LoggedRun};
use crate::db::table::processes::HeartbeatReply;
use crate::job::running::{Live, News};
use crate::process::base::heartbeat::HoldsClaims;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crossbeam_channel::Sender;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::{Duration, Instant};

/// A claim that this worker holds.
#[derive(Debug, Clone)]
pub(crate) struct InFlightJob {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
    /// The time at which a thread started it.
    pub(crate) started: Option<Instant>,
    pub(crate) live: Arc<Live>,
}

impl InFlightJob {
    /// Returns how long a thread has been running it.
    pub(crate) fn ran(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

/// The news about a claim that a heartbeat stores.
#[derive(Debug)]
pub(crate) struct ClaimNews {
    pub(crate) claim_id: i64,
    pub(crate) live: Arc<Live>,
    pub(crate) news: News,
}

impl ClaimNews {
    pub(crate) fn note(&self) -> ClaimNote<'_> {
        ClaimNote {
            claim_id: self.claim_id,
            note: &self.news.note,
        }
    }
}

/// The claims of a worker, from before they are requested until the database has accepted their
/// outcome.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    held: Mutex<HeldClaims>,
    /// Held for reading while a claim is under way and until its rows are entered, so that a
    /// comparison of memory with the database, which holds it for writing, does not come in between.
    claim_lock: RwLock<()>,
    /// Set when nothing more may be claimed.
    is_closed: AtomicBool,
    /// Jobs whose run was ended by the stop of the process.
    cut_short: Mutex<Vec<i64>>,
}

type HeldClaims = HashMap<i64, InFlightJob, BuildHasherDefault<IdHasher>>;

/// Hashes ids that the database has given out. Each job is looked up three times, and no text of a user is a key: a hash that
/// withstands attacks would cost more than all the rest of it.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_i64(i64::from(*byte));
        }
    }

    /// By the golden ratio, which spreads ids that follow each other.
    fn write_i64(&mut self, id: i64) {
        self.0 = (self.0 ^ id.cast_unsigned()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl InFlight {
    fn held(&self) -> MutexGuard<'_, HeldClaims> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops further claims: the process is about to be stored as draining.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Allows claims again, because the draining could not be stored.
    pub(crate) fn reopen(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns a lock that is held from before a claim until its rows are entered.
    pub(crate) fn claim_lock(&self) -> RwLockReadGuard<'_, ()> {
        self.claim_lock
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks out claims, or returns `None` while one is under way: a heartbeat must not wait.
    pub(crate) fn try_lock_out_claims(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        match self.claim_lock.try_write() {
            Ok(lock) => Some(lock),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn enter(&self, jobs: &[Arc<Claimed>], registration: &Arc<Registration>) {
        let now = clock::instant();
        self.held().extend(jobs.iter().map(|job| {
            let held = InFlightJob {
                job: Arc::clone(job),
                registration: Arc::clone(registration),
                started: None,
                live: Arc::new(Live::entered(now)),
            };
            (job.claim_id, held)
        }));
    }

    /// Marks a claim as started. Returns `None` if it was released meanwhile.
    pub(crate) fn start(&self, claim_id: i64) -> Option<Arc<Live>> {
        let mut held = self.held();
        let held = held.get_mut(&claim_id)?;
        held.started = Some(clock::instant());
        Some(Arc::clone(&held.live))
    }

    /// Requests the cancellation of the jobs of these claims.
    pub(crate) fn cancel(&self, claims: &[i64]) {
        let held = self.held();
        for claim in claims {
            if let Some(held) = held.get(claim) {
                held.live.cancel();
            }
        }
    }

    /// Wakes sleeping jobs to check whether they should end.
    pub(crate) fn wake(&self) {
        self.held().values().for_each(|held| held.live.wake());
    }

    /// Notifies the jobs that still run that the stop no longer waits for them.
    pub(crate) fn call_off(&self) {
        self.held().values().for_each(|held| held.live.call_off());
    }

    /// Returns whether the outcome of every job that has returned is saved.
    pub(crate) fn are_saved(&self) -> bool {
        !self.held().values().any(|held| held.live.has_returned())
    }

    /// Notes that the stop of the process has ended a run of this job, whose outcome is saved.
    pub(crate) fn note_cut_short(&self, job_id: i64) {
        let jobs = self.cut_short.lock();
        jobs.unwrap_or_else(PoisonError::into_inner).push(job_id);
    }

    pub(crate) fn cut_short(&self) -> Vec<i64> {
        let jobs = self.cut_short.lock();
        jobs.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the jobs that have overrun their timeout at `now`, and when the next one will.
    pub(crate) fn overrun(&self, now: Instant) -> (Vec<InFlightJob>, Option<Instant>) {
        let held = self.held();
        let timed = held
            .values()
            .filter_map(|held| Some((held, held.live.overrun()?)));
        let (due, later): (Vec<_>, Vec<_>) = timed.partition(|(_, overrun)| *overrun <= now);
        let next = later.iter().map(|(_, overrun)| *overrun).min();
        (
            due.into_iter().map(|(held, _)| held.clone()).collect(),
            next,
        )
    }

    /// Returns whether there are claims left, and all of them have overrun their timeout.
    pub(crate) fn only_overrun(&self) -> bool {
        let held = self.held();
        !held.is_empty() && held.values().all(|held| held.live.verdict().is_some())
    }

    /// Returns what the next heartbeat of a process stores about runs of at least this age.
    pub(crate) fn news(&self, process_id: i64, age: Duration) -> Vec<ClaimNews> {
        let held = self.held();
        let held = held
            .iter()
            .filter(|(_, held)| held.registration.id == process_id && held.ran() >= age);
        held.filter_map(|(id, held)| {
            Some(ClaimNews {
                claim_id: *id,
                live: Arc::clone(&held.live),
                news: held.live.news()?,
            })
        })
        .collect()
    }

    /// Returns the jobs of a process that have logged something which is not stored yet.
    pub(crate) fn logging(&self, process_id: i64) -> Vec<InFlightJob> {
        let held = self.held();
        let logging = held
            .values()
            .filter(|held| held.registration.id == process_id && held.live.log.has_news());
        logging.cloned().collect()
    }

    /// Removes claims whose outcome is saved.
    pub(crate) fn remove(&self, claims: &[i64]) {
        let mut held = self.held();
        for claim in claims {
            held.remove(claim);
        }
    }

    /// Returns whether there is no claim whose outcome is not saved.
    pub(crate) fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    /// Removes and returns the claims that no thread has started.
    pub(crate) fn take_unstarted(&self) -> Vec<InFlightJob> {
        self.take_unstarted_of(|_| true)
    }

    /// Removes and returns those whose class is one of some.
    pub(crate) fn take_unstarted_of(&self, is_one: impl Fn(&str) -> bool) -> Vec<InFlightJob> {
        let mut held = self.held();
        let unstarted: Vec<i64> = held
            .iter()
            .filter(|(_, held)| held.started.is_none() && is_one(&held.job.class_name))
            .map(|(id, _)| *id)
            .collect();
        unstarted.iter().filter_map(|id| held.remove(id)).collect()
    }

    pub(crate) fn all(&self) -> Vec<InFlightJob> {
        self.held().values().cloned().collect()
    }

    pub(crate) fn holds(&self, claim_id: i64) -> bool {
        self.held().contains_key(&claim_id)
    }
}

// --- The number of jobs with the threads of a worker ---

/// Counts the jobs that are with a thread, or on their way to one.
#[derive(Debug)]
pub(crate) struct Occupancy {
    threads: AtomicUsize,
    /// The number of threads that run: more than `threads` while some finish their last job.
    running: AtomicUsize,
    busy: AtomicUsize,
    /// The number of remaining jobs at which the poller is notified.
    low: AtomicUsize,
    /// Notified when so few are left.
    rested: Sender<()>,
}

impl Occupancy {
    pub(crate) fn new(rested: Sender<()>) -> Self {
        Occupancy {
            threads: AtomicUsize::new(1),
            running: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            low: AtomicUsize::new(0),
            rested,
        }
    }

    /// Returns how many jobs are with a thread, or on their way to one.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// Returns how many threads have no job and none on its way to them.
    pub(crate) fn idle(&self) -> usize {
        self.threads().saturating_sub(self.busy())
    }

    /// Returns for how many threads to claim.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// Sets for how many threads to claim, at least 1, and notifies the poller.
    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::SeqCst);
        self.tell_at(threads.saturating_sub(1));
        self.tell();
    }

    /// Returns how many threads there are, with those that end after their job.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst).max(self.threads())
    }

    /// Counts a thread that starts.
    pub(crate) fn arrive(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a thread that has ended.
    pub(crate) fn leave(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests a notification when `low` jobs are left. The caller checks once more after that, in
    /// case that is so already.
    pub(crate) fn tell_at(&self, low: usize) {
        self.low.store(low, Ordering::SeqCst);
    }

    /// Counts jobs before they are sent to the threads.
    pub(crate) fn occupy(&self, jobs: usize) {
        self.busy.fetch_add(jobs, Ordering::SeqCst);
    }

    /// Notes that a thread has finished a job.
    pub(crate) fn rest(&self) {
        let left = self.busy.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= self.low.load(Ordering::SeqCst) {
            self.tell();
        }
    }

    /// Notifies the poller that it may claim more.
    pub(crate) fn tell(&self) {
        // A full channel holds a notification that the poller has yet to read.
        let _ = self.rested.try_send(());
    }
}

/// The thread of a limited job, reserved for the next job of its key until the outcome is written.
///
/// Without it, the poller would claim another job for the thread meanwhile, and one of the two
/// would wait behind the other.
#[derive(Debug)]
pub(crate) struct ReservedThread {
    occupancy: Arc<Occupancy>,
    is_reserved: AtomicBool,
}

impl ReservedThread {
    /// Reserves a thread that is counted as busy.
    pub(crate) fn new(occupancy: &Arc<Occupancy>) -> Self {
        ReservedThread {
            occupancy: Arc::clone(occupancy),
            is_reserved: AtomicBool::new(true),
        }
    }

    /// Frees the thread, if it is still reserved.
    pub(crate) fn free(&self) {
        if self.is_reserved.swap(false, Ordering::SeqCst) {
            self.occupancy.rest();
        }
    }

    /// Leaves the thread to a job that is sent to it. Returns `false` if it is free already.
    pub(crate) fn pass_on(&self) -> bool {
        self.is_reserved.swap(false, Ordering::SeqCst)
    }
}

impl Drop for ReservedThread {
    fn drop(&mut self) {
        self.free();
    }
}

// --- Writes beside a heartbeat: the progress of jobs, and their logs ---

/// The most runs whose lines one statement stores, at up to 64 KiB each.
const AT_ONCE: usize = 20;

/// Stores what jobs have logged, if there is news: jobs, their processes and their runs. What cannot
/// be stored is included the next time.
pub(crate) fn store_logs<'r>(
    session: &mut Session,
    runs: impl Iterator<Item = (&'r Claimed, i64, &'r Live)>,
) {
    let news: Vec<(LoggedRun, &Live)> = runs
        .filter_map(|(job, process_id, live)| {
            let fence = Fence {
                process_id,
                claim_id: job.claim_id,
            };
            let news = live.log.news(fence, job.job_id, job.attempts, live.age());
            Some((news?, live))
        })
        .collect();
    let (mut rows, lives): (Vec<LoggedRun>, Vec<&Live>) = news.into_iter().unzip();
    let mut lives = lives.into_iter();
    while !rows.is_empty() {
        let rest = rows.split_off(rows.len().min(AT_ONCE));
        let written = session.run("store what jobs log", |conn| job_logs::save(conn, &rows));
        if written.is_err() {
            return;
        }
        for (row, live) in rows.iter().zip(&mut lives) {
            live.log.carried(row);
        }
        rows = rest;
    }
}

fn carry_logs(session: &mut Session, in_flight: &InFlight, process_id: i64) {
    let logging = in_flight.logging(process_id);
    let runs = logging
        .iter()
        .map(|held| (&*held.job, process_id, &*held.live));
    store_logs(session, runs);
}

/// Stores the progress of a process' jobs, if there is news, of runs that are older than a heartbeat's interval: most others
/// end before the next one. What cannot be stored is included in
/// the next heartbeat.
fn carry_notes(session: &mut Session, in_flight: &InFlight, process_id: i64, interval: Duration) {
    let news = in_flight.news(process_id, interval);
    if news.is_empty() {
        return;
    }
    let notes: Vec<ClaimNote<'_>> = news.iter().map(ClaimNews::note).collect();
    let written = session.run("note the progress of jobs", |conn| {
        claimed::save(conn, process_id, &notes)
    });
    let written = written.unwrap_or_default();
    for held in &news {
        if written.contains(&held.claim_id) {
            held.live.carried(&held.news);
        }
    }
}

impl HoldsClaims for InFlight {
    fn wake(&self) {
        InFlight::wake(self);
    }

    fn after_heartbeat(
        &self,
        session: &mut Session,
        process_id: i64,
        beat: &HeartbeatReply,
        interval: Duration,
    ) {
        self.cancel(&beat.cancelled);
        carry_notes(session, self, process_id, interval);
        carry_logs(session, self, process_id);
    }
}
