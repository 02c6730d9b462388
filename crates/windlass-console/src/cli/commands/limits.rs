//! Commands that set limits and rates while the programs run, and show them.

use crate::cli::config::CommandError;
use crate::cli::listed::{ChangedBy, provenance};
use crate::cli::select::connect;
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::internal::admin::explain::words::age;
use windlass::internal::db::table::run_time::limits::LimitPart;
use windlass::limits::{Rate, RateStatus, RunTimeLimit};
use windlass::{Database, Result, limits};

/// Set limits of concurrency keys, and rates, while the programs run
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LimitsCommand {
    List(ListLimits),
    Set(SetLimit),
    Clear(ClearLimit),
    Reopen(ReopenRate),
}

impl LimitsCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            LimitsCommand::List(list) => {
                terminal::show(&list.run(&db.clone().read_only())?, list.json)
            }
            LimitsCommand::Set(set) => terminal::show(&set.run(db)?, set.json),
            LimitsCommand::Clear(clear) => terminal::show(&clear.run(db)?, clear.json),
            LimitsCommand::Reopen(open) => terminal::show(&open.run(db)?, open.json),
        })
    }
}

// --- `windlass limits list` ---

/// List the limits and rates that were set, and the keys of rates in use
///
/// A key is in use until all its tokens are there again and no job waits. Those of jobs that
/// are ready and have not started are not among the tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits list
  windlass limits list --after api/acme")]
pub(crate) struct ListLimits {
    /// List the 100 keys in use after this one
    #[arg(
        long,
        value_name = "KEY",
        default_value = "",
        hide_default_value = true
    )]
    after: String,

    /// Print JSON; ages are in seconds
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedLimits {
    limits: Vec<RunTimeLimit>,
    /// Keys in use.
    rates: Vec<RateStatus>,
    /// The last of them, if there may be more.
    rates_go_on_after: Option<String>,
}

/// The keys that are listed at once.
const PAGE: usize = 100;

impl ListLimits {
    fn run(&self, database: &Database) -> Result<ListedLimits> {
        let conn = &mut connect(database)?;
        let rates = limits::rates(conn, &self.after)?;
        let last = rates.last().filter(|_| rates.len() >= PAGE);
        Ok(ListedLimits {
            limits: limits::list(conn)?,
            rates_go_on_after: last.map(|rate| rate.key.clone()),
            rates,
        })
    }
}

impl Report for ListedLimits {
    fn text(&self, width: Option<usize>) -> String {
        let mut text = match self.limits.is_empty() {
            true => "No limit is set.\n".to_owned(),
            false => self.limits.iter().map(set_line).collect(),
        };
        if !self.rates.is_empty() {
            text.push_str("\nRates in use:\n");
            text.push_str(&used(&self.rates).text(width));
        }
        if let Some(last) = &self.rates_go_on_after {
            let last = printable(last);
            text.push_str(&format!(
                "`windlass limits list --after {last}` lists further ones.\n"
            ));
        }
        text
    }
}

fn set_line(limit: &RunTimeLimit) -> String {
    let by = limit.set_by.as_deref();
    let said = provenance(Some(limit.set_seconds), by, limit.reason.as_deref());
    format!(
        "{} was set to {}{said}\n",
        printable(&limit.key),
        limit.values()
    )
}

/// Returns the table of keys in use.
fn used(rates: &[RateStatus]) -> Table {
    let mut table = Table::new(&[
        Column::text("KEY"),
        Column::text("RATE"),
        Column::text("SET AS"),
        Column::number("TOKENS"),
        Column::number("WAITING"),
        Column::number("FOR"),
        Column::number("CLOSED FOR"),
    ]);
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), age);
    for rate in rates {
        table.add(vec![
            printable(&rate.key),
            rate.rate
                .map_or_else(|| "-".to_owned(), |rate| rate.to_string()),
            rate.set_as
                .as_deref()
                .map_or_else(|| "-".to_owned(), printable),
            rate.tokens.to_string(),
            match rate.waiting > MOST_WAITING {
                true => format!("{MOST_WAITING}+"),
                false => rate.waiting.to_string(),
            },
            time(rate.waited_seconds),
            time(rate.closed_seconds),
        ]);
    }
    table
}

/// The most jobs of a key that are counted.
const MOST_WAITING: i64 = 1_000;

// --- `windlass limits set` ---

/// Set how many jobs of a key may run at once, or how many start in a time
///
/// It counts instead of the limit or the rate in the program, at once and until it is cleared. A lower limit lets running
/// jobs end. Of all keys of a group, each has the limit and the rate for itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits set import/7 3
  windlass limits set 'import/*' 1 --reason 'the disk is slow'
  windlass limits set 'api/*' --rate 10/s --burst 20")]
