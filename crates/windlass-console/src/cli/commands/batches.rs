//! `windlass batches ...`.

use crate::cli::config::CommandError;
use crate::cli::done::{Deed, Done};
use crate::cli::listed::time;
use crate::cli::select::{Background, How, Scope, Selection, connect};
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::batches::{
    BatchDetails, BatchFilter, BatchFollower, BatchState, BatchSummary, FailedOfBatch,
    FollowerState,
};
use windlass::jobs::{BoundedCount, Change, Jobs, TaskStatus};
use windlass::{BatchId, Database, Result, batches};

/// List, show, cancel and retry batches
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BatchesCommand {
    List(ListBatches),
    Show(ShowBatch),
    Cancel(CancelBatch),
    Retry(RetryBatch),
}

impl BatchesCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        let reading = db.clone().read_only();
        Ok(match self {
            BatchesCommand::List(list) => terminal::show(&list.run(&reading)?, list.json),
            BatchesCommand::Show(show) => terminal::show(&show.run(&reading)?, show.json),
            BatchesCommand::Cancel(cancel) => {
                let done = cancel.run(db)?;
                terminal::show_and_end(&done, cancel.how.json, done.code())
            }
            BatchesCommand::Retry(retry) => {
                let done = retry.run(db)?;
                terminal::show_and_end(&done, retry.how.json, done.code())
            }
        })
    }
}

// --- `windlass batches cancel` and `retry` ---

fn selection(jobs: Jobs) -> Selection {
    let scope = Scope::Some;
    Selection { jobs, scope }
}

/// Cancel all jobs of a batch, and those of the batches in it
///
/// Waiting jobs are cancelled immediately, running jobs when they notice the request. The batch has failed when the last
/// of them has ended: what follows failure runs then.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass batches cancel 7 --dry-run
  windlass batches cancel 7 --reason 'the file was wrong' --background")]
pub(crate) struct CancelBatch {
    /// The id of the batch
    #[arg(value_name = "BATCH")]
    id: i64,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl CancelBatch {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = selection(BatchId(self.id).open_jobs());
        let deed = Deed {
            done: "cancelled",
            but: "has ended",
        };
        self.background
            .run(&self.how, database, &jobs, Change::Cancel, deed)
    }
}

/// Retry all failed jobs of a batch, and those of the batches in it, with all their attempts available again
///
/// A batch that is over stays so, and nothing follows, unless it waits for retries. Jobs that were cancelled are not
/// retried.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass batches retry 7 --dry-run
  windlass batches retry 7 --reason 'the provider is back'")]
pub(crate) struct RetryBatch {
    /// The id of the batch
    #[arg(value_name = "BATCH")]
    id: i64,

    /// Also retry at-most-once jobs: they have started before, and may do their work twice
    #[arg(long)]
    even_at_most_once: bool,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl RetryBatch {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let jobs = selection(BatchId(self.id).failed_jobs());
        let change = Change::Retry {
            even_at_most_once: self.even_at_most_once,
        };
        let deed = Deed {
            done: "retried",
            but: "has not failed",
        };
        self.background
            .run(&self.how, database, &jobs, change, deed)
    }
}

// --- `windlass batches show` ---

/// Show how far a batch is, what follows it, and its first failed jobs
///
/// Its jobs are counted up to 1,000,000, which takes 0.1 s.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass batches show 7
  windlass batches show 7 --json | jq .open.count")]
