//! Completing the tables: what the migrations lead to is compared with what
//! is there, and what lacks is added, whatever the version table says. Another
//! program may have dropped tables and made them again without our columns, or
//! copied a schema without what its own format cannot tell.

mod catalog;
mod fresh;
mod plan;
#[cfg(feature = "postgres")]
pub(in crate::db) mod postgres;
mod reference;
#[cfg(feature = "sqlite")]
mod sqlite;

use super::migrations::{self, MigrationDialect};
use super::{AsConn, Conn};
use crate::error::{Doing, Error, Result};
use catalog::Catalog;
use plan::{Act, Plan, Step};

/// What [`migrate`](crate::migrate) did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Migrated {
    /// The versions that were applied.
    pub versions: Vec<String>,
    /// What was missing of a database that had tables already, one line each,
    /// as in `the column solid_queue_jobs.policy is missing`.
    pub completed: Vec<String>,
}

impl Migrated {
    /// Returns `true` if the tables were complete, so that nothing was done.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.completed.is_empty()
    }

    fn of(plan: Plan) -> Self {
        Migrated {
            completed: plan.steps.iter().filter_map(Step::says).collect(),
            versions: plan.versions,
        }
    }
}

fn dialect(conn: &Conn<'_>) -> MigrationDialect {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => MigrationDialect::Postgres,
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => MigrationDialect::Sqlite,
    }
}

fn look(conn: &mut Conn<'_>) -> Result<Plan> {
    let applied = migrations::applied(conn)?;
    let catalog = Catalog::read(conn).doing("read the catalog of the database")?;
    let dialect = dialect(conn);
    Ok(Plan::new(
        dialect,
        &migrations::texts(dialect),
        &applied,
        &catalog,
    ))
}

/// Applies, to the database behind `conn`, the migrations that it lacks, and
/// adds whatever else is missing of the tables.
///
/// Works on an empty database, on one that a Rails app made, and on one whose
/// tables Rails made again or copied: what exists is kept, what is missing is
/// added, columns and tables of others are left alone. Safe to run twice, also
/// at once. When nothing is missing, no lock is taken.
///
/// On Postgres, each table that others write to is changed in a short
/// transaction of its own, and indexes of tables with 1,000 rows or more are
/// built `CONCURRENTLY`. Inside a transaction of the caller everything is done
/// in it, and writers wait until it ends.
///
/// ```
/// use diesel::prelude::*;
/// let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// assert_eq!(windlass::migrate(&mut conn).unwrap().versions.len(), 11);
/// assert!(windlass::migrate(&mut conn).unwrap().is_empty());
/// ```
///
/// # Errors
/// When a statement fails, or when a table was locked by others for 60 s. On
/// SQLite, and where no table was there, nothing is kept then. On Postgres what
/// was completed until then is kept, and the next call continues.
pub fn migrate<C: AsConn + ?Sized>(conn: &mut C) -> Result<Migrated> {
    let mut conn = conn.as_conn();
    // Most calls end here, and have locked nothing.
    if look(&mut conn)?.is_empty() {
        return Ok(Migrated::default());
    }
    match &mut conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => postgres::complete(conn, postgres::PATIENCE),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => sqlite::complete(&mut conn),
    }
}

/// What [`migrate`] would do.
#[cfg(feature = "cli")]
pub(crate) fn pending(conn: &mut Conn<'_>) -> Result<Migrated> {
    look(conn).map(Migrated::of)
}

/// What is missing of a database to which all migrations were applied. Only
/// what programs cannot work without, if asked so.
pub(crate) fn missing(conn: &mut Conn<'_>, only_vital: bool) -> Result<Vec<String>> {
    let steps = look(conn)?.steps.into_iter();
    let steps = steps.filter(|step| step.is_vital || !only_vital);
    Ok(steps.filter_map(|step| step.says()).collect())
}

/// Refuses what takes a human, before anything is changed.
fn check(plan: &Plan) -> Result<()> {
    match plan.steps.iter().find(|step| step.acts.is_empty()) {
        Some(step) => {
            let says = step.says().unwrap_or_default();
            Err(failed(step, format!("{says}; change the table by hand")))
        }
        None => Ok(()),
    }
}

fn failed(step: &Step, reason: String) -> Error {
    Error::Migration {
        version: step.version.clone(),
        reason: explain(reason),
    }
}

/// The database's message, and what to do about the ones that most meet: since
/// version 15 Postgres lets only the owner of a database create tables in it.
fn explain(message: String) -> String {
    if message.contains("permission denied for schema") {
        format!("{message}; migrate as the owner of the database, or GRANT CREATE ON that schema")
    } else if message.contains("must be owner of") {
        format!("{message}; migrate as the role that owns the tables")
    } else {
        message
    }
}
