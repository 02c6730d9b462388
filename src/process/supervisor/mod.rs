//! The supervisor: starts workers, prunes dead processes, clears old rows.

pub(crate) mod alone;
pub mod children;
pub(crate) mod rollout;
pub(crate) mod run;

use crate::db::Database;
use crate::error::{Error, Result};
use crate::event::hooks::Hooks;
use crate::event::logging::Subscriber;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Bounds, Handle, ProcessEnd, Stopped};
use crate::process::base::health::RunsBeside;
use crate::process::base::heartbeat::{Heartbeat, HeartbeatGuard};
use crate::process::base::registration::Identity;
use crate::process::base::service::{self, Service, ServiceSettings};
use crate::process::base::session::Session;
use crate::process::base::stop::{self, KILL_GRACE, Stop};
use crate::process::dispatcher::Dispatcher;
use crate::process::scheduler::Scheduler;
use crate::process::supervisor::children::Child;
use crate::process::supervisor::run::{RunningSupervisor, SupervisorSetup};
use crate::process::upkeep::fold::Fold;
use crate::process::upkeep::operate::Operate;
use crate::process::upkeep::{Duty, Upkeep, clear};
use crate::process::worker::builder::Worker;
use crate::retention::Retention;
use rustix::fs::{FlockOperation, flock, fstat, stat};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

// --- A supervisor: its settings, and how it starts ---

/// Runs child programs, dispatchers, schedulers and workers, and prunes dead processes: a child at
/// once, any other after the alive threshold. Any number of supervisors may run, on any host.
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
    service: ServiceSettings,
    pub(crate) children: Vec<Child>,
    dispatchers: Vec<Dispatcher>,
    schedulers: Vec<Scheduler>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) shutdown_timeout: Duration,
    retention: Retention,
    pidfile: Option<PathBuf>,
}

/// The time for a statement that is under way at the end.
const A_STATEMENT: Duration = Duration::from_secs(3);

impl Supervisor {
    /// Creates a supervisor that only prunes dead processes and clears old rows.
    pub fn new(database: &Database) -> Self {
        Supervisor {
            service: ServiceSettings::new(database),
            children: Vec::new(),
            dispatchers: Vec::new(),
            schedulers: Vec::new(),
            workers: Vec::new(),
            shutdown_timeout: Duration::from_secs(25),
            retention: Retention::new(),
            pidfile: None,
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

    /// Sets how often the supervisor sends a heartbeat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.service.heartbeat.interval = interval;
        self
    }

    /// Sets after how long without a heartbeat a process is treated as dead. The processes must
    /// send at least three heartbeats in this time. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.service.heartbeat.threshold = threshold;
        self
    }

    /// Sets how long children may take to stop; their own shutdown timeout should be equal.
    /// Default: 25 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets how long the rows of ended jobs and of the audit are kept. Default: finished jobs for a
    /// day, failed jobs permanently, the audit for 400 days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets a file that the supervisor locks while it runs, with its process id in it. A second
    /// supervisor with the same file refuses to start. A file that was left behind does no harm.
    /// Default: none.
    pub fn pidfile(mut self, path: impl Into<PathBuf>) -> Self {
        self.pidfile = Some(path.into());
        self
    }

    /// Serves probes for as long as the supervisor runs, and answers there for it and for what
    /// runs on its threads. Its child programs have probes of their own, if any.
    ///
    /// The crate `windlass-console` has them: `windlass_console::web::Probes`.
    ///
    /// # Errors
    /// [`start`](Self::start) and [`run`](Self::run) fail if the address is in use.
    pub fn probes(mut self, probes: impl RunsBeside + 'static) -> Self {
        self.service.beside = Some(Arc::new(probes));
        self
    }

