//! `windlass recurring add`, `change` and `remove`.

use crate::cli::config::CommandError;
use crate::cli::job_flags::{self, JobFlags, word};
use crate::cli::listed::{ChangedBy, time};
use crate::cli::select::{self, connect};
use crate::terminal::{Report, printable};
use chrono::{DateTime, NaiveDateTime, Utc};
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;
use windlass::internal::recurring::edit;
use windlass::internal::recurring::timing::NEVER;
use windlass::recurring::{MissedTicks, Overlap, RecurringSettings};
use windlass::{Database, NewJob, RecurringTask, Registry, Result};

/// The settings of a task that a command adds or changes.
#[derive(Debug, clap::Args)]
struct GivenSettings {
    /// The arguments of its jobs, or `-` to read them from standard input
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,

    /// The time zone of the schedule [default: the one in its text, or UTC]
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,

    /// Not due before this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = job_flags::time)]
    from: Option<DateTime<Utc>>,

    /// Not due from this time on
    #[arg(long, value_name = "TIME", value_parser = job_flags::time)]
    until: Option<DateTime<Utc>>,

    /// Delay the job of each tick by a time below this
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    jitter: Option<Duration>,

    /// The policy for missed ticks: `latest`, `skip`, or an age up to which each is fired, as `6h`
    /// [default: latest]
    #[arg(long, value_name = "WHAT", value_parser = missed)]
    missed: Option<MissedTicks>,

    /// The policy for a tick if the previous job has not ended [default: allow]
    #[arg(long, value_name = "WHAT", value_parser = word::<Overlap, 3>([
        ("allow", "It is fired"),
        ("skip", "It is dropped"),
        ("queue-one", "The latest one waits for the end of that job"),
    ]))]
    overlap: Option<Overlap>,

    /// A description for readers
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    #[command(flatten)]
    job: JobFlags,
}

fn missed(text: &str) -> Result<MissedTicks, String> {
    match text {
        "latest" => Ok(MissedTicks::Latest),
        "skip" => Ok(MissedTicks::Skip),
        age => humantime::parse_duration(age)
            .map(MissedTicks::AllWithin)
            .map_err(|_| "it is `latest`, `skip`, or an age such as `6h`".to_owned()),
    }
}

/// Add a recurring task, which any scheduler fires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring add cleanup --class cleanup --schedule '30 3 * * *' --zone Europe/Berlin
  windlass recurring add sale --class offer --arguments '{\"id\": 7}' --schedule 'every 1h' \\
    --from 2026-12-01T00:00:00Z --until 2027-01-01T00:00:00Z")]
pub(crate) struct AddTask {
    /// Its key: letters, digits and `_ . : / -`
    key: String,

    /// The class of its jobs
    #[arg(long, value_name = "NAME")]
    class: String,

    /// The schedule: cron fields, `@daily`, `every 45s`
    #[arg(long, value_name = "TEXT")]
    schedule: String,

    #[command(flatten)]
    settings: GivenSettings,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl AddTask {
    pub(crate) fn run(
        &self,
        database: &Database,
        registry: Option<&Registry>,
    ) -> Result<ChangedTask, CommandError> {
        let arguments = match &self.settings.arguments {
            Some(text) => select::arguments(text)?,
            None => "{}".to_owned(),
        };
        let job = job(registry, &self.class, arguments)?;
        let task = RecurringTask::of_job(&self.key, &self.schedule, job)?;
        let (actor, task) = (self.changed_by.actor(), self.settings.apply(task)?);
        let next = edit::add(&mut connect(database)?, &actor, &task)?;
        Ok(ChangedTask::new(&self.key, "Added", Some(next)))
    }
}

fn job(registry: Option<&Registry>, class: &str, arguments: String) -> Result<NewJob> {
    match registry {
        Some(registry) => registry.new_job(class, &arguments),
        // Without the type, a task has the usual maximum.
        None => Ok(NewJob::of_class(class, arguments).max_arguments(64 * 1024)),
    }
}

impl GivenSettings {
    /// Returns the task with the settings that were given, but for its arguments.
    #[allow(
        clippy::field_reassign_with_default,
        reason = "outside of its crate, the struct has no literals"
    )]
    fn apply(&self, task: RecurringTask) -> Result<RecurringTask> {
        let mut settings = RecurringSettings::default();
        settings.time_zone = self.zone.clone();
        settings.job = self.job.options();
        settings.description = self.description.clone();
        settings.missed = self.missed;
        settings.overlap = self.overlap;
        settings.jitter = self.jitter;
        settings.from = self.from;
        settings.until = self.until;
        settings.apply_settings(task)
    }
}

/// Change a recurring task that was added or scheduled at run time
///
/// Only what is given changes, and the task keeps its next tick unless its times change. A task that
/// a program's code or configuration declares is changed there.
///
/// In a program that mounts this command, new arguments must match the type of the class, and change
/// the concurrency key that it computes from them. Otherwise a concurrency limit stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring change cleanup --schedule '0 4 * * *'
  windlass recurring change sale --until 2027-02-01T00:00:00Z --unset jitter --unset from")]
pub(crate) struct ChangeTask {
    /// The task
    key: String,

