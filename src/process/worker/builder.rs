//! A worker: a poller, job threads, a completer, a heartbeat, a listener.

use crate::db::Database;
use crate::db::model::claim::FinishedRow;
use crate::error::{Error, Result};
use crate::event::hooks::Hooks;
use crate::event::logging::Subscriber;
use crate::job::registry::Registry;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Adjust, Bounds, KILL_GRACE, ProcessEnd};
use crate::process::base::health::RunsBeside;
use crate::process::base::heartbeat::{Heartbeat, HoldsClaims};
use crate::process::base::registration::Identity;
use crate::process::base::service::{Service, ServiceSettings};
use crate::process::base::stop::Stop;
use crate::process::worker::run::{CheckedWorker, RunningWorker};
use crate::process::worker::settings::{self, Recycle, WorkerSetup};
use crate::queue::QueueSelector;
use crate::recurring::task::RecurringTask;
use crate::retention::Retention;
use std::sync::Arc;
use std::time::Duration;

/// Claims jobs and performs them on threads of its own.
///
/// ```no_run
/// # use windlass::{Database, Registry, Worker};
/// # fn registry() -> Registry { Registry::new() }
/// # fn main() -> windlass::Result<()> {
/// let database = Database::open("postgres://localhost/app")?;
/// let stopped = Worker::new(&database, registry())
///     .queues(["mail", "import*"])?
///     .threads(5)
///     .run()?; // until SIGTERM or SIGINT
/// std::process::exit(if stopped.is_drained() { 0 } else { 75 });
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a worker does nothing until `run` or `start`"]
pub struct Worker {
    settings: WorkerSetup,
    parts: WorkerParts,
}

/// The processes that run on threads beside a worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerParts {
    pub(crate) dispatcher: bool,
    pub(crate) scheduler: bool,
    pub(crate) tasks: Vec<RecurringTask>,
}

impl Worker {
    /// Creates a worker for all queues, with 5 threads.
    pub fn new(database: &Database, registry: Registry) -> Self {
        Worker {
            settings: WorkerSetup {
                service: ServiceSettings::new(database),
                registry,
                queues: vec![QueueSelector::All],
                threads: 5,
                polling_interval: Duration::from_secs(5),
                shutdown_timeout: Duration::from_secs(25),
                finished: FinishedRow::Keep,
                longest_wait: Retention::EVENTS,
                recycle: Recycle::new(),
                until_idle: false,
            },
            parts: WorkerParts::default(),
        }
    }

    /// Sets the queues to serve, in this order: `mail`, `import*`, `*`.
    ///
    /// # Errors
    /// Returns an error if one is not a name, a prefix or `*`.
    pub fn queues<S: AsRef<str>>(mut self, queues: impl IntoIterator<Item = S>) -> Result<Self> {
        self.settings.queues = queues
            .into_iter()
            .map(|queue| queue.as_ref().parse())
            .collect::<Result<_>>()?;
        Ok(self)
    }

