//! `windlass batches show`.

use crate::admin::batches::details::{BatchDetails, BatchFollower, FailedOfBatch, FollowerState};
use crate::admin::job_info::TaskStatus;
use crate::cli::commands::batches::list::{bounded, state};
use crate::cli::select::connect;
use crate::cli::words::time;
use crate::db::Database;
use crate::error::Result;
use crate::job::id::BatchId;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};

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