    /// Sets the hooks to call when the supervisor starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.service.hooks = hooks;
        self
    }

    /// Sets the subscriber that receives the supervisor's events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.service.subscriber = subscriber;
        self
    }

    /// Supervises until SIGTERM or SIGINT. Call it on the main thread of a program.
    ///
    /// SIGHUP makes a supervisor with child programs replace them one by one: it stops one
    /// gracefully, starts it anew, waits until it is registered, and goes on with the next. Without
    /// child programs, SIGHUP stops it.
    ///
    /// SIGTSTP makes all workers stop claiming, SIGCONT makes them claim again. Under systemd
    /// (`Type=notify`) the supervisor reports when it is ready and when it stops, and satisfies the
    /// watchdog (`WatchdogSec=`) while its loop turns. As the first process of a container it reaps
    /// the processes that jobs leave behind, unless it runs workers on threads of its own, whose
    /// jobs may have children themselves.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        service::run(self)
    }

    /// Starts supervising on threads of this program and returns at once. No
    /// signal handler is installed.
    ///
    /// # Errors
    /// Returns an error if the settings are impossible, the tables are missing or too old, or
    /// another process holds the pidfile.
    pub fn start(self) -> Result<Handle> {
        service::start(self)
    }

    /// Checks the intervals of the supervisor, and of what it runs on threads. Children check their
    /// own.
    fn check_heartbeats(&self) -> Result<()> {
        let own = self.service.heartbeat;
        own.check()?;
        let dispatchers = self
            .dispatchers
            .iter()
            .map(|one| ("dispatcher", one.settings()));
        let schedulers = self
            .schedulers
            .iter()
            .map(|one| ("scheduler", one.settings()));
        let workers = self.workers.iter().map(|one| ("worker", one.settings()));
        dispatchers
            .chain(schedulers)
            .chain(workers)
            .try_for_each(|(part, settings)| own.check_part(part, settings.heartbeat))
    }

    fn start_threads(&self) -> Result<Vec<Handle>> {
        let dispatchers = self.dispatchers.iter().cloned().map(Dispatcher::start);
        let schedulers = self.schedulers.iter().cloned().map(Scheduler::start);
        let workers = self.workers.iter().cloned().map(Worker::start);
        dispatchers.chain(schedulers).chain(workers).collect()
    }
}

/// A supervisor with its threads running.
pub(crate) struct SupervisorThreads {
    supervisor: RunningSupervisor,
    guard: HeartbeatGuard,
    upkeep: JoinHandle<()>,
    _pidfile: Option<Pidfile>,
}

impl Service for Supervisor {
    const KIND: &'static str = "Supervisor";
    const NAME: &'static str = "supervisor";
    const HAS_LOOP: bool = true;
    /// The pidfile that it holds, if one is set.
    type Checked = Option<Pidfile>;
    type Running = SupervisorThreads;

    fn settings(&self) -> &ServiceSettings {
        &self.service
    }

    fn settings_mut(&mut self) -> &mut ServiceSettings {
        &mut self.service
    }

    fn check(&self) -> Result<Option<Pidfile>> {
        if self.workers.iter().any(Worker::is_recycled) {
            return Err(Error::Settings(
                "a worker on threads of the supervisor cannot be recycled: \
                 run it as a child, or without `recycle`"
                    .to_owned(),
            ));
        }
        if self.workers.iter().any(Worker::is_until_idle) {
            return Err(Error::Settings(
                "a worker on threads of the supervisor cannot end when it is idle: run it alone"
                    .to_owned(),
            ));
        }
        if !self.workers.iter().all(Worker::runs_alone) {
            return Err(Error::Settings(
                "a worker on threads of the supervisor has no dispatcher or scheduler of its own: \
                 give these to the supervisor"
                    .to_owned(),
            ));
        }
        if self.retention.every.is_zero() {
            return Err(Error::Settings(
                "a retention needs an interval above zero: it would look all the time".to_owned(),
            ));
        }
        if self
            .retention
            .audit_for
            .is_some_and(|age| age < Retention::AUDIT_AT_LEAST)
        {
            return Err(Error::Settings(
                "the audit is kept for at least 30 days: the database refuses to delete younger rows"
                    .to_owned(),
            ));
        }
        self.check_heartbeats()?;
        self.pidfile.as_deref().map(Pidfile::hold).transpose()
    }

    fn rolls_out(&self) -> bool {
        self.children.iter().any(|child| child.processes > 0)
    }