    /// Sets how many jobs run at once, at most 10,000. Default: 5.
    /// [`Handle::threads`](crate::Handle::threads) changes it later.
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads;
        self
    }

    /// Sets how often to look for work without a notification. Default: 5 s.
    pub fn polling_interval(mut self, interval: Duration) -> Self {
        self.settings.polling_interval = interval;
        self
    }

    /// Sets how often the worker sends a heartbeat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.settings.service.heartbeat.interval = interval;
        self
    }

    /// Sets after how long without a heartbeat a supervisor treats the process as dead. It must
    /// equal the supervisor's threshold. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.settings.service.heartbeat.threshold = threshold;
        self
    }

    /// Sets how long running jobs may continue after a stop. Default: 25 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// Sets whether the rows of finished jobs are kept. Default: `true`.
    pub fn keep_finished(mut self, keep: bool) -> Self {
        self.settings.finished = if keep {
            FinishedRow::Keep
        } else {
            FinishedRow::Delete
        };
        self
    }

    /// Sets the longest time-out that a job can give to [`wait_event`](crate::Context::wait_event). Default: 30 days.
    ///
    /// It should be as long as the supervisors of this database keep events
    /// ([`Retention::events_for`]): an event that is deleted before a job waits for it is lost.
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        self.settings.longest_wait = longest;
        self
    }

    /// Serves probes for as long as the worker runs, and answers for it there. They end when the
    /// [`Handle`](crate::Handle) is dropped, or [`run`](Self::run) returns.
    ///
    /// The crate `windlass-console` has them: `windlass_console::web::Probes`.
    ///
    /// # Errors
    /// [`start`](Self::start) and [`run`](Self::run) fail if the address is in use.
    pub fn probes(mut self, probes: impl RunsBeside + 'static) -> Self {
        self.settings.service.beside = Some(Arc::new(probes));
        self
    }

    /// Sets the hooks to call when the worker starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.settings.service.hooks = hooks;
        self
    }

    /// Sets when the worker is replaced by a new process. This is for a worker with a program of
    /// its own; one that was started within a program just ends. Default: never.
    pub fn recycle(mut self, recycle: Recycle) -> Self {
        self.settings.recycle = recycle;
        self
    }

    /// Ends the worker, in good order and with exit code 0, when it finds no more work: no job of its
    /// classes and queues is ready or due, and it runs none. For batch machines and tests.
    ///
    /// It dispatches and promotes jobs that are due by itself, so no dispatcher is needed. Jobs
    /// scheduled for later, jobs of paused queues and classes, jobs that wait for a slot which
    /// another process holds, and jobs that others run do not count. Default: off.
    ///
    /// Run such a worker alone: a supervisor would start it again.
    pub fn until_idle(mut self) -> Self {
        self.settings.until_idle = true;
        self
    }

    /// Returns whether the worker may end by itself, without being asked to.
    pub(crate) fn is_until_idle(&self) -> bool {
        self.settings.until_idle
    }

    /// Returns whether the worker has a recycle limit.
    pub(crate) fn is_recycled(&self) -> bool {
        !self.settings.recycle.is_never()
    }

    /// Sets whether this process also does what a dispatcher and a supervisor do: it makes scheduled jobs ready when they
    /// are due, recovers the jobs of dead processes, and deletes old rows. Then it needs no other process, and any number
    /// of such processes may run. Default: `false`.
    ///
    /// The dispatcher and the supervisor have the heartbeat, hooks and subscriber of the worker, and defaults for the rest.
    /// Use a [`Supervisor`](crate::Supervisor) for other settings, or for workers in processes of their own. Such a worker
    /// cannot be [recycled](Self::recycle), and [`Handle::threads`](crate::Handle::threads) does not change it.
    ///
    /// ```no_run
    /// # use windlass::{Database, Registry, Worker};
    /// # fn main() -> windlass::Result<()> {
    /// let database = Database::open("sqlite://jobs.db")?;
    /// database.migrate()?;
    /// Worker::new(&database, Registry::new()).dispatcher(true).run()?;
    /// # Ok(()) }
    /// ```
    pub fn dispatcher(mut self, wanted: bool) -> Self {
        self.parts.dispatcher = wanted;
        self
    }

    /// Sets whether this process also fires recurring tasks: those that it [declares](Self::task), and all that were
    /// scheduled at run time. Like [`dispatcher`](Self::dispatcher), it then does what a supervisor does. Default: `false`.
    pub fn scheduler(mut self, wanted: bool) -> Self {
        self.parts.scheduler = wanted;
        self
    }

    /// Declares a recurring task, which a [`scheduler`](Self::scheduler) of this process fires.
    pub fn task(mut self, task: RecurringTask) -> Self {
        self.parts.tasks.push(task);
        self
    }

    /// Returns whether no other process runs on threads beside the worker.
    pub(crate) fn runs_alone(&self) -> bool {
        !self.parts.dispatcher && !self.parts.scheduler && self.parts.tasks.is_empty()
    }

    /// Takes out the processes that run beside the worker.
    pub(crate) fn take_parts(&mut self) -> WorkerParts {
        std::mem::take(&mut self.parts)
    }

    /// Returns the time for which events must be kept.
    pub(crate) fn needs_events_for(&self) -> Duration {
        self.settings.longest_wait
    }

    /// Returns the time that running jobs have after a stop.
    pub(crate) fn time_to_stop(&self) -> Duration {
        self.settings.shutdown_timeout
    }

    // `run` and `start` are in `supervisor/alone.rs`: they may start a supervisor.

    /// Sets the subscriber that receives the worker's events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.settings.service.subscriber = subscriber;
        self
    }
}

impl Service for Worker {
    const KIND: &'static str = "Worker";
    const NAME: &'static str = "worker";
    type Checked = CheckedWorker;
    type Running = RunningWorker;

    fn settings(&self) -> &ServiceSettings {
        &self.settings.service
    }

    fn settings_mut(&mut self) -> &mut ServiceSettings {
        &mut self.settings.service
    }

    fn check(&self) -> Result<CheckedWorker> {
        settings::check_threads(self.settings.threads)?;
        settings::check_queues(&self.settings.queues)?;
        if self.settings.polling_interval.is_zero() {
            return Err(Error::Settings(
                "a worker needs a polling interval above zero: a notification may be missed"
                    .to_owned(),
            ));
        }
        if self.settings.recycle.after_jobs == Some(0) {
            return Err(Error::Settings(
                "a worker that is recycled after no job would never run one".to_owned(),
            ));
        }
        if self
            .settings
            .recycle
            .after
            .is_some_and(|age| age < Recycle::SOONEST)
        {
            return Err(Error::Settings(
                "a worker that is recycled after less than a second would hardly work".to_owned(),
            ));
        }
        self.settings.service.heartbeat.check()?;
        Ok(CheckedWorker::default())
    }

    fn identity(&self) -> Identity {
        self.settings.identity()
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            shutdown_timeout: self.settings.shutdown_timeout,
            kill_grace: KILL_GRACE,
        }
    }

    fn claims(checked: &CheckedWorker) -> Option<Arc<dyn HoldsClaims>> {
        Some(Arc::clone(&checked.in_flight) as Arc<dyn HoldsClaims>)
    }

    fn adjusts(checked: &CheckedWorker) -> Option<Arc<dyn Adjust>> {
        Some(Arc::clone(&checked.tuning) as Arc<dyn Adjust>)
    }

    fn launch(
        self,
        checked: CheckedWorker,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<RunningWorker> {
        RunningWorker::start(&self.settings, checked, context, heartbeat)
    }

    fn work(running: RunningWorker, stop: &Stop) -> ProcessEnd {
        running.run(stop)
    }
}