    /// The class of its jobs
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// The schedule: cron fields, `@daily`, `every 45s`
    #[arg(long, value_name = "TEXT")]
    schedule: Option<String>,

    #[command(flatten)]
    settings: GivenSettings,

    /// Remove this value, so that its default applies; may be repeated
    #[arg(long, value_name = "OPTION")]
    unset: Vec<Removable>,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ChangeTask {
    pub(crate) fn run(
        &self,
        database: &Database,
        registry: Option<&Registry>,
    ) -> Result<ChangedTask, CommandError> {
        let arguments = self.settings.arguments.as_deref();
        let arguments = arguments.map(select::arguments).transpose()?;
        let is_by_name = registry.is_none();
        let (mut connection, actor) = (connect(database)?, self.changed_by.actor());
        let edit = |mut task: RecurringTask| {
            for value in &self.unset {
                value.remove(&mut task);
            }
            if let Some(text) = &self.schedule {
                task.reschedule(text)?;
            }
            self.change_job(&mut task, arguments, registry)?;
            self.settings.apply(task)
        };
        let next = edit::change(&mut connection, &actor, &self.key, is_by_name, edit)?;
        Ok(ChangedTask::new(&self.key, "Changed", Some(next)))
    }

    /// Changes the class and the arguments, which must fit together, with the version of the
    /// arguments and a concurrency limit that the type computes from them.
    fn change_job(
        &self,
        task: &mut RecurringTask,
        arguments: Option<String>,
        registry: Option<&Registry>,
    ) -> Result<()> {
        if self.class.is_none() && arguments.is_none() {
            return Ok(());
        }
        let class = self.class.as_ref().unwrap_or(&task.class_name).clone();
        let has_other_class = class != task.class_name;
        let is_of_type = has_other_class
            || registry.is_some_and(|registry| {
                let before = registry.new_job(&task.class_name, &task.arguments);
                before.is_ok_and(|before| before.concurrency == task.options.concurrency)
            });
        let arguments = arguments.unwrap_or_else(|| task.arguments.clone());
        let new = job(registry, &class, arguments)?;
        if registry.is_some() && is_of_type {
            task.options.concurrency.clone_from(&new.concurrency);
        }
        if registry.is_some() || has_other_class {
            let version = new.policy.arguments_version();
            task.options.policy.set_version(version);
        }
        task.arguments = new.into_row()?.arguments;
        task.class_name = class;
        Ok(())
    }
}

/// Remove a recurring task that was added or scheduled at run time; its jobs stay
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveTask {
    /// The task
    key: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RemoveTask {
    pub(crate) fn run(&self, database: &Database) -> Result<ChangedTask> {
        edit::remove(&mut connect(database)?, &self.changed_by.actor(), &self.key)?;
        Ok(ChangedTask::new(&self.key, "Removed", None))
    }
}

// --- The output of a change of a recurring task ---

/// A task that was added, changed or removed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedTask {
    key: String,
    #[serde(skip)]
    done: &'static str,
    next_run_at: Option<DateTime<Utc>>,
}

impl ChangedTask {
    pub(crate) fn new(key: &str, done: &'static str, next: Option<NaiveDateTime>) -> Self {
        ChangedTask {
            key: key.to_owned(),
            done,
            next_run_at: next.filter(|next| *next < NEVER).map(|next| next.and_utc()),
        }
    }
}

impl Report for ChangedTask {
    fn text(&self, _width: Option<usize>) -> String {
        let (done, key) = (self.done, printable(&self.key));
        match self.next_run_at {
            Some(next) => format!("{done} {key}; its next tick is at {}.\n", time(next)),
            None if done == "Removed" => format!("{done} {key}.\n"),
            None => format!("{done} {key}; it has no further tick.\n"),
        }
    }
}

// --- The values of a recurring task that `--unset` removes ---

/// A value that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Removable {
    Description,
    From,
    Until,
    Jitter,
    Missed,
    Overlap,
    /// Also `--ahead-by` and `--behind-by`
    Priority,
    Attempts,
    Backoff,
    /// Also `--retry-until`
    RetryFor,
    /// Also `--retry-for`
    RetryUntil,
    ExpiresIn,
    Timeout,
    KeepResult,
    Delivery,
}

impl Removable {
    pub(crate) fn remove(self, task: &mut RecurringTask) {
        let options = &mut task.options;
        let policy = &mut options.policy;
        match self {
            Removable::Description => task.description = None,
            Removable::From => options.window.from = None,
            Removable::Until => options.window.until = None,
            Removable::Jitter => options.jitter = None,
            Removable::Missed => options.missed = MissedTicks::default(),
            Removable::Overlap => options.overlap = Overlap::default(),
            Removable::Priority => {
                task.priority = 0;
                policy.ahead_by = None;
            }
            Removable::Attempts => policy.max_attempts = None,
            Removable::Backoff => policy.backoff = None,
            Removable::RetryFor | Removable::RetryUntil => policy.retry_limit = None,
            Removable::ExpiresIn => policy.expiry = None,
            Removable::Timeout => policy.timeout = None,
            Removable::KeepResult => policy.keep_result = None,
            Removable::Delivery => policy.delivery = None,
        }
    }
}
