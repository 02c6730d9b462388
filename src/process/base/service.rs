//! The start, registration, run and stop of workers, dispatchers, schedulers and supervisors.

use crate::clock;
use crate::db::Database;
use crate::error::Result;
use crate::event::Event;
use crate::event::hooks::Hooks;
use crate::event::logging::Subscriber;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Adjust, Bounds, Handle, ProcessEnd, Stopped};
use crate::process::base::health::RunsBeside;
use crate::process::base::heartbeat::{Heartbeat, HeartbeatGuard, HoldsClaims};
use crate::process::base::liveness::Liveness;
use crate::process::base::registration::{HeartbeatSettings, Hooked, Identity};
use crate::process::base::signals;
use crate::process::base::stop::{self, CUT_SHORT, Stop, end_program};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;

/// The settings that all services have.
#[derive(Debug, Clone)]
pub(crate) struct ServiceSettings {
    pub(crate) database: Database,
    pub(crate) heartbeat: HeartbeatSettings,
    pub(crate) hooks: Hooks,
    pub(crate) subscriber: Subscriber,
    /// The server of probes that answers for the process, if there is one.
    pub(crate) beside: Option<Arc<dyn RunsBeside>>,
    /// True if the program runs only this service, which may then end the program.
    pub(crate) is_program: bool,
    /// True if it starts without claiming.
    pub(crate) starts_quiet: bool,
}

impl ServiceSettings {
    pub(crate) fn new(database: &Database) -> Self {
        ServiceSettings {
            database: database.clone(),
            heartbeat: HeartbeatSettings::default(),
            hooks: Hooks::new(),
            subscriber: Subscriber::default(),
            beside: None,
            is_program: false,
            starts_quiet: false,
        }
    }
}

/// The parts in which the kinds of processes differ.
pub(crate) trait Service: Sized + 'static {
    /// The kind in its row, in events and for hooks.
    const KIND: &'static str;

    /// The name of its main thread.
    const NAME: &'static str;

    /// True if its loop shows the service manager that it is alive; otherwise its heartbeat does.
    const HAS_LOOP: bool = false;

    /// The result of its checks.
    type Checked;

    /// The service with its threads running.
    type Running: Send + 'static;

    fn settings(&self) -> &ServiceSettings;

    fn settings_mut(&mut self) -> &mut ServiceSettings;

    /// Checks the settings, before the database is used.
    ///
    /// # Errors
    /// Returns an error if the settings are impossible.
    fn check(&self) -> Result<Self::Checked>;

    /// Returns what its row contains.
    fn identity(&self) -> Identity;

    /// Returns how long a stop may take.
    fn bounds(&self) -> Bounds {
        Bounds::of_a_loop()
    }

    /// Returns the claims that depend on its heartbeats, if it has any.
    fn claims(_checked: &Self::Checked) -> Option<Arc<dyn HoldsClaims>> {
        None
    }

    /// Returns whether SIGHUP replaces its child programs, instead of stopping it.
    fn rolls_out(&self) -> bool {
        false
    }

    /// Returns what changes its settings while it runs, if anything can.
    fn adjusts(_checked: &Self::Checked) -> Option<Arc<dyn Adjust>> {
        None
    }

    /// Starts its threads, including the heartbeat.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    fn launch(
        self,
        checked: Self::Checked,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<Self::Running>;

    /// Runs until it is stopped, and ends what it has started.
    fn work(running: Self::Running, stop: &Stop) -> ProcessEnd;
}

/// Runs a service until SIGTERM or SIGINT.
pub(crate) fn run<S: Service>(mut service: S) -> Result<Stopped> {
    signals::install(service.rolls_out())?;
    let settings = service.settings_mut();
    settings.is_program = true;
    settings.starts_quiet = signals::is_quiet();
    let handle = start(service)?;
    signals::forward(&handle);
    Ok(notify_until_stopped(handle))
}

