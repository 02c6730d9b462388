//! `windlass batches list`.

use crate::admin::batches::{self, BatchFilter, BatchState, BatchSummary};
use crate::admin::jobs::BoundedCount;
use crate::cli::select::connect;
use crate::cli::words::time;
use crate::db::Database;
use crate::error::Result;
use crate::job::id::BatchId;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use serde::Serialize;

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
        let batches = batches::batches(&mut connect(database)?, filter, before, self.limit)?;
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
