//! `windlass jobs ...`.

use crate::cli::config::CommandError;
use crate::cli::done::{Deed, Done};
use crate::cli::job_flags;
use crate::cli::listed::{ChangedBy, ListedJobs, name};
use crate::cli::select::{self, Background, How, Which, connect, tagged, with_progress};
use crate::terminal::Report;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::time::Duration;
use windlass::internal::db::model::extras::TagChange;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::{Database, JobId, Registry, Result};

/// List jobs, and cancel, discard, move or tag waiting jobs
#[derive(Debug, clap::Subcommand)]
pub(crate) enum JobsCommand {
    List(ListJobs),
    Show(crate::cli::commands::show::Show),
    Cancel(Cancel),
    Discard(DiscardJobs),
    Reschedule(Reschedule),
    Edit(Edit),
    Priority(Priority),
    Move(Move),
    /// Add a tag to jobs that have not ended
    ///
    /// A job that has the tag already is not changed. A running job sees the tag at its next attempt.
    #[command(after_help = "\
Examples:
  windlass jobs tag night 4711 4712
  windlass jobs tag customer/7 --class import --dry-run")]
    Tag(Retag),
    /// Remove a tag from jobs that have not ended
    ///
    /// A job without the tag is not changed.
    #[command(after_help = "\
Examples:
  windlass jobs untag night 4711
  windlass jobs untag night --all")]
    Untag(Retag),
}

/// List jobs by state: waiting jobs in the order in which they run, ended jobs newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs list
  windlass jobs list --state scheduled --class import --limit 20
  windlass jobs list --tag customer/7 --tag night
  windlass jobs list --state cancelled --json")]
pub(crate) struct ListJobs {
    /// Only jobs in this state [default: all that have not ended]
    #[arg(long, value_parser = states(), value_name = "STATE")]
    state: Option<JobState>,

    /// Only jobs of this class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Only jobs on this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Only jobs with this tag; if repeated, with all of them
    #[arg(long = "tag", value_name = "TEXT")]
    tags: Vec<String>,

    /// Only jobs with this tag; if repeated, with at least one of them
    #[arg(long, value_name = "TEXT")]
    any_tag: Vec<String>,

    /// Show at most this many jobs
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn states() -> impl clap::builder::TypedValueParser<Value = JobState> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    const STATES: [JobState; 8] = [
        JobState::Ready,
        JobState::Scheduled,
        JobState::Blocked,
        JobState::Claimed,
        JobState::Failed,
        JobState::Finished,
        JobState::Cancelled,
        JobState::Discarded,
    ];
    PossibleValuesParser::new(STATES.map(name)).try_map(|text| {
        let found = STATES.into_iter().find(|state| name(*state) == text);
        found.ok_or("no such state")
    })
}

impl ListJobs {
    pub(crate) fn run(&self, database: &Database) -> Result<ListedJobs> {
        let mut jobs = self
            .state
            .map_or_else(Jobs::unfinished, Jobs::in_state)
            .limit(self.limit);
        if let Some(class) = &self.class {
            jobs = jobs.class(class);
        }
        if let Some(queue) = &self.queue {
            jobs = jobs.queue(queue);
        }
        let jobs = tagged(jobs, &self.tags, &self.any_tag);
        let is_tagged = !(self.tags.is_empty() && self.any_tag.is_empty());
        let is_narrow = self.state.is_some() || self.class.is_some() || self.queue.is_some();
        let none = match is_narrow || is_tagged {
            true => "No job matches.",
            false => "There is no unfinished job.",
        };
        ListedJobs::read(&mut connect(database)?, &jobs, none)
    }
}

/// Cancel jobs: waiting jobs immediately, running jobs when they notice the request
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs cancel 4711
  windlass jobs cancel --class import --dry-run")]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Cancel {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = self.which.select(Jobs::waiting_or_running())?;
        let deed = Deed {
            done: "cancelled",
            but: "has ended",
        };
        self.background
            .run(&self.how, database, &jobs, Change::Cancel, deed)
    }
}

/// Delete waiting jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs discard 4711 4712
  windlass jobs discard --queue imports --dry-run")]
pub(crate) struct DiscardJobs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl DiscardJobs {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = self.which.select(Jobs::waiting())?;
        let deed = Deed {
            done: "discarded",
            but: "does not wait",
        };
        self.background
            .run(&self.how, database, &jobs, Change::Discard, deed)
    }
}

/// Reschedule ready or scheduled jobs
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true), after_help = "\
Examples:
  windlass jobs reschedule 4711 --in '2h 30m'
  windlass jobs reschedule --class import --at 2026-12-24T18:00:00Z
  windlass jobs reschedule --queue mail --in 0s")]
