//! The handle of a process that runs on threads of this program.

use crate::clock;
use crate::deadline::is_silent;
use crate::error::{Error, Result};
use crate::job::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::health::{Health, RunningBeside};
use crate::process::base::liveness::Liveness;
use crate::process::base::registration::Hooked;
use crate::process::base::stop::{self, BROKEN, CUT_SHORT, RECYCLED, Stop};
use crate::queue::QueueSelector;
use crossbeam_channel::{Receiver, bounded, select};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A worker, dispatcher, scheduler or supervisor that runs on threads of this program. Dropping it
/// requests a stop, and waits until the process has ended or the stop is
/// [overdue](Stopped::is_overdue).
///
/// ```
/// use std::time::Duration;
/// use windlass::{Database, Registry, Worker};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("jobs.db");
/// let database = Database::open(&format!("sqlite://{}", path.display()))?;
/// database.migrate()?;
/// let mut worker = Worker::new(&database, Registry::new()).start()?; // on threads of this process
/// worker.stop();
/// let stopped = worker.join(Duration::from_secs(60)).expect("it stops");
/// assert!(stopped.unfinished.is_empty());
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug)]
pub struct Handle {
    stop: Stop,
    ending: Receiver<ProcessEnd>,
    ended: Option<Stopped>,
    bounds: Bounds,
    liveness: Liveness,
    health: Health,
    adjusts: Option<Arc<dyn Adjust>>,
    /// It answers until the process has ended.
    beside: Option<Box<dyn RunningBeside>>,
}

/// The time limits of a stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The longest time that running jobs may continue.
    pub(crate) shutdown_timeout: Duration,
    /// The longest time that the rest of the stop may then take while the database gives no answer.
    pub(crate) kill_grace: Duration,
}

/// The kill grace of every process except supervisors.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(3);

/// The kill grace after `stop_now`.
const KILL_GRACE_NOW: Duration = Duration::from_secs(1);

/// The kill grace while the database answers, or while hooks of the program run.
const LONG_KILL_GRACE: Duration = Duration::from_secs(20);

/// A database without an answer for this long counts as silent.
const SILENT: Duration = Duration::from_millis(500);

/// The interval at which `join` checks whether the stop is overdue.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Bounds {
    /// Returns the bounds of a process that runs no jobs.
    pub(crate) fn of_a_loop() -> Self {
        Bounds {
            shutdown_timeout: Duration::ZERO,
            kill_grace: KILL_GRACE,
        }
    }

    /// Returns how much longer a stop may take, or `None` if none was requested.
    fn left(self, stop: &Stop) -> Option<Duration> {
        let asked = stop.asked_at()?;
        let (mut kill_grace, mut kill_grace_now) = (self.kill_grace, KILL_GRACE_NOW);
        if !is_silent(SILENT) {
            (kill_grace, kill_grace_now) = (LONG_KILL_GRACE, LONG_KILL_GRACE);
        }
        let add = |at: Instant, more: Duration| at.checked_add(more);
        let gently = add(asked, self.shutdown_timeout.saturating_add(kill_grace));
        let now = stop.asked_now_at().and_then(|at| add(at, kill_grace_now));
        let end = gently.into_iter().chain(now).min();
        let left = end.map(|end| end.saturating_duration_since(clock::instant()));
        Some(left.unwrap_or(clock::NEVER))
    }
}

