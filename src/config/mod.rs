//! Settings from a file, the environment and the command line.
//!
//! `source` finds what was written and where, `reader` looks a setting up and
//! remembers what it came across, `settings` names them all, `combinations`
//! compares them. What is wrong is gathered, and told at once.

mod combinations;
mod connections;
mod print;
mod reader;
mod recurring;
mod settings;
mod source;
mod value;

use crate::error::{Error, Problem, Result};
use crate::event::Subscriber;
use crate::hooks::Hooks;
use crate::recurring::RecurringTask;
use crate::registry::Registry;
use crate::retention::Retention;
pub use connections::ConnectionBudget;
pub(crate) use reader::Argument;
use reader::Reader;
pub use reader::Setting;
pub(crate) use recurring::Declared;
pub(crate) use settings::{
    DatabaseSettings, DispatcherSettings, RetentionSettings, SchedulerSettings, SupervisorSettings,
    WorkerSettings,
};
pub use source::Origin;
use std::path::{Path, PathBuf};

/// Names the file, for a program and for the workers that it starts.
pub(crate) const FILE_VARIABLE: &str = "WINDLASS_CONFIG";

/// Says which of the `[[workers]]` a process is, counted from 1.
pub(crate) const WORKER_VARIABLE: &str = "WINDLASS_WORKER";

/// The file that is looked for when none is named.
const DEFAULT_FILE: &str = "windlass.toml";

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
    subscriber: Subscriber,
    settings: Vec<Setting>,
    warnings: Vec<Problem>,
}

impl Config {
    /// Reads a file, and what the environment sets.
    ///
    /// # Errors
    /// When the file cannot be read, and when anything in it or in the
    /// environment is wrong: then [`Error::Configuration`] has it all.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(Some(path.as_ref()), Vec::new()).map(Self::warned)
    }

    /// Reads the file that the environment variable `WINDLASS_CONFIG` names,
    /// or else `windlass.toml` in the current directory if there is one, and
    /// what the environment sets.
    ///
    /// # Errors
    /// As for [`load`](Self::load). That there is no `windlass.toml` is none.
    pub fn find() -> Result<Self> {
        Self::load_with(None, Vec::new()).map(Self::warned)
    }

    /// Reads a text as if it were the file, and nothing else.
    ///
    /// # Errors
    /// When anything in it is wrong: [`Error::Configuration`] has it all.
    pub fn parse(text: &str) -> Result<Self> {
        let file = source::File::parse("", text);
        Self::read(Reader::of(file), None, None)
    }

    /// What the options of a command line say weighs the most.
    pub(crate) fn load_with(path: Option<&Path>, arguments: Vec<Argument>) -> Result<Self> {
        let mut environment = source::environment();
        let named = path.map(Path::to_owned);
        let named = named.or_else(|| environment.get(FILE_VARIABLE).map(PathBuf::from));
        let path = match named {
            Some(path) => Some(path),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()),
        };
        let file = match &path {
            Some(path) => source::File::parse(&path.display().to_string(), &text_of(path)?),
            None => source::File::default(),
        };
        let entry = environment.remove(WORKER_VARIABLE);
        let mut reader = Reader::of(file);
        reader.environment = environment;
        reader.arguments = arguments;
        Self::read(reader, path, entry)
    }

    /// Logs the warnings, for a program that does not print them.
    pub(crate) fn warned(self) -> Self {
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        self
    }

    fn read(mut reader: Reader, file: Option<PathBuf>, entry: Option<String>) -> Result<Self> {
        let r = &mut reader;
        let mut config = Config {
            file,
            entry: entry.map(|entry| entry.parse().unwrap_or(0)),
            database: DatabaseSettings::read(r),
            supervisor: SupervisorSettings::read(r),
            workers: WorkerSettings::read_all(r),
            dispatchers: DispatcherSettings::read_all(r),
            scheduler: SchedulerSettings::read(r),
            tasks: recurring::read_all(r),
            retention: RetentionSettings::read(r),
            hooks: Hooks::new(),
            subscriber: Subscriber::default(),
            settings: Vec::new(),
            warnings: Vec::new(),
        };
        combinations::check(&config, r);
        config.warnings = r.end();
        config.settings = std::mem::take(&mut r.settings);
        match r.problems() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(Error::Configuration(problems)),
        }
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
    pub(crate) fn declared_schedules(&self) -> Vec<(String, crate::Schedule)> {
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

/// The address that the environment names, or else the configuration that is
/// found.
#[cfg(feature = "cli")]
pub(crate) fn find_url() -> Result<Option<String>> {
    let environment = source::environment();
    let named = ["WINDLASS_DATABASE_URL", "DATABASE_URL"];
    match named.iter().find_map(|name| environment.get(*name)) {
        Some(url) => Ok(Some(url.clone())),
        None => Ok(Config::find()?.url().map(str::to_owned)),
    }
}

fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::Io {
        action: "read the configuration",
        path: path.to_owned(),
        source,
    })
}
