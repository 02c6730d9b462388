//! `windlass recurring add`, `change` and `remove`.

use crate::cli::commands::enqueue::JobOptions;
use crate::cli::config::CommandError;
use crate::cli::listed::{SaidBy, time};
use crate::cli::select::{self, connect};
use crate::db::Database;
use crate::db::model::recurring::{Definition, Overlap};
use crate::error::Result;
use crate::job::arguments::{listed, unlisted};
use crate::job::new_job::NewJob;
use crate::job::registry::Registry;
use crate::recurring::edit;
use crate::recurring::schedule::Schedule;
use crate::recurring::stored::Options;
use crate::recurring::task::RecurringTask;
use crate::recurring::timing::{MissedTicks, NEVER};
use crate::terminal::{Report, printable};
use chrono::{DateTime, NaiveDateTime, Utc};
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;

/// The options of a task.
#[derive(Debug, clap::Args)]
struct TaskOptions {
    /// The arguments of its jobs, or `-` to read them from standard input
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,

    /// The time zone of the schedule [default: the one in its text, or UTC]
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,

    /// Not due before this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    from: Option<DateTime<Utc>>,

    /// Not due from this time on
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    until: Option<DateTime<Utc>>,

    /// Delay the job of each tick by a time below this
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    jitter: Option<Duration>,

    /// The policy for missed ticks: `latest`, `skip`, or an age up to which each is fired, as `6h`
    /// [default: latest]
    #[arg(long, value_name = "WHAT", value_parser = missed)]
    missed: Option<MissedTicks>,

    /// The policy for a tick if the previous job has not ended [default: allow]
    #[arg(long, value_name = "WHAT")]
    overlap: Option<OverlapName>,

    /// A description for readers
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    #[command(flatten)]
    job: JobOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OverlapName {
    /// It is fired
    Allow,
    /// It is dropped
    Skip,
    /// The latest one waits for the end of that job
    QueueOne,
}

impl From<OverlapName> for Overlap {
    fn from(name: OverlapName) -> Self {
        match name {
            OverlapName::Allow => Overlap::Allow,
            OverlapName::Skip => Overlap::Skip,
            OverlapName::QueueOne => Overlap::QueueOne,
        }
    }
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
    options: TaskOptions,

    #[command(flatten)]
    said_by: SaidBy,

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
        let options = &self.options;
        let arguments = match &options.arguments {
            Some(text) => select::arguments(text)?,
            None => "{}".to_owned(),
        };
        let job = job(registry, &self.class, arguments)?;
        let task = RecurringTask::of_job(&self.key, &self.schedule, options.job.apply(job))?;
        let (actor, task) = (self.said_by.actor(), options.apply(task)?);
        let next = edit::add(&mut connect(database)?, &actor, &task)?;
        Ok(ChangedTask::new(&self.key, "Added", Some(next)))
    }
}

fn job(registry: Option<&Registry>, class: &str, arguments: String) -> Result<NewJob> {
    match registry {
        Some(registry) => registry.new_job(class, &arguments),
        None => Ok(NewJob::of_class(class, arguments)),
    }
}

impl TaskOptions {
    /// Returns the task with the options that were given, except those of its jobs.
    fn apply(&self, mut task: RecurringTask) -> Result<RecurringTask> {
        if let Some(zone) = &self.zone {
            task = task.time_zone(zone)?;
        }
        if let Some(time) = self.from {
            task = task.from(time);
        }
        if let Some(time) = self.until {
            task = task.until(time);
        }
        if let Some(jitter) = self.jitter {
            task = task.jitter(jitter);
        }
        if let Some(missed) = self.missed {
            task = task.missed(missed);
        }
        if let Some(overlap) = self.overlap {
            task = task.overlap(overlap.into());
        }
        if let Some(text) = &self.description {
            task = task.description(text);
        }
        Ok(task)
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
    options: TaskOptions,

    /// Remove this value, so that its default applies; may be repeated
    #[arg(long, value_name = "OPTION")]
    unset: Vec<Removable>,

    #[command(flatten)]
    said_by: SaidBy,

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
        let arguments = self.options.arguments.as_deref();
        let arguments = arguments.map(select::arguments).transpose()?;
        let is_by_name = registry.is_none();
        let (mut connection, actor) = (connect(database)?, self.said_by.actor());
        let edit = |task: &mut Definition, options: &mut Options| {
            for value in &self.unset {
                value.remove(task, options);
            }
            self.times(task)?;
            self.job(task, options, arguments, registry)?;
            self.rest(task, options);
            Ok(())
        };
        let next = edit::change(&mut connection, &actor, &self.key, is_by_name, edit)?;
        Ok(ChangedTask::new(&self.key, "Changed", Some(next)))
    }