impl Handle {
    /// Starts a thread that runs `work` on what `make` returns. The thread is started first, so
    /// that nothing runs if it cannot be started; when `make` or a hook fails, the stop ends what
    /// was started.
    pub(crate) fn start<T: Send + 'static>(
        name: &'static str,
        context: &ProcessContext,
        bounds: Bounds,
        hooked: Hooked,
        make: impl FnOnce() -> Result<T>,
        work: impl FnOnce(T, &Stop) -> ProcessEnd + Send + 'static,
    ) -> Result<Handle> {
        let (sender, ending) = bounded(1);
        let (made, parts) = bounded(1);
        stop::spawn(name, {
            let (stop, hooked) = (context.stop.clone(), hooked.clone());
            let health = context.health.clone();
            move || {
                let ending = parts.recv().ok().and_then(|parts| {
                    let awaiting = hooked.await_stop(&stop);
                    let ending = stop::guard(name, &stop, || work(parts, &stop));
                    // Threads that wait for the stop must not wait longer than this process runs.
                    stop.stop();
                    hooked.exit(awaiting, &stop);
                    health.ended();
                    ending
                });
                let _ = sender.send(ending.unwrap_or_default());
            }
        })?;
        let handle = Handle {
            stop: context.stop.clone(),
            liveness: context.liveness.clone(),
            health: Health::new(name, &context.health, &context.stop, &context.liveness),
            ending,
            ended: None,
            bounds,
            adjusts: None,
            beside: None,
        };
        match hooked.start().and_then(|()| make()) {
            Ok(parts) => {
                let _ = made.send(parts);
                Ok(handle)
            }
            Err(error) => {
                drop(made);
                Err(error)
            }
        }
    }

    /// Requests a graceful stop and returns at once.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Makes workers stop claiming. Running jobs continue, and the workers stay. A dispatcher
    /// ignores this; a supervisor passes it on to its processes.
    pub fn quiet(&self) {
        self.stop.quiet();
    }

    /// Makes workers claim again.
    pub fn resume(&self) {
        self.stop.resume();
    }

    /// Sets what changes the settings of the process.
    pub(crate) fn adjusted_by(mut self, adjusts: Option<Arc<dyn Adjust>>) -> Self {
        self.adjusts = adjusts;
        self
    }

    /// Keeps what answers for the process for as long as there is a handle.
    pub(crate) fn beside(mut self, beside: Option<Box<dyn RunningBeside>>) -> Self {
        self.beside = beside;
        self
    }

    fn adjusts(&self) -> Result<&dyn Adjust> {
        self.adjusts.as_deref().ok_or_else(|| {
            Error::Settings("only a worker has threads and queues to change".to_owned())
        })
    }

    /// Changes how many jobs a worker runs at once, from 1 to 10,000. More threads start at once.
    /// With fewer, jobs that run continue, and their threads end after them; claims that no thread
    /// has started are released. The row of the process shows the new number.
    ///
    /// # Errors
    /// Returns an error if the number is 0 or too large, if a thread cannot be started, if the
    /// worker stops, or if this is not a worker. A supervisor's own workers cannot be changed.
    pub fn threads(&self, threads: usize) -> Result<()> {
        self.adjusts()?.threads(threads)
    }

    /// Changes the queues of a worker, in their order, from its next claim on: `mail`, `import*`,
    /// `*`. Jobs that it has claimed continue.
    ///
    /// # Errors
    /// Returns an error if there is no queue, if one is not a name, a prefix or `*`, if the worker
    /// stops, or if this is not a worker.
    pub fn queues<S: AsRef<str>>(&self, queues: impl IntoIterator<Item = S>) -> Result<()> {
        let queues = queues.into_iter().map(|queue| queue.as_ref().parse());
        self.adjusts()?.queues(queues.collect::<Result<_>>()?)
    }

    /// Makes a supervisor replace its child programs one by one, as SIGHUP does: each is stopped
    /// gracefully and started anew before the next. Other processes ignore this.
    pub fn restart_children(&self) {
        self.stop.request_rollout();
    }

    /// Requests an immediate end: running jobs are not waited for.
    pub fn stop_now(&self) {
        self.stop.stop_now();
    }

    /// Waits up to `timeout` for the end. Returns `None` if the process still runs.
    ///
    /// A stop that takes much longer than the shutdown timeout (3 s, or 5 s for a supervisor, while the
    /// database gives no answer, or another program holds SQLite's write lock) is reported as
    /// [overdue](Stopped::is_overdue) instead of being waited for.
    pub fn join(&mut self, timeout: Duration) -> Option<Stopped> {
        let until = clock::deadline(timeout);
        while self.ended.is_none() {
            let left = until.saturating_duration_since(clock::instant());
            self.ended = self.wait_once(left);
            if left.is_zero() {
                break;
            }
        }
        self.ended.clone()
    }

    /// Waits for the end, or until a stop may have been requested or become overdue.
    fn wait_once(&self, most: Duration) -> Option<Stopped> {
        let left = self.bounds.left(&self.stop);
        let ending = match left {
            None => select! {
                recv(self.ending) -> ending => Some(ending),
                recv(self.stop.channel()) -> _ => None,
                default(most) => None,
            },
            Some(_) => select! {
                recv(self.ending) -> ending => Some(ending),
                default(most.min(CHECK_INTERVAL)) => None,
            },
        };
        let overdue = ending.is_none();
        let ending = match ending {
            Some(Ok(ending)) => ending,
            // The thread ended without sending how.
            Some(Err(_)) => {
                self.stop.break_down();
                ProcessEnd::default()
            }
            None if left == Some(Duration::ZERO) => ProcessEnd {
                unfinished: Vec::new(),
                cut_short: true,
            },
            None => return None,
        };
        Some(Stopped {
            unfinished: ending.unfinished,
            cut_short: ending.cut_short,
            broken: self.stop.is_broken(),
            recycled: self.stop.is_recycled(),
            overdue,
        })
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(mut self) -> Stopped {
        loop {
            if let Some(stopped) = self.join(Duration::from_secs(3600)) {
                return stopped;
            }
        }
    }

    pub(crate) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Returns the health of the process, for probes and load balancers. It may be asked from any
    /// thread, also after this handle was dropped.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.join(Duration::ZERO).is_some()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.stop();
        while self.join(Duration::from_secs(3600)).is_none() {}
    }
}

