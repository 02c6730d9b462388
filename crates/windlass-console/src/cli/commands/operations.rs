//! `windlass operations ...`.

use crate::cli::config::CommandError;
use crate::cli::listed::{ChangedBy, time};
use crate::cli::select::connect;
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::operations::{Operation, OperationState};
use windlass::{Database, DbConnection, Error, Result, operations};

/// See and stop changes of many jobs that run in the background
#[derive(Debug, clap::Subcommand)]
pub(crate) enum OperationsCommand {
    List(ListOperations),
    Show(ShowOperation),
    Stop(StopOperation),
}

impl OperationsCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        let reading = db.clone().read_only();
        Ok(match self {
            OperationsCommand::List(list) => terminal::show(&list.run(&reading)?, list.json),
            OperationsCommand::Show(show) => terminal::show(&show.run(&reading)?, show.json),
            OperationsCommand::Stop(stop) => {
                let stopped = stop.run(db)?;
                terminal::show_and_end(&stopped, stop.json, u8::from(!stopped.stopped))
            }
        })
    }
}

/// List operations, newest first
///
/// They are kept for 30 days after their end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass operations list
  windlass operations list --json | jq '.operations[] | select(.state == \"running\")'")]
pub(crate) struct ListOperations {
    /// Show at most this many operations
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedOperations {
    operations: Vec<Operation>,
}

impl ListOperations {
    fn run(&self, database: &Database) -> Result<ListedOperations> {
        let operations = operations::list(&mut connect(database)?, None, self.limit)?;
        Ok(ListedOperations { operations })
    }
}

fn state(state: OperationState) -> &'static str {
    match state {
        OperationState::Waiting => "waiting",
        OperationState::Running => "running",
        OperationState::Stopped => "stopped",
        OperationState::Done => "done",
        OperationState::Failed => "FAILED",
    }
}

/// Returns how much of it is done, rounded down.
fn percent(operation: &Operation) -> String {
    format!("{:.0}%", (operation.fraction * 100.0).floor())
}

impl Report for ListedOperations {
    fn text(&self, width: Option<usize>) -> String {
        if self.operations.is_empty() {
            return "No operation was started, or none is kept.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::number("ID"),
            Column::text("ACTION"),
            Column::text("STATE"),
            Column::number("DONE"),
            Column::number("CHANGED"),
            Column::number("TRIED"),
            Column::text("ACTOR"),
            Column::text("STARTED"),
        ]);
        for operation in &self.operations {
            table.add(vec![
                operation.id.to_string(),
                printable(&operation.action),
                state(operation.state).to_owned(),
                percent(operation),
                operation.changed.to_string(),
                operation.looked_at.to_string(),
                printable(&operation.actor),
                time(operation.created_at),
            ]);
        }
        table.text(width)
    }
}

/// Show how far an operation is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass operations show 7
  windlass operations show 7 --json | jq .fraction")]
pub(crate) struct ShowOperation {
    /// The id of the operation
    #[arg(value_name = "OPERATION")]
    id: i64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ShowOperation {
    fn run(&self, database: &Database) -> Result<Operation> {
        find(&mut connect(database)?, self.id)
    }
}

fn find(database: &mut DbConnection, id: i64) -> Result<Operation> {
    let found = operations::find(database, id)?;
    found.ok_or(Error::NoSuchOperation { id })
}

impl Report for Operation {
    fn text(&self, _width: Option<usize>) -> String {
        let line = |name: &str, value: String| format!("{name:<10} {}\n", printable(&value));
        let mut text = format!(
            "Operation {} is {}: {}.\n\n",
            self.id,
            state(self.state).to_lowercase(),
            percent(self)
        );
        let total = self.total.map(|total| {
            let more = if total.is_exact { "" } else { " or more" };
            format!(" of {}{more}", total.count)
        });
        let counts = &self.counts;
        let left = counts.refused + counts.done.left_alone() + counts.done.passed_over;
        text += &line("action", self.action.clone());
        text += &line("value", self.parameters.to_string());
        text += &line("jobs", self.filter.to_string());
        text += &line(
            "tried",
            format!("{}{}", self.looked_at, total.unwrap_or_default()),
        );
        text += &line("changed", self.changed.to_string());
        text += &line("left", left.to_string());
        text += &line("by", format!("{} ({})", self.actor, self.via));
        let times = [
            ("started", Some(self.created_at)),
            ("moved", self.started_at.map(|_| self.moved_at)),
            ("ended", self.ended_at),
        ];
        for (name, at) in times {
            text += &at.map_or(String::new(), |at| line(name, time(at)));
        }
        for (name, said) in [("reason", &self.reason), ("error", &self.error)] {
            text += &said.clone().map_or(String::new(), |said| line(name, said));
        }
        text
    }
}

/// Stop an operation: no further batch of it runs
///
/// Jobs that it has changed stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass operations stop 7 --reason 'the provider is down again'")]
pub(crate) struct StopOperation {
    /// The id of the operation
    #[arg(value_name = "OPERATION")]
    id: i64,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct StoppedOperation {
    operation_id: i64,
    stopped: bool,
}

impl StopOperation {
    fn run(&self, database: &Database) -> Result<StoppedOperation> {
        let mut connection = connect(database)?;
        let stopped = self
            .changed_by
            .actor()
            .stop_operation(&mut connection, self.id)?;
        if !stopped {
            find(&mut connection, self.id)?;
        }
        Ok(StoppedOperation {
            operation_id: self.id,
            stopped,
        })
    }
}

impl Report for StoppedOperation {
    fn text(&self, _width: Option<usize>) -> String {
        let id = self.operation_id;
        match self.stopped {
            true => format!("Operation {id} is stopped.\n"),
            false => format!("Operation {id} has ended already.\n"),
        }
    }
}
