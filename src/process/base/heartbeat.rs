//! The row of a process, and the heartbeats that keep it alive.

use crate::clock;
use crate::db::Precedence;
use crate::db::table::processes::{self, HeartbeatReply};
use crate::db::transition::prune;
use crate::error::Result;
use crate::event::Event;
use crate::process::base::context::ProcessContext;
use crate::process::base::registration::{
    HeartbeatSettings, Identity, PATIENCE_FOR_A_LOCK, Registration, Registrations,
};
use crate::process::base::session::Session;
use crate::process::base::stop::{self, Stop};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The part of a process that depends on its heartbeats: a worker's claims.
pub(crate) trait HoldsClaims: std::fmt::Debug + Send + Sync {
    /// Makes the jobs of a lost registration check whether they should end.
    fn wake(&self);

    /// Handles a heartbeat that was stored; they are `interval` apart.
    fn after_heartbeat(
        &self,
        session: &mut Session,
        process_id: i64,
        beat: &HeartbeatReply,
        interval: Duration,
    );
}

/// Registers a process, sends its heartbeats, and registers it again when its registration is lost.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    context: ProcessContext,
    settings: HeartbeatSettings,
    /// The contents of the process' row.
    identity: Mutex<Identity>,
    /// The claims of a worker. Progress is written with the heartbeat.
    claims: Option<Arc<dyn HoldsClaims>>,
    /// Ends the heartbeats. It is set last of all in a stop.
    quiet: Stop,
    state: Mutex<HeartbeatState>,
}

