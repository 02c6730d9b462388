//! A supervisor: its settings, and how it starts.

use crate::db::Database;
use crate::error::{Error, Result};
use crate::event::hooks::Hooks;
use crate::event::subscriber::Subscriber;
use crate::process::base::context::Lifeline;
use crate::process::base::exit_codes::MERCY;
use crate::process::base::handle::{Bounds, Handle, Stopped};
use crate::process::base::heartbeat::Heart;
use crate::process::base::registration::{Pulse, Who};
use crate::process::base::run_hooks::Hooked;
use crate::process::base::{service_manager, signals, threads};
use crate::process::dispatcher::builder::Dispatcher;
use crate::process::scheduler::builder::Scheduler;
use crate::process::supervisor::children::Child;
use crate::process::supervisor::pidfile::Pidfile;
use crate::process::supervisor::retention::Clearing;
use crate::process::supervisor::run::{Settings, Supervising};
use crate::process::worker::builder::Worker;
use crate::retention::Retention;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Runs child programs, dispatchers, schedulers and workers, and prunes dead
/// processes: a child at once, any other after the alive threshold. Any number
/// of supervisors may run, on any host.
///
/// ```no_run
/// # use windlass::{Child, Database, Dispatcher, Supervisor};
/// # fn main() -> windlass::Result<()> {
/// let database = Database::open("postgres://localhost/app")?;
/// Supervisor::new(&database)
///     .child(Child::this_program(["worker"])?.processes(2))
///     .dispatcher(Dispatcher::new(&database))
///     .run()?; // until SIGTERM or SIGINT
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a supervisor does nothing until `run` or `start`"]
pub struct Supervisor {
    database: Database,
    pub(crate) children: Vec<Child>,
    dispatchers: Vec<Dispatcher>,
    schedulers: Vec<Scheduler>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) pulse: Pulse,
    pub(crate) shutdown_timeout: Duration,
    retention: Retention,
    subscriber: Subscriber,
    pidfile: Option<PathBuf>,
    /// Whether the program is the supervisor's: all its children are.
    pub(crate) is_program: bool,
    begins_quiet: bool,
    hooks: Hooks,
}

/// For a statement under way at the end.
const A_STATEMENT: Duration = Duration::from_secs(3);

impl Supervisor {
    /// A supervisor that only prunes dead processes and clears what is old.
    pub fn new(database: &Database) -> Self {
        Supervisor {
            database: database.clone(),
            children: Vec::new(),
            dispatchers: Vec::new(),
            schedulers: Vec::new(),
            workers: Vec::new(),
            pulse: Pulse::default(),
            shutdown_timeout: Duration::from_secs(25),
            retention: Retention::new(),
            subscriber: Subscriber::default(),
            pidfile: None,
            is_program: false,
            begins_quiet: false,
            hooks: Hooks::new(),
        }
    }

    /// Runs a child program, and runs it again when it ends.
    pub fn child(mut self, child: Child) -> Self {
        self.children.push(child);
        self
    }

    /// Runs a dispatcher on a thread of this process.
    pub fn dispatcher(mut self, dispatcher: Dispatcher) -> Self {
        self.dispatchers.push(dispatcher);
        self
    }

    /// Runs a scheduler on a thread of this process.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.schedulers.push(scheduler);
        self
    }

    /// Runs a worker on threads of this process.
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// How often to beat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.pulse.interval = interval;
        self
    }

    /// After how long without a heartbeat a process is taken for dead. The
    /// processes must beat at least three times in it. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.pulse.threshold = threshold;
        self
    }

    /// How long children may take to stop; theirs should be as long.
    /// Default: 25 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// How long jobs that have ended are kept. Default: finished ones for a
    /// day, failed ones for ever.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// A file that the supervisor holds for as long as it runs, with its
    /// process id: a second one with the same file refuses to start. One that
    /// was left behind does no harm. Default: none.
    pub fn pidfile(mut self, path: impl Into<PathBuf>) -> Self {
        self.pidfile = Some(path.into());
        self
    }

    /// What to do when it starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Who hears of events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.subscriber = subscriber;
        self
    }

    /// Supervises until SIGTERM or SIGINT. For the main thread of a program.
    ///
    /// SIGTSTP lets all workers claim no more, SIGCONT lets them claim again.
    /// Under systemd (`Type=notify`) it says when it is ready and when it
    /// stops, and keeps the watchdog (`WatchdogSec=`) quiet for as long as its
    /// loop goes round. As the first process of a container it reaps what jobs
    /// leave behind, unless it runs workers on threads of its own, whose jobs
    /// may have children themselves.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(mut self) -> Result<Stopped> {
        signals::install()?;
        self.is_program = true;
        self.begins_quiet = signals::is_quiet();
        let handle = self.start()?;
        signals::forward(&handle);
        Ok(service_manager::attend(handle))
    }

    /// Starts supervising on threads of this program and returns at once. No
    /// signal handler is installed.
    ///
    /// # Errors
    /// When the settings are impossible, the tables missing or too old, or the
    /// pidfile held by another.
    pub fn start(self) -> Result<Handle> {
        self.check()?;
        let pidfile = self.pidfile.as_deref().map(Pidfile::hold).transpose()?;
        let lifeline = Lifeline::open(&self.database, &self.subscriber)?;
        let who = Who {
            channel: None,
            kind: "Supervisor",
            metadata: serde_json::json!({
                "children": self.children.iter().map(|child| child.processes).sum::<usize>(),
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        };
        lifeline.liveness.has_loop();
        let heart = Heart::new(&lifeline, self.pulse, who);
        // What fails drops the rest, and that ends it.
        let clearing = Clearing::new(&lifeline, self.retention);
        let stop = lifeline.stop.clone();
        let start = || {
            let (threads, beats) = (self.start_threads()?, heart.start(|_, _| {})?);
            let clears = threads::spawn_vital("clearing", &stop, || clearing.run())?;
            Ok((threads, beats, clears))
        };
        let begins_quiet = self.begins_quiet;
        let settings = Settings {
            children: self.children.clone(),
            pulse: self.pulse,
            shutdown_timeout: self.shutdown_timeout,
            reaps: self.is_program && self.workers.is_empty(),
        };
        let hooked = Hooked::new(&self.hooks, "Supervisor");
        let bounds = Bounds {
            shutdown_timeout: self.shutdown_timeout,
            mercy: MERCY,
        };
        Handle::start("supervisor", (&lifeline.clone(), bounds), hooked, start, {
            let heart = Arc::clone(&heart);
            move |(threads, beats, clears), stop| {
                stop.turn(begins_quiet);
                let ending =
                    Supervising::new(&settings, &lifeline, heart, threads).run(stop, beats);
                threads::join_within(vec![clears], A_STATEMENT);
                drop(pidfile);
                ending
            }
        })
    }

    fn check(&self) -> Result<()> {
        if self.workers.iter().any(Worker::is_recycled) {
            return Err(Error::Settings(
                "a worker on threads of the supervisor cannot be recycled: \
                 run it as a child, or without `recycle`"
                    .to_owned(),
            ));
        }
        if self.retention.every.is_zero() {
            return Err(Error::Settings(
                "a retention needs an interval above zero: it would look all the time".to_owned(),
            ));
        }
        self.pulse.check()
    }

    fn start_threads(&self) -> Result<Vec<Handle>> {
        let dispatchers = self.dispatchers.iter().cloned().map(Dispatcher::start);
        let schedulers = self.schedulers.iter().cloned().map(Scheduler::start);
        let workers = self.workers.iter().cloned().map(Worker::start);
        dispatchers.chain(schedulers).chain(workers).collect()
    }
}
