//! `windlass events`.

use crate::cli::failure::CommandError;
use crate::cli::select::connect;
use crate::cli::values;
use crate::db::Database;
use crate::flow::waits;
use crate::terminal::output::{self, Report};
use crate::terminal::table::printable;
use serde::Serialize;
use std::process::ExitCode;

/// Emit events, for which jobs wait
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EventsCommand {
    Emit(Emit),
}

impl EventsCommand {
    pub(crate) fn show(&self, database: &Database) -> Result<ExitCode, CommandError> {
        match self {
            EventsCommand::Emit(emit) => Ok(output::show(&emit.run(database)?, emit.json)),
        }
    }
}

/// Emit an event: jobs that wait for it run again, now or when they come to their wait
///
/// An event happens once. To emit it again with the same payload does nothing; with another payload
/// it is refused, and the first stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass events emit paid/7
  windlass events emit paid/7 '{\"cents\": 990}'
  jq -c . payload.json | windlass events emit paid/7 -")]
pub(crate) struct Emit {
    /// The name of the event
    #[arg(value_name = "EVENT")]
    name: String,

    /// Its payload, or `-` to read it from standard input
    #[arg(value_name = "JSON", default_value = "null")]
    payload: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The event that was emitted.
#[derive(Debug, Serialize)]
struct Emitted<'e> {
    event: &'e str,
}

impl Emit {
    fn run(&self, database: &Database) -> Result<Emitted<'_>, CommandError> {
        let payload = values::json(("the payload is", "it"), &self.payload)?;
        waits::emit_json(&mut connect(database)?, &self.name, &payload)?;
        Ok(Emitted { event: &self.name })
    }
}

impl Report for Emitted<'_> {
    fn text(&self, _width: Option<usize>) -> String {
        format!("Emitted {}.\n", printable(self.event))
    }
}
