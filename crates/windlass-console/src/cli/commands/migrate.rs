//! `windlass migrate`.

use crate::terminal::Report;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use windlass::database::Dialect;
use windlass::internal::db::schema::compare;
use windlass::internal::db::schema::migrations::{self, Copied, CopyOutcome};
use windlass::schema::{RailsOption, set_rails_option};
use windlass::{AsConn as _, Database, Result};

/// Create the tables, or update them
///
/// The command can be run at any time, and several times at once. Existing tables are kept, also
/// those of a Rails app with Solid Queue. Missing parts that another program dropped are added
/// again. A SQLite file is created if it does not exist; a Postgres database must exist.
///
/// Settings for a database that a Rails app shares stay as they are, until they are turned off.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass migrate --database sqlite://jobs.db
  windlass migrate --dry-run
  windlass migrate --wake-from-ruby on --active-job-envelopes on
  DATABASE_URL=postgres://app@localhost/app windlass migrate --json")]
pub(crate) struct Migrate {
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Beside a Rails app, on Postgres: wake idle workers for jobs that Ruby makes ready
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"], conflicts_with = "dry_run")]
    wake_from_ruby: Option<String>,

    /// Beside a Rails app: have new jobs carry Active Job's envelope, for Mission Control
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"], conflicts_with = "dry_run")]
    active_job_envelopes: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The migrations that were or would be applied.
#[derive(Debug, Serialize)]
pub(crate) struct AppliedMigrations {
    database: String,
    dry_run: bool,
    applied: Vec<String>,
    completed: Vec<String>,
}

impl Migrate {
    /// Applies the migrations that the database lacks, and completes the tables.
    pub(crate) fn run(&self, database: &Database) -> Result<AppliedMigrations> {
        let mut migrated = if self.dry_run {
            compare::pending(&mut database.connect()?.as_conn())?
        } else {
            database.migrate()?
        };
        for (option, setting) in [
            (RailsOption::WakeFromRuby, &self.wake_from_ruby),
            (RailsOption::ActiveJobEnvelopes, &self.active_job_envelopes),
        ] {
            if let Some(setting) = setting {
                let done = set_rails_option(&mut database.connect()?, option, setting == "on")?;
                migrated.completed.extend(done.completed);
            }
        }
        Ok(AppliedMigrations {
            database: database.target(),
            dry_run: self.dry_run,
            applied: migrated.versions,
            completed: migrated.completed,
        })
    }
}

impl Report for AppliedMigrations {
    fn text(&self, _width: Option<usize>) -> String {
        if self.applied.is_empty() && self.completed.is_empty() {
            return format!(
                "Nothing to do: the tables of {} are up to date.",
                self.database
            );
        }
        let (apply, complete) = match self.dry_run {
            true => ("Would apply to", "Would add or change in"),
            false => ("Applied to", "Added or changed in"),
        };
        let completed = match self.completed.len() {
            ..=MOST_LINES => self
                .completed
                .iter()
                .map(|line| without_fault(line))
                .collect(),
            _ => counted(&self.completed),
        };
        let mut text = String::new();
        for (verb, lines) in [(apply, &self.applied), (complete, &completed)] {
            if !lines.is_empty() {
                text.push_str(&format!("{verb} {}:\n", self.database));
            }
            for line in lines {
                text.push_str(&format!("  {line}\n"));
            }
        }
        text
    }
}

/// The most parts of the tables that are printed one by one.
const MOST_LINES: usize = 20;

/// Returns a part of the tables that was missing, or how it differed.
fn without_fault(line: &str) -> String {
    line.strip_suffix(" is missing").unwrap_or(line).to_owned()
}

/// Returns how many parts of each kind there are: a database of a Rails app lacks many.
fn counted(completed: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in completed {
        let kind = line.split(' ').nth(1).unwrap_or_default();
        *counts.entry(kind).or_default() += 1;
    }
    let lines = counts
        .into_iter()
        .map(|(kind, count)| format!("{count} x {kind}"));
    lines.chain(["`--json` lists them".to_owned()]).collect()
}

// --- `windlass migrations copy` ---

/// Copy the migrations into your own project
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Migrations {
    Copy(Copy),
}

/// Write the migrations into a directory
///
/// For applications that run all migrations with Diesel's tools. Existing files are kept, so the
/// command can be repeated with a later version of this program.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass migrations copy migrations --dialect postgres
  windlass migrations copy migrations --database sqlite://jobs.db")]
pub(crate) struct Copy {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The type of database [default: that of --database]
    #[arg(long, value_parser = dialects(), value_name = "DIALECT")]
    pub(crate) dialect: Option<Dialect>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn dialects() -> impl clap::builder::TypedValueParser<Value = Dialect> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(["postgres", "sqlite"]).map(|name| {
        if name == "postgres" {
            Dialect::Postgres
        } else {
            Dialect::Sqlite
        }
    })
}

/// Returns the dialect of a database from its address, without opening it.
pub(crate) fn dialect_of(database: &Database) -> Dialect {
    if database.listens_by_notification() {
        Dialect::Postgres
    } else {
        Dialect::Sqlite
    }
}

/// The files that were written and those that existed.
#[derive(Debug, Serialize)]
pub(crate) struct Copies {
    migrations: Vec<Copied>,
}

impl Copy {
    /// Writes the missing files.
    pub(crate) fn run(&self, dialect: Dialect) -> Result<Copies> {
        migrations::copy_all(dialect, &self.directory).map(|migrations| Copies { migrations })
    }
}

impl Report for Copies {
    fn text(&self, _width: Option<usize>) -> String {
        let mut text = String::new();
        for copied in &self.migrations {
            let directory = copied.directory.display();
            text.push_str(&match copied.outcome {
                CopyOutcome::Written => format!("Wrote {directory}\n"),
                CopyOutcome::Kept => format!("Kept {directory}, which exists\n"),
                CopyOutcome::Differs => format!(
                    "Kept {directory}, which exists and DIFFERS from this program's version\n"
                ),
            });
        }
        text
    }
}
