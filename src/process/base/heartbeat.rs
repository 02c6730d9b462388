//! A process' row, kept alive by a heartbeat thread.

use crate::db::transition::prune;

use crate::clock;
use crate::db::table::processes::{self, Beat, NewProcess};
use crate::error::Result;
use crate::event::events::Event;
use crate::job::lease::Lease;
use crate::process::base::context::Lifeline;
use crate::process::base::registration::{
    PATIENCE_FOR_A_LOCK, Pulse, Registration, Who, hostname, name,
};
use crate::process::base::session::Link;
use crate::process::base::stop::Stop;
use crate::process::base::threads;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a process holds that needs to hear of its heartbeats: a worker's
/// claims.
pub(crate) trait HoldsClaims: std::fmt::Debug + Send + Sync {
    /// The registration was lost: its jobs look whether they should end.
    fn wake(&self);

    /// A heartbeat got through.
    fn after_heartbeat(&self, link: &mut Link, process_id: i64, beat: &Beat);
}

/// Registers a process, beats for it, and registers it anew when it is lost.
#[derive(Debug)]
pub(crate) struct Heart {
    lifeline: Lifeline,
    pulse: Pulse,
    who: Who,
    /// What a worker holds, of which the heartbeat brings news.
    claims: Option<Arc<dyn HoldsClaims>>,
    /// Ends the heartbeats: the last thing of all to stop.
    quiet: Stop,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<Registration>>,
    /// Lost ones whose jobs still run. They are kept beating where their row
    /// still exists: then nobody else runs those jobs meanwhile.
    retired: Vec<Arc<Registration>>,
    is_leaving: bool,
    /// Whether the row of the current one says that it is quiet.
    says_quiet: bool,
    /// When a heartbeat got no answer, until one gets through.
    missed_at: Option<Instant>,
}

impl Heart {
    pub(crate) fn new(lifeline: &Lifeline, pulse: Pulse, who: Who) -> Arc<Self> {
        Self::of_worker(lifeline, pulse, who, None)
    }

