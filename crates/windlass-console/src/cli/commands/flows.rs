//! `windlass flows ...`.

use crate::cli::config::CommandError;
use crate::cli::listed::ChangedBy;
use crate::cli::select::{self, connect};
use crate::terminal::{self, Report, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::flows::{FlowGraph, FlowId};
use windlass::internal::flow::waits;
use windlass::{BatchId, Database, JobId, Result, events};

/// Show what waits for what
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FlowsCommand {
    Show(ShowFlow),
}

impl FlowsCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode> {
        let FlowsCommand::Show(show) = self;
        let flow = show.run(&db.clone().read_only())?;
        Ok(terminal::show(&flow, show.json))
    }
}

/// Show the jobs and batches that wait for each other, around one of them
///
/// At most 200 are shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass flows show 4711
  windlass flows show --batch 7
  windlass flows show 4711 --format dot | dot -Tsvg > flow.svg")]
pub(crate) struct ShowFlow {
    /// The id of the job
    #[arg(value_name = "ID")]
    id: i64,

    /// It is the id of a batch
    #[arg(long)]
    batch: bool,

    /// A text tree, or the language of Graphviz or Mermaid
    #[arg(long, value_enum, default_value_t = FlowFormat::Tree, conflicts_with = "json")]
    format: FlowFormat,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FlowFormat {
    Tree,
    Dot,
    Mermaid,
}

impl ShowFlow {
    fn run(&self, database: &Database) -> Result<ShownFlow> {
        let id = match self.batch {
            true => FlowId::from(BatchId(self.id)),
            false => FlowId::from(JobId(self.id)),
        };
        Ok(ShownFlow {
            graph: FlowGraph::around(&mut connect(database)?, id)?,
            format: self.format,
        })
    }
}

#[derive(Debug, Serialize)]
struct ShownFlow {
    #[serde(flatten)]
    graph: FlowGraph,
    #[serde(skip)]
    format: FlowFormat,
}

impl Report for ShownFlow {
    fn text(&self, _width: Option<usize>) -> String {
        match self.format {
            FlowFormat::Tree => self.graph.tree(),
            FlowFormat::Dot => self.graph.dot(),
            FlowFormat::Mermaid => self.graph.mermaid(),
        }
    }
}

// --- `windlass events` ---

/// Emit events, for which jobs wait
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EventsCommand {
    Emit(Emit),
    Max(MaxPayload),
}

impl EventsCommand {
    pub(crate) fn show(&self, database: &Database) -> Result<ExitCode, CommandError> {
        match self {
            EventsCommand::Emit(emit) => Ok(terminal::show(&emit.run(database)?, emit.json)),
            EventsCommand::Max(max) => Ok(terminal::show(&max.run(database)?, max.json)),
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
        let payload = select::json(("the payload is", "it"), &self.payload)?;
        waits::emit_json(&mut connect(database)?, &self.name, &payload)?;
        Ok(Emitted { event: &self.name })
    }
}

impl Report for Emitted<'_> {
    fn text(&self, _width: Option<usize>) -> String {
        format!("Emitted {}.\n", printable(self.event))
    }
}

/// Show or set the maximum size of a payload, for Rust, SQL and HTTP
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass events max
  windlass events max 1000000 --reason 'reports of the bank'")]
pub(crate) struct MaxPayload {
    /// The maximum in bytes, from 65536 to 67108864; without it, what is set is shown
    #[arg(value_name = "BYTES")]
    bytes: Option<usize>,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct MaxPayloadSetting {
    bytes: usize,
    /// True if the setting changed.
    changed: bool,
}

impl MaxPayload {
    fn run(&self, database: &Database) -> Result<MaxPayloadSetting, CommandError> {
        let conn = &mut connect(database)?;
        let changed = match self.bytes {
            Some(bytes) => self.changed_by.actor().set_max_payload(conn, bytes)?,
            None => false,
        };
        let bytes = events::max_payload(conn)?;
        Ok(MaxPayloadSetting { bytes, changed })
    }
}

impl Report for MaxPayloadSetting {
    fn text(&self, _width: Option<usize>) -> String {
        format!("A payload has at most {} bytes.\n", self.bytes)
    }
}
