//! `windlass audit ...`.

use crate::cli::config::CommandError;
use crate::cli::job_flags;
use crate::cli::listed::time;
use crate::cli::select::connect;
use crate::terminal::{self, Column, Report, Table, printable};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;
use windlass::audit::{AuditEntry, AuditLog};
use windlass::internal::clock;
use windlass::internal::db::table::audit::AuditFilter;
use windlass::jobs::Jobs;
use windlass::{Database, DbConnection, Result};

/// See who changed what
#[derive(Debug, clap::Subcommand)]
pub(crate) enum AuditCommand {
    List(ListAudit),
    Tail(TailAudit),
}

impl AuditCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            AuditCommand::List(list) => terminal::show(&list.run(db)?, list.json),
            AuditCommand::Tail(tail) => tail.run(db)?,
        })
    }
}

/// The filters of the changes to show.
#[derive(Debug, clap::Args)]
struct WhichEntries {
    /// Only changes by this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Only this action, such as `jobs.retry` or `queues.pause`
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only changes of this queue, class, key, task, operation or job
    #[arg(long, value_name = "NAME")]
    target: Option<String>,

    /// Only changes of this operation
    #[arg(long, value_name = "OPERATION")]
    operation: Option<i64>,
}

impl WhichEntries {
    fn filter(&self) -> AuditFilter {
        AuditFilter {
            actor: self.actor.clone(),
            action: self.action.clone(),
            target: self.target.clone(),
            operation: self.operation,
            ..AuditFilter::default()
        }
    }
}

/// List changes, newest first
///
/// A change in chunks is one line, with the jobs of all its chunks; `--parts` shows each of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass audit list --since 2026-12-24T18:00:00Z
  windlass audit list --actor ada@web-1 --action jobs.discard
  windlass audit list --target mail --json | jq '.entries[].reason'")]
pub(crate) struct ListAudit {
    #[command(flatten)]
    which: WhichEntries,

    /// Only changes from this time on, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = job_flags::time)]
    since: Option<DateTime<Utc>>,

    /// Only changes before this time
    #[arg(long, value_name = "TIME", value_parser = job_flags::time)]
    until: Option<DateTime<Utc>>,

    /// Only changes before the one with this id: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,

    /// Show the further batches of the change with this id
    #[arg(long, value_name = "ID")]
    parts: Option<i64>,

    /// Show at most this many changes
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedEntries {
    entries: Vec<AuditEntry>,
}

impl ListAudit {
    fn run(&self, database: &Database) -> Result<ListedEntries> {
        let utc = |time: DateTime<Utc>| time.naive_utc();
        let filter = AuditFilter {
            since: self.since.map(utc),
            until: self.until.map(utc),
            before: self.before,
            parts_of: self.parts,
            ..self.which.filter()
        };
        let mut connection = connect(&database.clone().read_only())?;
        let log = AuditLog::of(filter).limit(self.limit);
        let entries = log.list(&mut connection)?;
        Ok(ListedEntries { entries })
    }
}

/// Returns what was changed: the target, or the selection of the jobs.
fn what(entry: &AuditEntry) -> String {
    let selected = |filter: &serde_json::Value| {
        let jobs: Jobs = serde_json::from_value(filter.clone()).ok()?;
        let pairs = jobs.to_pairs().into_iter();
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Some(pairs.join(" "))
    };
    let text = match (&entry.target, &entry.filter) {
        (Some(target), _) => target.clone(),
        (None, Some(filter)) => selected(filter).unwrap_or_else(|| filter.to_string()),
        (None, None) => String::new(),
    };
    shortened(&text)
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let text = printable(text);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// Returns what was set, as `to=slow`.
fn values_of(entry: &AuditEntry) -> String {
    let text = entry.parameters.as_ref().map(ToString::to_string);
    shortened(&text.unwrap_or_default())
}

impl Report for ListedEntries {
    fn text(&self, width: Option<usize>) -> String {
        if self.entries.is_empty() {
            return "No such change was made.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::number("ID"),
            Column::text("TIME"),
            Column::text("ACTOR"),
            Column::text("VIA"),
            Column::text("ACTION"),
            Column::text("WHAT"),
            Column::text("VALUE"),
            Column::number("JOBS"),
            Column::text("REASON"),
        ]);
        for entry in &self.entries {
            let jobs = entry.total.map_or(String::new(), |jobs| jobs.to_string());
            table.add(vec![
                entry.id.to_string(),
                time(entry.at),
                printable(&entry.actor),
                printable(&entry.via),
                printable(&entry.action),
                what(entry),
                values_of(entry),
                jobs,
                shortened(entry.reason.as_deref().unwrap_or_default()),
            ]);
        }
        table.text(width)
    }
}

/// Show the last changes, oldest first, and with --follow each new one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass audit tail
  windlass audit tail --follow --json | jq -c '[.actor, .action, .target]'")]
pub(crate) struct TailAudit {
    #[command(flatten)]
    which: WhichEntries,

    /// Show this many of the last changes
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    count: u32,

    /// Go on with each new change, until interrupted
    #[arg(long, short)]
    follow: bool,

    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", requires = "follow",
        value_parser = job_flags::above_zero)]
    every: Duration,

    /// Look this many times, then exit
    #[arg(long, value_name = "COUNT", requires = "follow")]
    times: Option<u64>,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// The number of the last changes that each later read has: a transaction that takes long may add
/// one before those that were shown already.
const READ_AGAIN: u32 = 200;

impl TailAudit {
    fn run(&self, database: &Database) -> Result<ExitCode> {
        let mut connection = connect(&database.clone().read_only())?;
        let mut shown = BTreeSet::new();
        let mut reads = 0;
        loop {
            let count = if reads == 0 { self.count } else { READ_AGAIN };
            let oldest = shown.first().copied();
            for entry in self.read(&mut connection, count)?.iter().rev() {
                // Changes that are older than all that were shown were not asked for.
                let is_old = oldest.is_some_and(|oldest| entry.id < oldest);
                if !is_old && shown.insert(entry.id) && !self.print(entry) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            while shown.len() > 2 * READ_AGAIN as usize {
                shown.pop_first();
            }
            reads += 1;
            if !self.follow || self.times.is_some_and(|times| reads >= times) {
                return Ok(ExitCode::SUCCESS);
            }
            clock::nap(self.every);
        }
    }

    fn read(&self, connection: &mut DbConnection, count: u32) -> Result<Vec<AuditEntry>> {
        let log = AuditLog::of(self.which.filter());
        log.limit(count).list(connection)
    }

    /// Prints an entry. Returns `false` if the output is closed.
    fn print(&self, entry: &AuditEntry) -> bool {
        let text = if self.json {
            serde_json::to_string(entry).unwrap_or_default()
        } else {
            line(entry)
        };
        terminal::print_line(&text)
    }
}

fn line(entry: &AuditEntry) -> String {
    let jobs = entry.total.map(|jobs| format!("{jobs} jobs"));
    let reason = entry.reason.as_deref().map(shortened);
    let words = [
        time(entry.at),
        printable(&entry.actor),
        printable(&entry.action),
        what(entry),
        values_of(entry),
        jobs.unwrap_or_default(),
        reason.map_or(String::new(), |reason| format!("({reason})")),
    ];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join("  ")
}