/// Starts a service on threads of this program.
pub(crate) fn start<S: Service>(service: S) -> Result<Handle> {
    let checked = service.check()?;
    let settings = service.settings().clone();
    let beside = settings.beside.as_ref().map(|one| one.prepare());
    let beside = beside.transpose()?;
    let context = ProcessContext::open(&settings.database, &settings.subscriber)?;
    context.stop.set_quiet(settings.starts_quiet);
    if S::HAS_LOOP {
        context.liveness.has_loop();
    }
    let bounds = service.bounds();
    let adjusts = S::adjusts(&checked);
    let hooked = Hooked::new(&settings.hooks, S::KIND);
    let launch = || {
        let (identity, claims) = (service.identity(), S::claims(&checked));
        let heartbeat = Heartbeat::new(&context, settings.heartbeat, identity, claims);
        service.launch(checked, &context, heartbeat)
    };
    let handle = Handle::start(S::NAME, &context, bounds, hooked, launch, S::work)?;
    let beside = beside.map(|one| one.start(handle.health())).transpose()?;
    Ok(handle.adjusted_by(adjusts).beside(beside))
}

type Loop = Box<dyn FnOnce(&ProcessContext, &Stop) + Send>;

/// A service that is a single loop.
pub(crate) struct RunningLoop {
    context: ProcessContext,
    guard: HeartbeatGuard,
    run: Loop,
}

impl RunningLoop {
    /// Starts the heartbeat of a loop.
    pub(crate) fn start(
        context: &ProcessContext,
        heartbeat: &Arc<Heartbeat>,
        run: impl FnOnce(&ProcessContext, &Stop) + Send + 'static,
    ) -> Result<Self> {
        Ok(RunningLoop {
            context: context.clone(),
            guard: HeartbeatGuard::start(context, heartbeat, |_, _| {})?,
            run: Box::new(run),
        })
    }

    /// Runs the loop until it is stopped.
    pub(crate) fn work<S: Service>(self, stop: &Stop) -> ProcessEnd {
        stop::guard(S::NAME, stop, || (self.run)(&self.context, stop));
        let stopping = Event::Stopping { kind: S::KIND };
        self.context.subscriber.emit(&stopping);
        drop(self.guard);
        ProcessEnd::default()
    }
}

// --- Notifies the service manager of a process' state: systemd's `Type=notify` ---

/// The interval at which the manager is notified of changes, and the longest time between two
/// checks for a stop.
const INTERVAL: Duration = Duration::from_millis(500);

/// Waits until the process of `handle` has ended. Meanwhile it notifies the service manager, if
/// there is one, that the process is ready, alive, and stopping.
///
/// Ends the program when its stop is overdue.
pub(crate) fn notify_until_stopped(handle: Handle) -> Stopped {
    let stopped = wait(handle);
    if stopped.is_overdue() {
        log::error!(
            "the stop takes too long, as the database gives no answer: this process ends as it is"
        );
        log::logger().flush();
        end_program(CUT_SHORT);
    }
    stopped
}

fn wait(mut handle: Handle) -> Stopped {
    // A supervisor reports for its children.
    if stop::is_supervised() || !stop::has_manager() {
        return handle.wait();
    }
    let mut manager = ServiceManager::new(handle.liveness());
    let stop = handle.stopper();
    while !stop.is_stopped() {
        manager.notify();
        stop.wait(manager.pause());
    }
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    loop {
        manager.pet();
        if let Some(stopped) = handle.join(manager.pause()) {
            return stopped;
        }
    }
}

/// Waits for a stop, or until something that the program serves has ended. Meanwhile it notifies the
/// service manager, if there is one, that the program is ready, alive, and stopping.
pub fn notify_until(stop: &Stop, is_alive: impl Fn() -> bool) {
    let has_manager = stop::has_manager();
    let notify = |state: NotifyState<'_>| {
        if has_manager {
            tell(&[state]);
        }
    };
    notify(NotifyState::Ready);
    let watchdog = sd_notify::watchdog_enabled().filter(|_| has_manager);
    let pause = watchdog.map_or(INTERVAL, |watchdog| INTERVAL.min(watchdog / 3));
    while !stop.wait(pause) && is_alive() {
        if watchdog.is_some() {
            notify(NotifyState::Watchdog);
        }
    }
    notify(NotifyState::Stopping);
}

