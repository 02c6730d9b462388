//! The settings of a supervisor and everything it runs.

use crate::config::document::Origin;
use crate::config::queues::QueueSettings;
use crate::config::reader::Setting;
use crate::config::recurring::{DeclaredTask, OtherPrograms, name_of};
use crate::config::settings::{
    DatabaseSettings, DispatcherSettings, SchedulerSettings, SupervisorSettings, WebSettings,
    WorkerSettings,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windlass::errors::Problem;
use windlass::hooks::Subscriber;
use windlass::internal::recurring::timing::TickTimes;
use windlass::processes::Retention;
use windlass::recurring::Timing;
use windlass::{Error, Hooks, RecurringTask, Registry, Result};

/// The settings of a supervisor and everything it runs, from `windlass.toml`, environment
/// variables, or both.
///
/// The environment overrides the file, and the file overrides the defaults. All problems are
/// reported at once: unknown names, values without a unit, conflicting settings.
/// `docs/configuration.md` lists all settings. A printed configuration shows each effective setting
/// and its source.
///
/// ```
/// use windlass_console::Config;
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
/// let error = wrong.unwrap_err().to_string();
/// assert!(error.contains("line 2: supervisor.heartbeat_interval: the number 10 has no unit"));
/// assert!(error.contains("line 3: `supervisor` has no setting `alive_treshold`; did you mean `alive_threshold`?"));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it was read from, for the workers.
    pub(crate) file: Option<PathBuf>,
    /// The number of the worker that this process is, starting at 1.
    pub(crate) entry: Option<usize>,
    pub(crate) database: DatabaseSettings,
    pub(crate) supervisor: SupervisorSettings,
    pub(crate) workers: Vec<WorkerSettings>,
    pub(crate) dispatchers: Vec<DispatcherSettings>,
    pub(crate) scheduler: SchedulerSettings,
    pub(crate) tasks: Vec<DeclaredTask>,
    pub(crate) queues: Vec<QueueSettings>,
    /// The timings of the program, by name.
    pub(crate) timings: Vec<(String, Arc<dyn Timing>)>,
    pub(crate) retention: Retention,
    pub(crate) web: WebSettings,
    /// The program's hooks, for all processes it runs.
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

    /// Returns every effective setting, in the order of the reference.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Returns the source of a setting: of `workers.threads` in the table with this number.
    pub(crate) fn origin(&self, key: &str, number: Option<usize>) -> &Origin {
        let mut settings = self.settings.iter();
        let setting = settings.find(|setting| setting.number == number && setting.key() == key);
        setting.map_or(&Origin::Default, |setting| &setting.origin)
    }

    /// Adds a recurring task declared in code to those of the file.
    ///
    /// # Errors
    /// If there is already a task with this key.
    pub fn task(mut self, task: RecurringTask) -> Result<Self> {
        let same = |other: &&DeclaredTask| other.task.key() == task.key();
        if let Some(other) = self.tasks.iter().find(same) {
            let message = format!(
                "two recurring tasks have the key `{}`: the code also declares one",
                task.key()
            );
            return Err(Error::Configuration(vec![other.origin.problem(message)]));
        }
        self.tasks.push(DeclaredTask::by_code(task));
        Ok(self)
    }

    /// Gives the scheduler a [`Timing`](windlass::recurring::Timing), for tasks of the file with the schedule
    /// `@timing NAME`.
    pub fn timing(mut self, name: impl Into<String>, timing: Arc<dyn Timing>) -> Self {
        self.timings.push((name.into(), timing));
        self
    }

    /// Sets the hooks for the supervisor, dispatchers, scheduler and workers of this program.
    ///
    /// ```no_run
    /// # fn registry() -> windlass::Registry { windlass::Registry::new() }
    /// use windlass::Hooks;
    /// use windlass::hooks::Subscriber;
    /// use windlass_console::Config;
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

    /// Sets a subscriber that receives the events of everything that runs.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.subscriber = subscriber;
        self
    }

    /// Returns the subscriber, which logs as configured.
    pub(crate) fn subscribed(&self) -> Subscriber {
        let subscriber = self.subscriber.clone();
        if self.supervisor.log_messages {
            subscriber
        } else {
            subscriber.log_messages(false)
        }
    }

    /// Checks the recurring tasks of the file against the registry. Their jobs get the queue,
    /// priority and policy of their types, unless the file sets them. [`run`](Self::run) does this
    /// automatically.
    ///
    /// # Errors
    /// [`Error::Configuration`] with all problems: arguments that do not match their type, and
    /// classes that are not registered. An unknown class is accepted if another program may have it
    /// registered: if a worker sets `program`, or there are no `[[workers]]`.
    pub fn knowing(&self, registry: &Registry) -> Result<Self> {
        let is_another = |worker: &WorkerSettings| !worker.program.is_empty();
        let others = self.workers.is_empty() || self.workers.iter().any(is_another);
        self.compared(registry, OtherPrograms::if_any(others))
    }

    /// Does the same, where the caller names whether other programs perform jobs.
    pub(crate) fn compared(&self, registry: &Registry, others: OtherPrograms) -> Result<Self> {
        let mut config = self.clone();
        let mut problems = Vec::new();
        for declared in &mut config.tasks {
            match declared.knowing(registry, others) {
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

    /// Returns the recurring tasks of the file and of the code.
    pub fn tasks(&self) -> impl Iterator<Item = &RecurringTask> {
        self.tasks.iter().map(|declared| &declared.task)
    }

    /// Returns the times of each task, in its time zone, with its key and its jitter.
    pub(crate) fn declared_times(&self) -> Vec<(String, TickTimes, Option<Duration>)> {
        let zone = self.scheduler.time_zone;
        let tasks = self.tasks();
        tasks
            .map(|task| {
                (
                    task.key().to_owned(),
                    task.times_in(zone),
                    task.options.jitter,
                )
            })
            .collect()
    }

    /// Returns possible mistakes: environment variables that start with `WINDLASS_` and set
    /// nothing.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns the address of the database, as given.
    pub(crate) fn url(&self) -> Option<&str> {
        Some(self.database.url.as_str()).filter(|url| !url.is_empty())
    }

    /// Returns how many connections the jobs of one process of this worker may borrow.
    pub(crate) fn pool_of(&self, worker: &WorkerSettings) -> u32 {
        let auto = worker.threads.saturating_add(2).max(10);
        self.database.pool.unwrap_or(auto)
    }

    /// Returns how long finished and failed jobs, and the audit, are kept.
    pub fn retention(&self) -> Retention {
        self.retention
    }
}

// --- The effective configuration, as an equivalent file ---

impl fmt::Display for Config {
    /// Writes a file with every setting and its source. Secrets are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut previous = None;
        for setting in &self.settings {
            let table = (setting.table, setting.number);
            if previous != Some(table) {
                let begin = if previous.is_some() { "\n" } else { "" };
                match setting.number {
                    Some(_) => writeln!(f, "{begin}[[{}]]", setting.table)?,
                    None => writeln!(f, "{begin}[{}]", setting.table)?,
                }
                previous = Some(table);
            }
            let Setting {
                name,
                value,
                origin,
                ..
            } = setting;
            writeln!(f, "{:<40} # {origin}", format!("{name} = {value}"))?;
        }
        for declared in &self.tasks {
            let key = name_of(declared.task.key());
            if declared.settings.is_none() {
                writeln!(f, "\n# The code declares [recurring.{key}].")?;
                continue;
            }
            writeln!(f, "\n[recurring.{key}]")?;
            for (name, value, origin) in declared.lines() {
                writeln!(f, "{:<40} # {origin}", format!("{name} = {value}"))?;
            }
        }
        for settings in &self.queues {
            writeln!(f, "\n[queues.{}]", name_of(&settings.queue))?;
            for (name, value, origin) in settings.lines() {
                writeln!(f, "{:<40} # {origin}", format!("{name} = {value}"))?;
            }
        }
        for (table, is_empty) in [
            ("workers", self.workers.is_empty()),
            ("dispatchers", self.dispatchers.is_empty()),
        ] {
            if is_empty {
                writeln!(f, "\n# No [[{table}]].")?;
            }
        }
        Ok(())
    }
}
