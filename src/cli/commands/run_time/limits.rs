//! `windlass limits ...`.

use crate::admin::queues::limits;
use crate::cli::failure::CommandError;
use crate::cli::said_by::{SaidBy, said};
use crate::cli::select::connect;
use crate::db::Database;
use crate::db::table::run_time::limits::RunTimeLimit;
use crate::error::Result;
use crate::terminal::output::{self, Report};
use crate::terminal::table::printable;
use serde::Serialize;
use std::process::ExitCode;

/// Set the limits of concurrency keys while the programs run
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LimitsCommand {
    List(ListLimits),
    Set(SetLimit),
    Clear(ClearLimit),
}

impl LimitsCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            LimitsCommand::List(list) => {
                output::show(&list.run(&db.clone().read_only())?, list.json)
            }
            LimitsCommand::Set(set) => output::show(&set.run(db)?, set.json),
            LimitsCommand::Clear(clear) => output::show(&clear.run(db)?, clear.json),
        })
    }
}

/// List the limits that were set
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits list")]
pub(crate) struct ListLimits {
    /// Print JSON; ages are in seconds
    #[arg(long)]
    json: bool,
}

/// Set how many jobs of a concurrency key may run at once
///
/// It counts instead of the limit in the program, at once and until it is cleared. A lower limit
/// lets running jobs end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits set import/7 3
  windlass limits set 'import/*' 1 --reason 'the disk is slow'")]
pub(crate) struct SetLimit {
    /// The key with its group, or GROUP/* for all keys of a group
    #[arg(value_name = "KEY")]
    key: String,

    /// How many jobs of each key may hold a slot; with 0, none starts
    #[arg(value_name = "SLOTS")]
    slots: u32,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Clear a limit that was set: the limit in the program counts again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits clear import/7")]
pub(crate) struct ClearLimit {
    /// The key, as it was set
    #[arg(value_name = "KEY")]
    key: String,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedLimits {
    limits: Vec<RunTimeLimit>,
}

/// The result of setting or clearing a limit.
#[derive(Debug, Serialize)]
struct ChangedLimit {
    key: String,
    /// `None` after it was cleared.
    slots: Option<u32>,
    /// Whether something changed.
    changed: bool,
}

impl ListLimits {
    fn run(&self, database: &Database) -> Result<ListedLimits> {
        let limits = limits(&mut connect(database)?)?;
        Ok(ListedLimits { limits })
    }
}

impl SetLimit {
    fn run(&self, database: &Database) -> Result<ChangedLimit> {
        let actor = self.said_by.actor();
        actor.set_limit(&mut connect(database)?, &self.key, self.slots)?;
        Ok(ChangedLimit {
            key: self.key.clone(),
            slots: Some(self.slots),
            changed: true,
        })
    }
}

impl ClearLimit {
    fn run(&self, database: &Database) -> Result<ChangedLimit> {
        Ok(ChangedLimit {
            key: self.key.clone(),
            slots: None,
            changed: self
                .said_by
                .actor()
                .clear_limit(&mut connect(database)?, &self.key)?,
        })
    }
}

impl Report for ListedLimits {
    fn text(&self, _width: Option<usize>) -> String {
        if self.limits.is_empty() {
            return "No limit is set.\n".to_owned();
        }
        let line = |limit: &RunTimeLimit| {
            let by = limit.set_by.as_deref();
            let said = said(Some(limit.set_seconds), by, limit.reason.as_deref());
            let key = printable(&limit.key);
            format!("{key} was set to {}{said}\n", limit.slots)
        };
        self.limits.iter().map(line).collect()
    }
}

impl Report for ChangedLimit {
    fn text(&self, _width: Option<usize>) -> String {
        let key = printable(&self.key);
        match (self.slots, self.changed) {
            (Some(slots), _) => {
                format!("The limit of {key} is {slots}; `windlass limits clear {key}` clears it.\n")
            }
            (None, true) => format!("The limit of {key} is as its jobs have it.\n"),
            (None, false) => format!("No limit of {key} was set.\n"),
        }
    }
}