// --- The end of a process ---

/// The state in which the threads of a process ended.
#[derive(Debug, Default)]
pub(crate) struct ProcessEnd {
    pub(crate) unfinished: Vec<JobId>,
    /// A child had to be killed, or left jobs behind.
    pub(crate) cut_short: bool,
}

/// The result of a stop, with the jobs that it left unfinished.
///
/// ```
/// use std::process::ExitCode;
/// use windlass::{Database, Registry, Worker};
///
/// fn run(database: &Database) -> windlass::Result<ExitCode> {
///     let stopped = Worker::new(database, Registry::new()).run()?;
///     Ok(stopped.exit_code()) // by which a supervisor sees why the process has ended
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The jobs that were still running at the deadline, or ended with the stop. They were
    /// released, or failed if they may run at most once. A supervisor lists the jobs of its own
    /// threads, not those of its children.
    pub unfinished: Vec<JobId>,
    pub(super) cut_short: bool,
    pub(super) broken: bool,
    pub(super) recycled: bool,
    pub(super) overdue: bool,
}

impl Stopped {
    /// Returns whether every running job finished, including those of child processes.
    pub fn is_drained(&self) -> bool {
        self.unfinished.is_empty() && !self.cut_short
    }

    /// Returns whether the stop took too long, for example because the database gave no answer, and
    /// was not waited for. Threads of the process may still run. Its claims are recovered like
    /// those of a process that died.
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns whether the process ended because a thread of the framework panicked or the database
    /// was permanently lost.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether the worker ended to be replaced by a new one; see
    /// [`Recycle`](crate::processes::Recycle).
    pub fn is_recycled(&self) -> bool {
        self.recycled
    }

    /// Returns the exit code: 0 when drained, 75 (try again) when cut short, 70 when broken. A
    /// recycled child of a supervisor returns 79, so that its replacement starts without a delay.
    pub fn exit_code(&self) -> ExitCode {
        if self.broken {
            ExitCode::from(BROKEN)
        } else if self.recycled && self.is_drained() && stop::is_supervised() {
            ExitCode::from(RECYCLED)
        } else if self.is_drained() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(CUT_SHORT)
        }
    }
}

// --- Changes of a process while it runs ---

/// A running process whose settings can be changed.
pub(crate) trait Adjust: std::fmt::Debug + Send + Sync {
    /// Changes how many jobs run at once.
    ///
    /// # Errors
    /// Returns an error if the number is impossible, or the process stops.
    fn threads(&self, threads: usize) -> Result<()>;

    /// Changes the queues to claim from.
    ///
    /// # Errors
    /// Returns an error if there are none, or the process stops.
    fn queues(&self, queues: Vec<QueueSelector>) -> Result<()>;
}
