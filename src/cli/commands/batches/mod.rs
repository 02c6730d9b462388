//! `windlass batches ...`.

mod change;
mod list;
mod show;

use crate::cli::commands::batches::change::{CancelBatch, RetryBatch};
use crate::cli::commands::batches::list::ListBatches;
use crate::cli::commands::batches::show::ShowBatch;
use crate::cli::failure::CommandError;
use crate::db::Database;
use crate::terminal::output;
use std::process::ExitCode;

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
            BatchesCommand::List(list) => output::show(&list.run(&reading)?, list.json),
            BatchesCommand::Show(show) => output::show(&show.run(&reading)?, show.json),
            BatchesCommand::Cancel(cancel) => {
                let done = cancel.run(db)?;
                output::show_and_end(&done, cancel.how.json, done.code())
            }
            BatchesCommand::Retry(retry) => {
                let done = retry.run(db)?;
                output::show_and_end(&done, retry.how.json, done.code())
            }
        })
    }
}