struct ServiceManager {
    liveness: Liveness,
    watchdog: Option<Duration>,
    is_ready: bool,
    turns: u64,
    status: String,
    next_pet: std::time::Instant,
}

impl ServiceManager {
    fn new(liveness: Liveness) -> Self {
        ServiceManager {
            liveness,
            watchdog: sd_notify::watchdog_enabled(),
            is_ready: false,
            turns: 0,
            status: String::new(),
            next_pet: clock::instant(),
        }
    }

    /// Returns a third of the watchdog's time, so that one late notification does no harm.
    fn pause(&self) -> Duration {
        let pause = if self.is_ready {
            INTERVAL
        } else {
            INTERVAL / 20
        };
        self.watchdog
            .map_or(pause, |watchdog| pause.min(watchdog / 3))
    }

    fn notify(&mut self) {
        if !self.is_ready {
            // Children are started in the first turn. A process without a loop is ready at once: it
            // may have to wait for the database.
            if self.liveness.turns() == 0 && !self.liveness.is_waiting() {
                return;
            }
            self.is_ready = true;
            tell(&[NotifyState::Ready]);
        }
        let status = self.liveness.status();
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
        self.pet();
    }

    /// Notifies the watchdog, if the process is alive.
    fn pet(&mut self) {
        let Some(watchdog) = self.watchdog else {
            return;
        };
        let now = clock::instant();
        if now >= self.next_pet && self.is_alive() {
            self.next_pet = now + watchdog / 4;
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Returns whether the loop has turned since the last time, or has a reason not to. A process
    /// without a loop is alive while its heartbeats succeed.
    fn is_alive(&mut self) -> bool {
        let turns = self.liveness.turns();
        std::mem::replace(&mut self.turns, turns) != turns || self.liveness.is_waiting()
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot notify the service manager ({state:?}): {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager() -> (ServiceManager, Liveness) {
        let liveness = Liveness::default();
        liveness.waits_at_most(Duration::from_secs(3600));
        (ServiceManager::new(liveness.clone()), liveness)
    }

    #[test]
    fn a_loop_that_hangs_is_not_alive() {
        let (mut manager, liveness) = manager();
        liveness.has_loop();
        assert!(!manager.is_alive());
        liveness.turn(1, 2);
        assert!(manager.is_alive());
        assert!(!manager.is_alive());
        // The heartbeat is a thread of its own.
        liveness.beat();
        assert!(!manager.is_alive());
        // A database that does not answer is no reason for a restart.
        liveness.waiting(|| assert!(manager.is_alive() && manager.is_alive()));
        assert!(!manager.is_alive());
        liveness.rest();
        assert!(manager.is_alive());
    }

    /// Waits until the process does not count as alive any more, and returns how long that took.
    fn dies(manager: &mut ServiceManager) -> Duration {
        let start = clock::instant();
        while manager.is_alive() {
            assert!(start.elapsed() < Duration::from_secs(60));
            clock::nap(Duration::from_millis(5));
        }
        start.elapsed()
    }

    #[test]
    fn waiting_for_the_database_is_life_for_a_while_only() {
        let (mut manager, liveness) = manager();
        liveness.has_loop();
        liveness.waits_at_most(Duration::from_millis(50));
        let lived = liveness.waiting(|| dies(&mut manager));
        assert!(lived >= Duration::from_millis(45), "{lived:?}");
        liveness.waiting(|| assert!(manager.is_alive(), "the next wait starts anew"));
    }

    #[test]
    fn what_has_no_loop_lives_while_it_beats() {
        let (mut manager, liveness) = manager();
        assert!(!manager.is_alive(), "it has not started");
        liveness.waits_at_most(Duration::from_millis(50));
        liveness.beat();
        let lived = dies(&mut manager);
        assert!(lived >= Duration::from_millis(45), "{lived:?}");
        liveness.beat();
        assert!(manager.is_alive());
    }

    #[test]
    fn the_manager_is_told_how_many_children_run() {
        let liveness = Liveness::default();
        assert_eq!(liveness.status(), "running");
        liveness.turn(1, 2);
        assert_eq!(liveness.status(), "1 of 2 children run");
    }
}
