//! `windlass migrate`.

use super::output::Report;
use crate::db::Database;
use crate::error::Result;
use serde::Serialize;

/// Create the tables, or bring them up to date
///
/// Can be run at any time and by many at once: what is there already is left
/// as it is, so also in the database of a Rails app with Solid Queue. A SQLite
/// file that does not exist is created; a Postgres database must exist.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass migrate --database sqlite://jobs.db
  DATABASE_URL=postgres://app@localhost/app windlass migrate --json")]
pub(super) struct Migrate {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What was applied.
#[derive(Debug, Serialize)]
pub(super) struct Migrated {
    database: String,
    applied: Vec<String>,
}

impl Migrate {
    /// Applies the migrations that the database lacks.
    pub(super) fn run(&self, database: &Database) -> Result<Migrated> {
        Ok(Migrated {
            database: database.target(),
            applied: database.migrate()?,
        })
    }
}

impl Report for Migrated {
    fn text(&self, _width: Option<usize>) -> String {
        if self.applied.is_empty() {
            return format!(
                "Nothing to do: the tables of {} are up to date.",
                self.database
            );
        }
        let mut text = format!("Applied to {}:\n", self.database);
        for version in &self.applied {
            text.push_str(&format!("  {version}\n"));
        }
        text
    }
}