impl Heartbeat {
    /// Creates the heartbeat of a process. `claims` is `Some` for a worker.
    pub(crate) fn new(
        context: &ProcessContext,
        settings: HeartbeatSettings,
        identity: Identity,
        claims: Option<Arc<dyn HoldsClaims>>,
    ) -> Arc<Self> {
        context.liveness.waits_at_most(settings.threshold);
        context.health.trusts_heartbeats_for(settings.threshold / 2);
        // A database that is away at the start is waited for, too.
        context.liveness.beat();
        Arc::new(Heartbeat {
            claims,
            context: context.clone(),
            settings,
            identity: Mutex::new(identity),
            quiet: Stop::new(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, HeartbeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current registration, or `None` if there is none that may be trusted.
    pub(crate) fn current(&self) -> Option<Arc<Registration>> {
        let mut state = self.state();
        let current = state.registrations.current.clone()?;
        if current.lease.has_run_out() {
            drop(state);
            self.lose(&current, "no heartbeat got through for too long");
            return None;
        }
        if current.lease.is_lost() {
            // Its row stays until it holds no claim.
            state.registrations.retire(&current);
            self.note_registered(&state);
            return None;
        }
        Some(current)
    }

    /// Returns whether a heartbeat of this process succeeded within half the threshold, well before
    /// the silence of another process could count as its death.
    pub(crate) fn is_beating(&self) -> bool {
        let state = self.state();
        let current = state.registrations.current.as_ref();
        current.is_some_and(|current| current.lease.age() < self.settings.threshold / 2)
    }

    /// Returns the current registration, trusted or not, and the lost ones that still have a row.
    pub(crate) fn all(&self) -> Vec<Arc<Registration>> {
        self.state().registrations.all()
    }

    /// Stops trusting a registration. Its jobs are notified through their context.
    pub(crate) fn lose(&self, registration: &Registration, why: &str) {
        let first = registration.lease.lose();
        let mut state = self.state();
        state.registrations.retire(registration);
        self.note_registered(&state);
        drop(state);
        if let Some(claims) = &self.claims {
            claims.wake();
        }
        if first {
            self.context.subscriber.emit(&Event::Lost {
                name: &registration.name,
                why,
            });
        }
    }

    fn note_registered(&self, state: &HeartbeatState) {
        let is_registered = state.registrations.current.is_some();
        self.context.health.registered(is_registered);
    }

    fn identity(&self) -> Identity {
        let identity = self.identity.lock();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what the row of the process says, at once.
    pub(crate) fn describe(&self, identity: Identity) {
        let mut current = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        *current = identity;
        drop(current);
        self.context.stop.signal_turn();
    }

    fn description(&self, is_quiet: bool) -> Description {
        let (identity, duties) = (self.identity(), self.context.duties.to_json());
        Description {
            plain: identity.metadata(is_quiet, None),
            has_duties: duties.is_some(),
            metadata: identity.metadata(is_quiet, duties),
            channel: identity.channel,
        }
    }

    /// Returns the channel on which the process is notified of new work, if it listens.
    pub(crate) fn channel(&self) -> Option<String> {
        self.identity().channel
    }

    /// Ends the heartbeat thread.
    pub(crate) fn quiet(&self) {
        self.quiet.stop();
    }

    /// Sends heartbeats until [`quiet`](Self::quiet). Calls `each` after each heartbeat, on the
    /// same connection, with all registrations.
    pub(crate) fn run(&self, mut each: impl FnMut(&mut Session, &[Arc<Registration>])) {
        let session = Session::of_loop(&self.context, "heartbeat");
        let mut session = session.within(self.settings.patience());
        session.precedence = Precedence::First;
        loop {
            session.moves();
            let turned = self.turn(&mut session, &mut each);
            // A process that has lost its registration stores what it has counted, too.
            if turned.is_ok() || !session.is_in_trouble() {
                session.store_history();
            }
            let pause = match turned {
                Ok(()) => clock::jittered(self.settings.interval),
                Err(delay) => {
                    self.context.health.failed();
                    delay.min(self.settings.interval)
                }
            };
            session.rests();
            crossbeam_channel::select! {
                recv(self.quiet.channel()) -> _ => return,
                recv(self.context.stop.turned_for_heartbeat()) -> _ => {}
                default(pause) => {}
            }
        }
    }

    fn turn(
        &self,
        session: &mut Session,
        each: &mut impl FnMut(&mut Session, &[Arc<Registration>]),
    ) -> Result<(), Duration> {
        let mut late = Ok(());
        for registration in self.all() {
            if let Err(delay) = self.beat(session, &registration) {
                // A locked row must not delay the other registrations.
                if session.has_missed() || !self.is_locked(session, &registration)? {
                    return Err(delay);
                }
                late = Err(delay);
            }
        }
        if self.current().is_none() && !self.context.stop.is_stopped() {
            self.register(session)?;
        }
        // A refusal by the database here delays nothing else.
        for duty in [Self::say, Self::deregister_retired] {
            match duty(self, session) {
                Err(delay) if session.is_in_trouble() => return Err(delay),
                done => late = late.and(done),
            }
        }
        // Lost registrations are included: they may hold claims that are in no memory, and that
        // would stay as long as the registration gets heartbeats.
        each(session, &self.all());
        late
    }

    fn beat(
        &self,
        session: &mut Session,
        registration: &Arc<Registration>,
    ) -> Result<(), Duration> {
        let sent = clock::since_boot();
        let beat = session.run("send a heartbeat", |conn| {
            processes::heartbeat(conn, registration.id, &registration.name)
        });
        if session.has_missed() {
            self.state().missed_at.get_or_insert_with(clock::instant);
        }
        if let Some(beat) = beat? {
            registration.lease.renew(sent);
            self.context.liveness.beat();
            self.context.health.reached();
            self.state().missed_at = None;
            if let Some(claims) = &self.claims {
                claims.after_heartbeat(session, registration.id, &beat, self.settings.interval);
            }
            return Ok(());
        }
        // In a stop, this process itself deletes the row.
        if !self.state().is_leaving {
            self.lose(
                registration,
                "its row is gone: it was treated as dead and pruned",
            );
        }
        self.forget(registration);
        Ok(())
    }

    /// Returns whether another session holds the lock of the row. If that is an earlier session of
    /// this process, whose heartbeat got no answer, it may hold the lock for any length of time.
    fn is_locked(
        &self,
        session: &mut Session,
        registration: &Arc<Registration>,
    ) -> Result<bool, Duration> {
        let is_locked = session.run("check the lock of the row", |conn| {
            processes::is_locked(conn, registration.id)
        })?;
        let missed_at = self.state().missed_at;
        if is_locked && missed_at.is_some_and(|at| at.elapsed() >= PATIENCE_FOR_A_LOCK) {
            self.lose(
                registration,
                "its row is locked by a session that gives no answer",
            );
        }
        Ok(is_locked)
    }

    /// Returns whether a worker or supervisor is quiet. Other processes claim nothing.
    fn is_quiet(&self) -> bool {
        ["Worker", "Supervisor"].contains(&self.identity().kind) && self.context.stop.is_quiet()
    }

    /// Stores in the row what has changed about the process, so that `windlass` can show its
    /// threads and queues, and why nothing runs.
    fn say(&self, session: &mut Session) -> Result<(), Duration> {
        let says = self.description(self.is_quiet());
        let state = self.state();
        let known = state.says.as_ref();
        let has_changed = known.is_none_or(|known| !known.is_like(&says));
        let duties_every = DUTIES_EVERY.min(self.settings.interval.saturating_mul(3));
        let is_old = state.said_at.is_none_or(|at| at.elapsed() >= duties_every);
        let current = state.registrations.current.clone();
        drop(state);
        let Some(current) = current.filter(|_| has_changed || (says.has_duties && is_old)) else {
            return Ok(());
        };
        let said = session.run("describe the process", |conn| {
            processes::describe(conn, current.id, &says.metadata, says.channel.as_deref())
        });
        let mut state = self.state();
        state.said_at = Some(clock::instant());
        if said.is_ok() {
            state.says = Some(says);
        }
        drop(state);
        match has_changed {
            true => said,
            // The turns of its duties matter to no other process.
            false => Ok(()),
        }
    }

    fn register(&self, session: &mut Session) -> Result<(), Duration> {
        let (identity, is_quiet) = (self.identity(), self.is_quiet());
        let trust = self.settings.trust();
        let description = self.description(is_quiet);
        let registration = identity.register(session, &description.metadata, trust)?;
        self.context.liveness.beat();
        self.context.health.reached();
        self.context.subscriber.emit(&Event::Registered {
            kind: identity.kind,
            name: &registration.name,
        });
        let mut state = self.state();
        state.says = Some(description);
        state.said_at = Some(clock::instant());
        state.registrations.current = Some(Arc::new(registration));
        self.note_registered(&state);
        Ok(())
    }

    fn forget(&self, registration: &Registration) {
        let mut state = self.state();
        state.registrations.forget(registration);
        self.note_registered(&state);
    }

    /// Deletes the rows of the process because it ends.
    pub(crate) fn leave(&self, session: &mut Session) {
        self.state().is_leaving = true;
        self.deregister(session);
    }

    /// Deregisters lost registrations that hold no claim.
    fn deregister_retired(&self, session: &mut Session) -> Result<(), Duration> {
        let retired = self.state().registrations.retired.clone();
        for registration in retired {
            if session.run("deregister", |conn| {
                prune::deregister(conn, registration.id)
            })? {
                self.forget(&registration);
            }
        }
        Ok(())
    }

    /// Deletes the rows that hold no claim.
    pub(crate) fn deregister(&self, session: &mut Session) {
        for registration in self.all() {
            let gone = session.run("deregister", |conn| {
                prune::deregister(conn, registration.id)
            });
            if gone == Ok(true) {
                self.forget(&registration);
                self.context.subscriber.emit(&Event::Deregistered {
                    kind: self.identity().kind,
                    name: &registration.name,
                });
            }
        }
    }
}

// --- The heartbeat thread of a process ---

/// The longest time that a heartbeat may continue when the process ends.
const PATIENCE_FOR_THE_LAST: Duration = Duration::from_secs(3);

/// The time limit of each statement that stores what was counted, before the row is deleted.
const PATIENCE_FOR_COUNTS: Duration = Duration::from_secs(1);

/// The pause before what was refused is stored once more.
const BEFORE_THE_SECOND: Duration = Duration::from_millis(50);

/// A running heartbeat thread, which ends when this is dropped: the row of a process must get no
/// heartbeats without the process.
#[derive(Debug)]
pub(crate) struct HeartbeatGuard {
    context: ProcessContext,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatGuard {
    /// Starts the heartbeat thread. It calls `each` after each heartbeat, on the same connection,
    /// with all registrations.
    pub(crate) fn start(
        context: &ProcessContext,
        heartbeat: &Arc<Heartbeat>,
        each: impl FnMut(&mut Session, &[Arc<Registration>]) + Send + 'static,
    ) -> Result<Self> {
        let thread = stop::spawn_vital("heartbeat", &context.stop, {
            let heartbeat = Arc::clone(heartbeat);
            move || heartbeat.run(each)
        })?;
        Ok(HeartbeatGuard {
            context: context.clone(),
            heartbeat: Arc::clone(heartbeat),
            thread: Some(thread),
        })
    }
}

impl Drop for HeartbeatGuard {
    /// Stores what was counted, deletes the row if it holds no claim, and then ends the heartbeat
    /// thread. This is the last step of a process, which has counted nearly everything that ended by
    /// now. A process that is killed before its row is deleted counts as a death; so what it counted is
    /// stored first.
    fn drop(&mut self) {
        self.store_first();
        let mut session = Session::new(&self.context);
        self.heartbeat.leave(&mut session);
        self.heartbeat.quiet();
        let thread = self.thread.take().into_iter().collect();
        let has_ended = stop::join_within(thread, PATIENCE_FOR_THE_LAST);
        // Stores the counts that are new since then, or that could not be stored before.
        if !session.is_in_trouble() {
            session.store_history();
        }
        if !has_ended {
            return;
        }
        // A registration may have been under way when the stop was requested.
        self.heartbeat.deregister(&mut session);
    }
}

impl HeartbeatGuard {
    /// Stores what was counted. It tries once more if that is refused, or if the heartbeat thread is
    /// storing at present. A database that gives no answer delays it by one of its time limits.
    fn store_first(&self) {
        let session = Session::new(&self.context).within(PATIENCE_FOR_COUNTS);
        let mut session = session.in_haste(PATIENCE_FOR_COUNTS);
        if session.store_history() || session.has_missed() {
            return;
        }
        clock::nap(BEFORE_THE_SECOND);
        session.store_history();
    }
}

// --- The memory of a process about its row ---

/// The state that the threads of a process share about its row.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatState {
    pub(crate) registrations: Registrations,
    pub(crate) is_leaving: bool,
    /// The description in the row of the current registration.
    pub(crate) says: Option<Description>,
    /// The time at which that was stored, or was last tried.
    pub(crate) said_at: Option<Instant>,
    /// The time of the first heartbeat without an answer. `None` after the next success.
    pub(crate) missed_at: Option<Instant>,
}

/// The part of a process' row that describes it, and may change.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) metadata: String,
    pub(crate) channel: Option<String>,
    /// The metadata without the turns of its duties.
    plain: String,
    has_duties: bool,
}

impl Description {
    /// Returns whether two descriptions differ in nothing but the turns of duties.
    fn is_like(&self, other: &Description) -> bool {
        (&self.plain, &self.channel) == (&other.plain, &other.channel)
    }
}

/// The longest time after which the turns of duties are stored anew.
const DUTIES_EVERY: Duration = Duration::from_secs(30);
