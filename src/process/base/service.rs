//! How workers, dispatchers, schedulers and supervisors start, register, run
//! and stop.

use crate::db::Database;
use crate::error::Result;
use crate::event::events::Event;
use crate::event::hooks::Hooks;
use crate::event::subscriber::Subscriber;
use crate::process::base::adjust::Adjust;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Bounds, Handle, ProcessEnd, Stopped};
use crate::process::base::health::beside::RunsBeside;
use crate::process::base::heartbeat::{Heartbeat, HoldsClaims};
use crate::process::base::heartbeat_guard::HeartbeatGuard;
use crate::process::base::registration::{HeartbeatSettings, Identity};
use crate::process::base::run_hooks::Hooked;
use crate::process::base::stop::Stop;
use crate::process::base::{service_manager, signals, threads};
use std::sync::Arc;

/// The settings that all services have.
#[derive(Debug, Clone)]
pub(crate) struct ServiceSettings {
    pub(crate) database: Database,
    pub(crate) heartbeat: HeartbeatSettings,
    pub(crate) hooks: Hooks,
    pub(crate) subscriber: Subscriber,
    /// What answers for the process, if anything does.
    pub(crate) beside: Option<Arc<dyn RunsBeside>>,
    /// Whether the program runs only this service, which may then end the program.
    pub(crate) is_program: bool,
    /// Whether it starts without claiming.
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

/// What differs between the kinds of processes.
pub(crate) trait Service: Sized + 'static {
    /// The kind in its row, in events and for hooks.
    const KIND: &'static str;

    /// The name of its main thread.
    const NAME: &'static str;

    /// Whether its loop shows the service manager that it is alive; otherwise
    /// its heartbeat does.
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
    Ok(service_manager::notify_until_stopped(handle))
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
        threads::guard(S::NAME, stop, || (self.run)(&self.context, stop));
        let stopping = Event::Stopping { kind: S::KIND };
        self.context.subscriber.emit(&stopping);
        drop(self.guard);
        ProcessEnd::default()
    }
}