    fn identity(&self) -> Identity {
        Identity {
            channel: None,
            kind: Self::KIND,
            metadata: serde_json::json!({
                "children": self.children.iter().map(|child| child.processes).sum::<usize>(),
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            shutdown_timeout: self.shutdown_timeout,
            kill_grace: KILL_GRACE,
        }
    }

    /// After an error, the rest is dropped, and that ends it.
    fn launch(
        self,
        pidfile: Option<Pidfile>,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<SupervisorThreads> {
        let upkeep = upkeep(context, self.retention);
        let threads = self.start_threads()?;
        for thread in &threads {
            context.health.has_part(thread.health());
        }
        let guard = HeartbeatGuard::start(context, &heartbeat, |_, _| {})?;
        let upkeep = stop::spawn_vital("upkeep", &context.stop, {
            let context = context.clone();
            move || upkeep.run(&mut Session::of_loop(&context, "upkeep"), &context.stop)
        })?;
        let settings = SupervisorSetup {
            reaps: self.service.is_program && self.workers.is_empty(),
            children: self.children,
            heartbeat: self.service.heartbeat,
            shutdown_timeout: self.shutdown_timeout,
        };
        Ok(SupervisorThreads {
            supervisor: RunningSupervisor::new(&settings, context, heartbeat, threads),
            guard,
            upkeep,
            _pidfile: pidfile,
        })
    }

    fn work(running: SupervisorThreads, stop: &Stop) -> ProcessEnd {
        let ending = running.supervisor.run(stop, running.guard);
        stop::join_within(vec![running.upkeep], A_STATEMENT);
        ending
    }
}

/// Returns the duties of a supervisor, apart from those that its children depend on.
fn upkeep(context: &ProcessContext, retention: Retention) -> Upkeep {
    let mut duties: Vec<Box<dyn Duty>> = vec![
        Box::new(Operate::default()),
        Box::new(Fold::in_supervisor(&context.stop)),
    ];
    duties.extend(clear::duties(retention));
    Upkeep::new(duties, &context.duties)
}

// --- The file that prevents a second supervisor on a host ---

#[expect(
    clippy::cast_possible_wrap,
    reason = "a flag, and the standard library wants it signed"
)]
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// A pidfile that this process holds. The lock counts, not the number in the file: the system
/// releases it when its holder ends, however it ends. So a stale file has no effect, and neither
/// has a reused process id.
///
/// No child inherits it: the standard library closes its descriptors on exec.
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
    _file: File,
}

impl Pidfile {
    /// Creates, locks and writes the file.
    ///
    /// # Errors
    /// Returns an error if another process holds it, or it cannot be written.
    pub(crate) fn hold(path: &Path) -> Result<Self> {
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                // A file that a link points to must not be overwritten.
                .custom_flags(NO_FOLLOW)
                .mode(0o644)
                .open(path)
                .map_err(|source| io("open the pidfile", path, source))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::AlreadyRunning {
                        path: path.to_owned(),
                        holder: holder(&mut file),
                    });
                }
                Err(source) => return Err(io("lock the pidfile", path, source.into())),
            }
            // Its last holder may have removed it since it was opened: then the lock is on a file
            // that no other process can find.
            if !is_at(&file, path) {
                continue;
            }
            write(&mut file).map_err(|source| io("write the pidfile", path, source))?;
            return Ok(Pidfile {
                path: path.to_owned(),
                _file: file,
            });
        }
    }
}

impl Drop for Pidfile {
    /// Removes the file while it is locked, so that it is this process' own.
    fn drop(&mut self) {
        if is_at(&self._file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (fstat(file), stat(path)) {
        (Ok(held), Ok(found)) => (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino),
        _ => false,
    }
}

fn write(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        // The file is locked, and not written yet.
        Err(_) => "another process".to_owned(),
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_stale_files_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        // The id of a process that is gone, and longer than what will be written.
        std::fs::write(&path, "4194304999\n").unwrap();
        let held = Pidfile::hold(&path).unwrap();
        let own = format!("{}\n", std::process::id());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), own);
        let second = Pidfile::hold(&path).unwrap_err().to_string();
        assert!(
            second.contains(&format!("process {}", own.trim())),
            "{second}"
        );
        drop(held);
        assert!(!path.exists());
        drop(Pidfile::hold(&path).unwrap());
    }

    #[test]
    fn a_file_that_somebody_put_in_its_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let first = Pidfile::hold(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Pidfile::hold(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }

    #[test]
    fn a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (
            directory.path().join("pid"),
            directory.path().join("victim"),
        );
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(Pidfile::hold(&path).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(path.symlink_metadata().is_ok(), "the link stays");
        std::fs::remove_file(&path).unwrap();
        let _held = Pidfile::hold(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o133, 0, "{mode:o}");
    }

    #[test]
    fn a_directory_that_is_missing_is_told() {
        let error = Pidfile::hold(Path::new("/no/such/place/pid")).unwrap_err();
        assert!(error.to_string().contains("/no/such/place/pid"), "{error}");
    }
}
