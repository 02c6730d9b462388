//! `windlass batches cancel` and `retry`.

use crate::admin::bulk::change::Change;
use crate::admin::jobs::Jobs;
use crate::cli::done::{Deed, Done};
use crate::cli::select::{Background, How, Scope, Selection};
use crate::db::Database;
use crate::error::Result;
use crate::job::id::BatchId;

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
