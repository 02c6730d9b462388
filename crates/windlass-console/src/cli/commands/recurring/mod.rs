//! `windlass recurring ...`.

pub(crate) mod change;
pub(crate) mod next;

use crate::cli::commands::recurring::change::{AddTask, ChangeTask, RemoveTask};
use crate::cli::commands::recurring::next::{NextRuns, TaskHistory};
use crate::cli::listed::{ChangedBy, jitter, time, undeclared};
use crate::cli::select::connect;
use crate::terminal::{Column, Report, Table, printable};
use serde::Serialize;
use windlass::internal::recurring::tasks;
use windlass::recurring::RecurringStatus;
use windlass::{Database, JobId, Result};

/// Look at the recurring tasks; add, change, run, pause, resume or remove one
#[derive(Debug, clap::Subcommand)]
pub(crate) enum RecurringCommand {
    List(ListTasks),
    Next(NextRuns),
    History(TaskHistory),
    Add(Box<AddTask>),
    Change(Box<ChangeTask>),
    Remove(RemoveTask),
    Run(RunTask),
    Pause(PauseTask),
    Resume(ResumeTask),
}

/// List the recurring tasks
///
/// Those of a Rails app are not among them. A task that a program declares is
/// fired as long as a scheduler of that program runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring list
  windlass recurring list --json | jq '.tasks[] | select(.paused_at)'")]
pub(crate) struct ListTasks {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The tasks at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct TaskList {
    tasks: Vec<RecurringStatus>,
}

impl ListTasks {
    pub(crate) fn run(&self, database: &Database) -> Result<TaskList> {
        let tasks = tasks::list(&mut connect(database)?)?;
        Ok(TaskList { tasks })
    }
}

impl Report for TaskList {
    fn text(&self, width: Option<usize>) -> String {
        if self.tasks.is_empty() {
            return "There are no recurring tasks.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("KEY"),
            Column::text("SCHEDULE"),
            Column::text("CLASS"),
            Column::text("QUEUE"),
            Column::text("NEXT"),
            Column::text("LAST"),
            Column::text("STATE"),
            Column::text("DESCRIPTION"),
        ]);
        for task in &self.tasks {
            table.add(vec![
                printable(&task.key),
                printable(&format!(
                    "{} {}{}",
                    task.schedule,
                    task.time_zone,
                    jitter(task.jitter)
                )),
                printable(&task.class_name),
                printable(&task.queue_name),
                task.next_run_at.map_or(String::new(), time),
                task.last_run_at.map_or(String::new(), time),
                state(task),
                printable(task.description.as_deref().unwrap_or_default()),
            ]);
        }
        table.text(width)
    }
}

pub(crate) fn state(task: &RecurringStatus) -> String {
    let mut words = Vec::new();
    words.extend(task.deleted_at.map(undeclared));
    match (task.paused_at, task.queued_run_at) {
        (Some(since), _) => words.push(format!("paused since {}", time(since))),
        (None, Some(_)) => words.push("waits for its job".to_owned()),
        (None, None) => {}
    }
    let last = task.last_run_at;
    if let Some(from) = task
        .from
        .filter(|from| last.is_none_or(|last| last < *from))
    {
        words.push(format!("from {}", time(from)));
    }
    if let Some(until) = task.until {
        words.push(format!("until {}", time(until)));
    }
    words.join(", ")
}

/// Enqueue the job of a recurring task now, in addition to its schedule
#[derive(Debug, clap::Args)]
pub(crate) struct RunTask {
    /// The task
    key: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The job that was enqueued.
#[derive(Debug, Serialize)]
pub(crate) struct Ran {
    key: String,
    job_id: JobId,
}

impl RunTask {
    pub(crate) fn run(&self, database: &Database) -> Result<Ran> {
        let job_id = self
            .changed_by
            .actor()
            .run_task(&mut connect(database)?, &self.key)?;
        Ok(Ran {
            key: self.key.clone(),
            job_id,
        })
    }
}

impl Report for Ran {
    fn text(&self, _width: Option<usize>) -> String {
        format!(
            "Enqueued job {} of {}.\n",
            self.job_id,
            printable(&self.key)
        )
    }
}

/// Pause a recurring task until it is resumed
///
/// The task stays paused across restarts and deployments.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseTask {
    /// The task
    key: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Resume a recurring task, starting with its next run
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeTask {
    /// The task
    key: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The current state of a task.
#[derive(Debug, Serialize)]
pub(crate) struct PausedState {
    key: String,
    paused: bool,
}

impl PauseTask {
    pub(crate) fn run(&self, database: &Database) -> Result<PausedState> {
        let actor = self.changed_by.actor();
        actor.pause_task(&mut connect(database)?, &self.key)?;
        Ok(PausedState {
            key: self.key.clone(),
            paused: true,
        })
    }
}

impl ResumeTask {
    pub(crate) fn run(&self, database: &Database) -> Result<PausedState> {
        let actor = self.changed_by.actor();
        actor.resume_task(&mut connect(database)?, &self.key)?;
        Ok(PausedState {
            key: self.key.clone(),
            paused: false,
        })
    }
}

impl Report for PausedState {
    fn text(&self, _width: Option<usize>) -> String {
        let done = if self.paused { "Paused" } else { "Resumed" };
        format!("{done} {}.\n", printable(&self.key))
    }
}