pub(crate) struct ShowBatch {
    /// The id of the batch
    #[arg(value_name = "BATCH")]
    id: i64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ShowBatch {
    pub(crate) fn run(&self, database: &Database) -> Result<BatchDetails> {
        BatchId(self.id).details(&mut connect(database)?)
    }
}

impl Report for BatchDetails {
    fn text(&self, width: Option<usize>) -> String {
        let batch = &self.batch;
        let line = |name: &str, value: String| format!("{name:<10} {}\n", printable(&value));
        let optional = |name: &str, value: Option<String>| {
            value.map_or_else(String::new, |value| line(name, value))
        };
        let of = if batch.is_of_ruby { " of Ruby" } else { "" };
        let name = printable(&batch.name);
        let mut text = format!(
            "Batch {}{of}, {name}, {}: {} of {} jobs are open, {} failed.\n\n",
            batch.id,
            state(batch.state),
            bounded(batch.open),
            batch.total,
            bounded(batch.failures)
        );
        text += &line("created", time(batch.created_at));
        text += &optional("enqueued", batch.enqueued_at.map(time));
        text += &optional("finished", batch.finished_at.map(time));
        text += &optional("metadata", self.metadata.clone());
        text += &optional("in", self.outer.map(|batch| format!("batch {batch}")));
        let inner: Vec<String> = self.inner.iter().map(BatchId::to_string).collect();
        text += &optional(
            "has",
            (!inner.is_empty()).then(|| format!("the batches {}", inner.join(", "))),
        );
        text += &table(
            "What follows",
            &self.follows,
            &["JOB", "CLASS", "ON", "STATE"],
            width,
            follower,
        );
        text += &table(
            "The first failed jobs",
            &self.failed,
            &["JOB", "CLASS", "STATE", "ERROR"],
            width,
            failed,
        );
        text
    }
}

/// Returns a table with its title, or nothing if it has no rows.
fn table<T>(
    title: &str,
    rows: &[T],
    columns: &[&'static str],
    width: Option<usize>,
    cells: impl Fn(&T) -> Vec<String>,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let columns: Vec<Column> = columns.iter().map(|name| Column::text(name)).collect();
    let mut table = Table::new(&columns);
    rows.iter().for_each(|row| table.add(cells(row)));
    format!("\n{title}:\n{}", table.text(width))
}

fn status(status: Option<TaskStatus>) -> &'static str {
    match status {
        None => "not kept",
        Some(TaskStatus::Queued) => "waits",
        Some(TaskStatus::Running) => "runs",
        Some(TaskStatus::Succeeded) => "finished",
        Some(TaskStatus::Failed) => "failed",
        Some(TaskStatus::Cancelled) => "cancelled",
        Some(TaskStatus::Discarded) => "discarded",
    }
}

fn follower(job: &BatchFollower) -> Vec<String> {
    let is = match job.state {
        FollowerState::Waits => "waits for the batch",
        FollowerState::WaitsForRetries => "waits until failed jobs are retried",
        FollowerState::NotWanted => "deleted: another outcome",
        FollowerState::Follows | FollowerState::Withdrawn => status(job.status),
    };
    vec![
        job.job_id.to_string(),
        printable(job.class_name.as_deref().unwrap_or_default()),
        job.runs_on.clone(),
        is.to_owned(),
    ]
}

fn failed(job: &FailedOfBatch) -> Vec<String> {
    let (class, is) = match job.inner {
        Some(batch) => (format!("batch {batch}"), "failed"),
        None => (
            printable(job.class_name.as_deref().unwrap_or_default()),
            status(job.status),
        ),
    };
    vec![
        job.job_id.to_string(),
        class,
        is.to_owned(),
        printable(job.error.as_deref().unwrap_or_default()),
    ]
}

// --- `windlass batches list` ---

/// List batches, newest first
///
/// The jobs of each are counted up to 10,000. Batches of Rails apps are listed too.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass batches list
  windlass batches list --state open
  windlass batches list --state failed --limit 20 --json
  windlass batches list --before 4711")]
pub(crate) struct ListBatches {
    /// Only batches in this state
    #[arg(long, value_name = "STATE")]
    state: Option<WantedState>,

    /// Only batches with a lower id, to continue a list
    #[arg(long, value_name = "BATCH")]
    before: Option<i64>,

    /// Show at most this many batches
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A state by which batches are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WantedState {
    Open,
    Over,
    Failed,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListedBatches {
    batches: Vec<BatchSummary>,
}

impl ListBatches {
    pub(crate) fn run(&self, database: &Database) -> Result<ListedBatches> {
        let filter = match self.state {
            None => BatchFilter::All,
            Some(WantedState::Open) => BatchFilter::Open,
            Some(WantedState::Over) => BatchFilter::Over,
            Some(WantedState::Failed) => BatchFilter::Failed,
        };
        let before = self.before.map(BatchId);
        let batches = batches::list(&mut connect(database)?, filter, before, self.limit)?;
        Ok(ListedBatches { batches })
    }
}

/// Returns a state as it is shown.
pub(crate) fn state(state: BatchState) -> &'static str {
    match state {
        BatchState::Open => "open",
        BatchState::Succeeded => "succeeded",
        BatchState::Failed => "FAILED",
    }
}

/// Returns `12`, or `10000+` if there are more.
pub(crate) fn bounded(count: BoundedCount) -> String {
    let more = if count.is_exact { "" } else { "+" };
    format!("{}{more}", count.count)
}

impl Report for ListedBatches {
    fn text(&self, width: Option<usize>) -> String {
        if self.batches.is_empty() {
            return "No such batch.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::number("BATCH"),
            Column::text("NAME"),
            Column::text("STATE"),
            Column::number("JOBS"),
            Column::number("OPEN"),
            Column::number("FAILED"),
            Column::text("ENQUEUED"),
            Column::text("FINISHED"),
            Column::text("OF"),
        ]);
        for batch in &self.batches {
            table.add(vec![
                batch.id.to_string(),
                printable(&batch.name),
                state(batch.state).to_owned(),
                batch.total.to_string(),
                bounded(batch.open),
                bounded(batch.failures),
                time(batch.enqueued_at.unwrap_or(batch.created_at)),
                batch.finished_at.map(time).unwrap_or_default(),
                if batch.is_of_ruby { "ruby" } else { "windlass" }.to_owned(),
            ]);
        }
        table.text(width)
    }
}