    /// The heart of a process that holds claims.
    pub(crate) fn of_worker(
        lifeline: &Lifeline,
        pulse: Pulse,
        who: Who,
        claims: Option<Arc<dyn HoldsClaims>>,
    ) -> Arc<Self> {
        lifeline.liveness.waits_at_most(pulse.threshold);
        // A database that is away at the start is waited for, too.
        lifeline.liveness.beat();
        Arc::new(Heart {
            claims,
            lifeline: lifeline.clone(),
            pulse,
            who,
            quiet: Stop::new(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registration, if there is one that may be trusted.
    pub(crate) fn current(&self) -> Option<Arc<Registration>> {
        let mut state = self.state();
        let current = state.current.clone()?;
        if current.lease.has_run_out() {
            drop(state);
            self.lose(&current, "no heartbeat got through for too long");
            return None;
        }
        if current.lease.is_lost() {
            // Its row still stands: it goes when it holds no claim any more.
            let lost = state.current.take();
            state.retired.extend(lost);
            return None;
        }
        Some(current)
    }

    /// Whether a heartbeat of this process got through lately: well before
    /// anybody else's silence could be taken for death.
    pub(crate) fn is_beating(&self) -> bool {
        let state = self.state();
        let lease = state.current.as_ref().map(|current| &current.lease);
        lease.is_some_and(|lease| lease.age() < self.pulse.threshold / 2)
    }

    /// The registration, trusted or not, and the lost ones that still count.
    pub(crate) fn all(&self) -> Vec<Arc<Registration>> {
        let state = self.state();
        state
            .current
            .iter()
            .chain(&state.retired)
            .cloned()
            .collect()
    }

    /// Stops trusting a registration. Its jobs are told by their context.
    pub(crate) fn lose(&self, registration: &Arc<Registration>, why: &str) {
        let first = registration.lease.lose();
        let mut state = self.state();
        if state
            .current
            .as_ref()
            .is_some_and(|current| current.id == registration.id)
        {
            state.current = None;
            state.retired.push(Arc::clone(registration));
        }
        drop(state);
        if let Some(claims) = &self.claims {
            claims.wake();
        }
        if first {
            self.lifeline.subscriber.emit(&Event::Lost {
                name: &registration.name,
                why,
            });
        }
    }

    /// Lets the heartbeat thread end.
    pub(crate) fn quiet(&self) {
        self.quiet.stop();
    }

    /// Starts the heartbeat thread. `each` is done after every beat, on the
    /// same connection, with all registrations.
    pub(crate) fn start(
        self: &Arc<Self>,
        each: impl FnMut(&mut Link, &[Arc<Registration>]) + Send + 'static,
    ) -> Result<Beats> {
        let thread = threads::spawn_vital("heartbeat", &self.lifeline.stop, {
            let heart = Arc::clone(self);
            move || heart.run(each)
        })?;
        Ok(Beats {
            heart: Arc::clone(self),
            thread: Some(thread),
        })
    }

    fn run(&self, mut each: impl FnMut(&mut Link, &[Arc<Registration>])) {
        let mut link = Link::new(&self.lifeline).within(self.pulse.patience());
        loop {
            let pause = match self.turn(&mut link, &mut each) {
                Ok(()) => clock::jittered(self.pulse.interval),
                Err(delay) => delay.min(self.pulse.interval),
            };
            crossbeam_channel::select! {
                recv(self.quiet.channel()) -> _ => return,
                recv(self.lifeline.stop.turned_for_heartbeat()) -> _ => {}
                default(pause) => {}
            }
        }
    }

    fn turn(
        &self,
        link: &mut Link,
        each: &mut impl FnMut(&mut Link, &[Arc<Registration>]),
    ) -> Result<(), Duration> {
        let mut late = Ok(());
        for registration in self.all() {
            if let Err(delay) = self.beat(link, &registration) {
                // A locked row is no reason to let the others wait.
                if link.has_missed() || !self.is_locked(link, &registration)? {
                    return Err(delay);
                }
                late = Err(delay);
            }
        }
        if self.current().is_none() && !self.lifeline.stop.is_stopped() {
            self.register(link)?;
        }
        self.say_quiet(link)?;
        self.bury(link)?;
        // The lost ones too: they may hold claims that no memory knows of, and
        // would keep them for as long as they are kept beating.
        each(link, &self.all());
        late
    }

    fn beat(&self, link: &mut Link, registration: &Arc<Registration>) -> Result<(), Duration> {
        let sent = clock::since_boot();
        let beat = link.write("beat", |conn| {
            processes::heartbeat(conn, registration.id, &registration.name)
        });
        if link.has_missed() {
            self.state().missed_at.get_or_insert_with(clock::instant);
        }
        if let Some(beat) = beat? {
            registration.lease.renew(sent);
            self.lifeline.liveness.beat();
            self.state().missed_at = None;
            if let Some(claims) = &self.claims {
                claims.after_heartbeat(link, registration.id, &beat);
            }
            return Ok(());
        }
        // At the end it is we who take it away.
        if !self.state().is_leaving {
            self.lose(
                registration,
                "its row is gone: it was taken for dead and pruned",
            );
        }
        self.forget(registration);
        Ok(())
    }

    /// Whether another session holds the row. When that is our own of a
    /// heartbeat that got no answer, nothing tells when it lets go.
    fn is_locked(
        &self,
        link: &mut Link,
        registration: &Arc<Registration>,
    ) -> Result<bool, Duration> {
        let is_locked = link.write("look at the lock of the row", |conn| {
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

    /// Whether it claims nothing because it was asked to: of those that claim.
    fn is_quiet(&self) -> bool {
        ["Worker", "Supervisor"].contains(&self.who.kind) && self.lifeline.stop.is_quiet()
    }

    /// Has the row say whether the process is quiet: people would look in vain
    /// for why nothing runs.
    fn say_quiet(&self, link: &mut Link) -> Result<(), Duration> {
        let is_quiet = self.is_quiet();
        let current = self.state().current.clone();
        let Some(current) = current.filter(|_| self.state().says_quiet != is_quiet) else {
            return Ok(());
        };
        let metadata = self.who.says(is_quiet);
        link.write("say whether it is quiet", |conn| {
            processes::describe(conn, current.id, &metadata)
        })?;
        self.state().says_quiet = is_quiet;
        Ok(())
    }

    fn register(&self, link: &mut Link) -> Result<(), Duration> {
        let is_quiet = self.is_quiet();
        let metadata = self.who.says(is_quiet);
        let name = name(self.who.kind);
        let hostname = hostname();
        let sent = clock::since_boot();
        let id = link.write("register", |conn| {
            processes::register(
                conn,
                &NewProcess {
                    name: &name,
                    kind: self.who.kind,
                    pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
                    hostname: &hostname,
                    supervisor_id: crate::process::base::parent::supervisor_id(),
                    metadata: &metadata,
                    channel: self.who.channel.as_deref(),
                },
            )
        })?;
        let lease = Lease::new(self.pulse.trust());
        lease.renew(sent);
        self.lifeline.liveness.beat();
        self.lifeline.subscriber.emit(&Event::Registered {
            kind: self.who.kind,
            name: &name,
        });
        let mut state = self.state();
        state.says_quiet = is_quiet;
        state.current = Some(Arc::new(Registration {
            id,
            name,
            lease: Arc::new(lease),
        }));
        Ok(())
    }

    fn forget(&self, registration: &Registration) {
        let mut state = self.state();
        state
            .retired
            .retain(|retired| retired.id != registration.id);
        state
            .current
            .take_if(|current| current.id == registration.id);
    }

    /// Deregisters lost registrations that hold no claim any more.
    fn bury(&self, link: &mut Link) -> Result<(), Duration> {
        let retired = self.state().retired.clone();
        for registration in retired {
            if link.write("deregister", |conn| {
                prune::deregister(conn, registration.id)
            })? {
                self.forget(&registration);
            }
        }
        Ok(())
    }

    /// Takes the rows away that hold no claim.
    pub(crate) fn deregister(&self, link: &mut Link) {
        for registration in self.all() {
            let gone = link.write("deregister", |conn| {
                prune::deregister(conn, registration.id)
            });
            if gone == Ok(true) {
                self.forget(&registration);
                self.lifeline.subscriber.emit(&Event::Deregistered {
                    kind: self.who.kind,
                    name: &registration.name,
                });
            }
        }
    }
}

/// For a heartbeat under way when a process ends.
const PATIENCE_FOR_THE_LAST: Duration = Duration::from_secs(3);

/// A heartbeat thread that runs, and ends when this is dropped: whatever
/// becomes of a process, its row must not be kept beating without it.
#[derive(Debug)]
pub(crate) struct Beats {
    heart: Arc<Heart>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Beats {
    /// The row goes if it holds no claim, and then its heartbeat stops: the
    /// last thing of all that a process does.
    fn drop(&mut self) {
        let mut link = Link::new(&self.heart.lifeline);
        self.heart.state().is_leaving = true;
        self.heart.deregister(&mut link);
        self.heart.quiet();
        let thread = self.thread.take().into_iter().collect();
        if !threads::join_within(thread, PATIENCE_FOR_THE_LAST) {
            return;
        }
        // A registration that was under way when the stop came.
        self.heart.deregister(&mut link);
    }
}
