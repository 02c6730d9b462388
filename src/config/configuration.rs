//! The settings of a supervisor and all that it runs.

use crate::config::reader::Setting;
use crate::config::recurring::Declared;
use crate::config::settings::{
    DatabaseSettings, DispatcherSettings, RetentionSettings, SchedulerSettings, SupervisorSettings,
    WorkerSettings,
};
use crate::error::{Error, Problem, Result};
use crate::event::hooks::Hooks;
use crate::event::subscriber::Subscriber;
use crate::job::registry::Registry;
use crate::recurring::task::RecurringTask;
use crate::retention::Retention;
use std::path::PathBuf;

/// The settings of a supervisor and all it runs, from `windlass.toml`, from
/// environment variables, or both.
///
/// The environment weighs more than the file, and the file more than the
/// defaults. Everything that is wrong is reported at once: unknown names,
/// values without a unit, settings that cannot work together.
/// `docs/configuration.md` lists them all; printed, a configuration shows each
/// setting in effect and where it comes from.
///
/// ```
/// use windlass::Config;
///
/// let config = Config::parse(
///     r#"
///     [[workers]]
///     queues = ["mail", "import*"]
///     threads = 10
///     "#,
/// )?;
/// assert!(config.to_string().contains("threads = 10"));
///
/// let wrong = Config::parse("[supervisor]\nheartbeat_interval = 10\nalive_treshold = '60s'\n");
/// let told = wrong.unwrap_err().to_string();
/// assert!(told.contains("line 2: supervisor.heartbeat_interval: the number 10 has no unit"));
/// assert!(told.contains("line 3: `supervisor` has no setting `alive_treshold`; did you mean `alive_threshold`?"));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it was read from, for the workers.
    pub(crate) file: Option<PathBuf>,
    /// Which of the workers this process is, counted from 1.
    pub(crate) entry: Option<usize>,
    pub(crate) database: DatabaseSettings,
    pub(crate) supervisor: SupervisorSettings,
    pub(crate) workers: Vec<WorkerSettings>,
    pub(crate) dispatchers: Vec<DispatcherSettings>,
    pub(crate) scheduler: SchedulerSettings,
    pub(crate) tasks: Vec<Declared>,
    pub(crate) retention: RetentionSettings,
    /// Of the program, for everything that is run.
    pub(crate) hooks: Hooks,
    pub(crate) subscriber: Subscriber,
    pub(crate) settings: Vec<Setting>,
    pub(crate) warnings: Vec<Problem>,
}

impl Config {
    /// Logs the warnings, for a program that does not print them.
    pub(crate) fn warned(self) -> Self {
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        self
    }

    /// Every setting in effect, in the order of the reference.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The same, with a recurring task that the code declares beside those of
    /// the file.
    ///
    /// # Errors
    /// When there is one of this key already.
    pub fn task(mut self, task: RecurringTask) -> Result<Self> {
        let same = |other: &&Declared| other.task.key() == task.key();
        if let Some(other) = self.tasks.iter().find(same) {
            let message = format!(
                "two recurring tasks have the key `{}`: the code declares one, too",
                task.key()
            );
            return Err(Error::Configuration(vec![other.origin.problem(message)]));
        }
        self.tasks.push(Declared::by_code(task));
        Ok(self)
    }

    /// The same, with what the program does when its supervisor, dispatchers,
    /// scheduler and workers start, stop and end.
    ///
    /// ```no_run
    /// # fn registry() -> windlass::Registry { windlass::Registry::new() }
    /// use windlass::{Config, Hooks, Subscriber};
    ///
    /// let stopped = Config::find()?
    ///     .hooks(Hooks::new().on_exit(|process| println!("a {} has ended", process.kind)))
    ///     .subscriber(Subscriber::new(|event| println!("{event:?}")))
    ///     .run(registry())?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// The same, with a subscriber that hears the events of all that it runs.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.subscriber = subscriber;
        self
    }

    /// The subscriber, which logs as the settings say.
    pub(crate) fn subscribed(&self) -> Subscriber {
        let subscriber = self.subscriber.clone();
        if self.supervisor.log_messages.value {
            subscriber
        } else {
            subscriber.log_messages(false)
        }
    }

    /// The same, with the recurring tasks of the file compared with what the
    /// program performs: their jobs have the queue, the priority and the
    /// policy of their types, unless the file says otherwise.
    /// [`run`](Self::run) does so by itself.
    ///
    /// # Errors
    /// When arguments are not those of their type, and when a class is not
    /// registered. The latter is none where others may know the class: when a
    /// worker has a `program` of its own, or there are no `[[workers]]`.
    /// [`Error::Configuration`] has it all.
    pub fn knowing(&self, registry: &Registry) -> Result<Self> {
        let is_another = |worker: &WorkerSettings| !worker.program.value.0.is_empty();
        let others = self.workers.is_empty() || self.workers.iter().any(is_another);
        self.compared(registry, others)
    }

    /// `others`: whether there are others that perform jobs, and may know more
    /// classes.
    pub(crate) fn compared(&self, registry: &Registry, others: bool) -> Result<Self> {
        let mut config = self.clone();
        let mut problems = Vec::new();
        for declared in &mut config.tasks {
            match declared.knowing(registry, !others) {
                Ok(known) => *declared = known,
                Err((origin, message)) => problems.push(origin.problem(message)),
            }
        }
        problems.sort_by_key(|problem| problem.line);
        match problems {
            problems if problems.is_empty() => Ok(config),
            problems => Err(Error::Configuration(problems)),
        }
    }

    /// The recurring tasks, of the file and of the code.
    pub fn tasks(&self) -> impl Iterator<Item = &RecurringTask> {
        self.tasks.iter().map(|declared| &declared.task)
    }

    /// When each of them is due, in its time zone.
    #[cfg(feature = "cli")]
    pub(crate) fn declared_schedules(&self) -> Vec<(String, crate::recurring::schedule::Schedule)> {
        let zone = self.scheduler.time_zone.value;
        let tasks = self.tasks();
        tasks
            .map(|task| (task.key().to_owned(), task.schedule().clone().or_in(zone)))
            .collect()
    }

    /// What looks like a mistake and is none for certain: environment
    /// variables that begin with `WINDLASS_` and set nothing.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The address of the database, as it was given.
    pub(crate) fn url(&self) -> Option<&str> {
        Some(self.database.url.value.0.as_str()).filter(|url| !url.is_empty())
    }

    /// How many connections the jobs of a process of this worker may borrow.
    pub(crate) fn pool_of(&self, worker: &WorkerSettings) -> u32 {
        let auto = worker.threads.value.0.saturating_add(2).max(10);
        self.database.pool.value.0.map_or(auto, |size| size.0)
    }

    /// How long jobs that have ended are kept.
    pub fn retention(&self) -> Retention {
        let settings = &self.retention;
        Retention {
            finished_for: settings.finished_for.value.0,
            finished_at_most: settings
                .finished_at_most
                .value
                .0
                .map(|most| u64::from(most.0)),
            failed_for: settings.failed_for.value.0,
            jobs_of_ruby: settings.jobs_of_ruby.value,
            every: settings.every.value.0,
        }
    }
}