pub(crate) struct SetLimit {
    /// The concurrency key with its group, or the key of a rate; GROUP/* for all keys of a group
    #[arg(value_name = "KEY")]
    key: String,

    /// The most jobs of each key that may hold a slot; with 0, none starts
    #[arg(value_name = "SLOTS", required_unless_present = "rate")]
    slots: Option<u32>,

    /// The starts of each key in a second, a minute, an hour or a day: 10/s, 100/m, 20/h, 1000/d
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// The most starts at once after a pause [default: those of a tenth of a second, at least 1 and the cost of the job]
    #[arg(long, value_name = "STARTS", requires = "rate")]
    burst: Option<u32>,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of setting or clearing a limit.
#[derive(Debug, Serialize)]
struct ChangedLimit {
    key: String,
    /// `None` if it was not set.
    slots: Option<u32>,
    /// `None` if it was not set.
    rate: Option<String>,
    /// True if the limit changed.
    changed: bool,
    #[serde(skip)]
    cleared: Option<LimitPart>,
}

impl SetLimit {
    fn run(&self, database: &Database) -> Result<ChangedLimit> {
        let actor = self.changed_by.actor();
        let conn = &mut connect(database)?;
        let rate = self.rate.clone().map(|rate| match self.burst {
            Some(burst) => rate.burst(burst),
            None => rate,
        });
        match (&rate, self.slots) {
            (Some(rate), slots) => actor.set_rate(conn, &self.key, rate, slots)?,
            (None, slots) => actor.set_limit(conn, &self.key, slots.unwrap_or_default())?,
        }
        Ok(ChangedLimit {
            key: self.key.clone(),
            slots: self.slots,
            rate: rate.map(|rate| rate.to_string()),
            changed: true,
            cleared: None,
        })
    }
}

// --- `windlass limits clear` ---

/// Clear what was set for a key: the limit and the rate in the program count again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits clear import/7
  windlass limits clear 'api/*' --rate")]
pub(crate) struct ClearLimit {
    /// The key, as it was set
    #[arg(value_name = "KEY")]
    key: String,

    /// Clear the rate only
    #[arg(long)]
    rate: bool,

    /// Clear the limit of jobs that run at once only
    #[arg(long, conflicts_with = "rate")]
    slots: bool,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ClearLimit {
    fn run(&self, database: &Database) -> Result<ChangedLimit> {
        let part = match (self.rate, self.slots) {
            (true, _) => LimitPart::Rate,
            (false, true) => LimitPart::Slots,
            (false, false) => LimitPart::All,
        };
        let actor = self.changed_by.actor();
        Ok(ChangedLimit {
            key: self.key.clone(),
            slots: None,
            rate: None,
            changed: actor.clear_limit_part(&mut connect(database)?, &self.key, part)?,
            cleared: Some(part),
        })
    }
}

impl Report for ChangedLimit {
    fn text(&self, _width: Option<usize>) -> String {
        let key = printable(&self.key);
        let what = match self.cleared {
            Some(LimitPart::Rate) => "rate",
            _ => "limit",
        };
        match (self.cleared, self.changed) {
            (Some(_), true) => return format!("The {what} of {key} is as its jobs have it.\n"),
            (Some(_), false) => return format!("No {what} of {key} was set.\n"),
            (None, _) => {}
        }
        let clears = format!("`windlass limits clear {key}` clears it");
        match (self.slots, &self.rate) {
            (Some(slots), None) => format!("The limit of {key} is {slots}; {clears}.\n"),
            (None, rate) => format!("The rate of {key} is {}; {clears}.\n", or_none(rate)),
            (Some(slots), rate) => format!(
                "The limit of {key} is {slots}, and its rate {}; {clears}.\n",
                or_none(rate)
            ),
        }
    }
}

fn or_none(rate: &Option<String>) -> &str {
    rate.as_deref().unwrap_or("-")
}

// --- `windlass limits reopen` ---

/// Open the key of a rate that is closed, as a job was refused by the other side
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass limits reopen api/acme")]
pub(crate) struct ReopenRate {
    /// The key
    #[arg(value_name = "KEY")]
    key: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ReopenedRate {
    key: String,
    /// True if it was closed.
    changed: bool,
}

impl ReopenRate {
    fn run(&self, database: &Database) -> Result<ReopenedRate> {
        let actor = self.changed_by.actor();
        Ok(ReopenedRate {
            key: self.key.clone(),
            changed: actor.reopen_rate(&mut connect(database)?, &self.key)?,
        })
    }
}

impl Report for ReopenedRate {
    fn text(&self, _width: Option<usize>) -> String {
        let key = printable(&self.key);
        match self.changed {
            true => format!("{key} is open: its jobs start at its rate.\n"),
            false => format!("{key} was not closed.\n"),
        }
    }
}