pub(crate) struct Reschedule {
    #[command(flatten)]
    which: Which,

    /// Run after this time; 0s runs them immediately
    #[arg(long = "in", value_name = "TIME", value_parser = humantime::parse_duration, group = "when")]
    delay: Option<Duration>,

    /// Run at this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = job_flags::time, group = "when")]
    at: Option<DateTime<Utc>>,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Reschedule {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let change = match (self.at, self.delay) {
            (Some(time), _) => Change::RunAt(time),
            (None, delay) => Change::RunIn(delay.unwrap_or_default()),
        };
        let jobs = self.which.select(Jobs::waiting())?;
        let deed = Deed {
            done: "rescheduled",
            but: "does not wait",
        };
        self.background
            .run(&self.how, database, &jobs, change, deed)
    }
}

/// Change the priority of waiting jobs; a smaller number is more important
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs priority --to -10 4711
  windlass jobs priority --to 5 --class import")]
pub(crate) struct Priority {
    #[command(flatten)]
    which: Which,

    /// The new priority
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    to: i32,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Priority {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = self.which.select(Jobs::waiting())?;
        let change = Change::Priority(self.to);
        let deed = Deed {
            done: "given another priority",
            but: "does not wait",
        };
        self.background
            .run(&self.how, database, &jobs, change, deed)
    }
}

/// Move waiting jobs to another queue
///
/// They keep their time, their priority and a slot of a concurrency key that they hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs move --to slow 4711
  windlass jobs move --to imports --class import --queue default")]
pub(crate) struct Move {
    #[command(flatten)]
    which: Which,

    /// The name of the new queue
    #[arg(long, value_name = "NAME")]
    to: String,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Move {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = self.which.select(Jobs::waiting())?;
        let change = Change::Queue(self.to.clone());
        let deed = Deed {
            done: "moved",
            but: "does not wait",
        };
        self.background
            .run(&self.how, database, &jobs, change, deed)
    }
}

// --- `windlass jobs edit` ---

/// Replace the arguments of a job that waits or has failed
///
/// In a program that mounts this command, they must match the job's type, if it is registered, and
/// get its version. Otherwise the version stays as it is, as `jobs show` prints it. The unique id and
/// the concurrency key stay too. Write secret fields anew: they are shown as `[hidden]`, which is
/// refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs edit 4711 --arguments '{\"file\": \"users.csv\"}'
  jq -c . args.json | windlass jobs edit 4711 --arguments -")]
pub(crate) struct Edit {
    /// The id of the job
    #[arg(value_name = "JOB", value_parser = select::job_id)]
    id: i64,

    /// The new arguments, or `-` to read them from standard input
    #[arg(long, value_name = "JSON")]
    arguments: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The edited job.
#[derive(Debug, Serialize)]
pub(crate) struct EditedJob {
    job_id: i64,
}

impl Edit {
    pub(crate) fn run(
        &self,
        database: &Database,
        registry: Option<&Registry>,
    ) -> Result<EditedJob, CommandError> {
        let arguments = select::arguments(&self.arguments)?;
        self.changed_by.actor().edit_arguments(
            &mut connect(database)?,
            JobId(self.id),
            &arguments,
            registry,
        )?;
        Ok(EditedJob { job_id: self.id })
    }
}

impl Report for EditedJob {
    fn text(&self, _width: Option<usize>) -> String {
        format!("Job {} has new arguments.\n", self.job_id)
    }
}

// --- `windlass jobs tag` and `windlass jobs untag` ---

/// A tag, and the jobs whose tags change.
#[derive(Debug, clap::Args)]
pub(crate) struct Retag {
    /// The tag
    #[arg(value_name = "TAG")]
    name: String,

    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Retag {
    pub(crate) fn add(&self, database: &Database) -> Result<Done> {
        self.run(database, TagChange::Add(&self.name), "tagged")
    }

    pub(crate) fn remove(&self, database: &Database) -> Result<Done> {
        self.run(database, TagChange::Remove(&self.name), "untagged")
    }

    fn run(&self, database: &Database, change: TagChange<'_>, done: &'static str) -> Result<Done> {
        let deed = Deed {
            done,
            but: "has ended",
        };
        let jobs = self.which.select(Jobs::unfinished())?;
        self.how
            .run_by(database, &jobs, false, deed, |connection, jobs| {
                with_progress(connection, jobs, deed, |connection, reached| {
                    jobs.retag(connection, change, reached)
                })
            })
    }
}
