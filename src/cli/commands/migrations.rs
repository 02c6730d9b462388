//! `windlass migrations copy`.

use crate::db::Database;
use crate::db::conn::dialect::Dialect;
use crate::db::schema::migrations::{self, Copied, CopyOutcome};
use crate::error::Result;
use crate::terminal::output::Report;
use serde::Serialize;
use std::path::PathBuf;

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