    fn times(&self, task: &mut Definition) -> Result<()> {
        if let Some(text) = &self.schedule {
            let schedule: Schedule = text.parse()?;
            task.schedule = schedule.text().to_owned();
            if let Some(zone) = schedule.time_zone() {
                task.time_zone = zone.to_owned();
            }
        }
        if let Some(zone) = &self.options.zone {
            let zone = crate::recurring::schedule::time_zone(zone)?;
            task.time_zone = zone.name().to_owned();
        }
        Ok(())
    }

    /// Changes the class and the arguments, which must fit together, with the version of the
    /// arguments and a concurrency limit that the type computes from them.
    fn job(
        &self,
        task: &mut Definition,
        stored: &mut Options,
        arguments: Option<String>,
        registry: Option<&Registry>,
    ) -> Result<()> {
        if self.class.is_none() && arguments.is_none() {
            return Ok(());
        }
        let old = unlisted(&task.arguments).to_owned();
        let has_other_class = self
            .class
            .as_ref()
            .is_some_and(|new| *new != task.class_name);
        let is_of_type = has_other_class
            || registry.is_some_and(|registry| {
                let before = registry.new_job(&task.class_name, &old);
                before.is_ok_and(|before| before.concurrency == stored.concurrency)
            });
        if let Some(class) = &self.class {
            task.class_name.clone_from(class);
        }
        let new = job(registry, &task.class_name, arguments.unwrap_or(old))?;
        if registry.is_some() && is_of_type {
            stored.concurrency.clone_from(&new.concurrency);
        }
        if registry.is_some() || has_other_class {
            stored.set_version(new.policy.arguments_version());
        }
        task.arguments = listed(&new.into_row()?.arguments);
        Ok(())
    }

    fn rest(&self, task: &mut Definition, stored: &mut Options) {
        let given = &self.options;
        let mut policy = given.job.policy().or(&stored.whole_policy());
        if let Some(queue) = &given.job.queue {
            task.queue_name.clone_from(queue);
        }
        if let Some(priority) = given.job.priority {
            task.priority = priority;
            policy.ahead_by = None;
        }
        stored.set_policy(&policy);
        if let Some(text) = &given.description {
            task.description = Some(text.clone());
        }
        stored.from = given.from.or(stored.from);
        stored.until = given.until.or(stored.until);
        stored.jitter = given.jitter.or(stored.jitter);
        stored.missed = given.missed.unwrap_or(stored.missed);
        stored.overlap = given.overlap.map_or(stored.overlap, Overlap::from);
    }
}

/// Remove a recurring task that was added or scheduled at run time; its jobs stay
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveTask {
    /// The task
    key: String,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RemoveTask {
    pub(crate) fn run(&self, database: &Database) -> Result<ChangedTask> {
        edit::remove(&mut connect(database)?, &self.said_by.actor(), &self.key)?;
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
    pub(crate) fn remove(self, task: &mut Definition, stored: &mut Options) {
        match self {
            Removable::Description => task.description = None,
            Removable::From => stored.from = None,
            Removable::Until => stored.until = None,
            Removable::Jitter => stored.jitter = None,
            Removable::Missed => stored.missed = MissedTicks::default(),
            Removable::Overlap => stored.overlap = Overlap::default(),
            Removable::Priority => {
                task.priority = 0;
                stored.ahead_by = None;
            }
            Removable::Attempts => stored.max_attempts = None,
            Removable::Backoff => stored.policy.backoff = None,
            Removable::RetryFor | Removable::RetryUntil => stored.policy.retry_limit = None,
            Removable::ExpiresIn => stored.policy.expiry = None,
            Removable::Timeout => stored.policy.timeout = None,
            Removable::KeepResult => stored.policy.keep_result = None,
            Removable::Delivery => stored.delivery = None,
        }
    }
}
