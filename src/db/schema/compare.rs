//! Compares the tables of a database with those that the migrations make.

use crate::db::conn::connection::Conn;
use crate::db::schema::action::PlanStep;
use crate::db::schema::beside_rails;
use crate::db::schema::catalog::Catalog;
use crate::db::schema::migrations;
use crate::db::schema::plan::SchemaPlan;
use crate::db::schema::postgres::functions;
use crate::error::{Doing, Error, Result};

/// The result of [`migrate`](crate::migrate).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Migrated {
    /// The versions that were applied.
    pub versions: Vec<String>,
    /// What was missing in a database that had tables already, one line each, as in `the column
    /// solid_queue_jobs.policy is missing`.
    pub completed: Vec<String>,
}

impl Migrated {
    /// Returns `true` if the tables were complete, so that nothing was done.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.completed.is_empty()
    }

    pub(crate) fn of(plan: SchemaPlan) -> Self {
        Migrated {
            completed: plan.steps.iter().filter_map(PlanStep::says).collect(),
            versions: plan.versions,
        }
    }
}

/// Returns everything that [`migrate`](crate::migrate) would do.
pub(crate) fn look(conn: &mut Conn<'_>) -> Result<SchemaPlan> {
    let mut plan = look_at_tables(conn)?;
    plan.steps.extend(open_functions(conn)?);
    Ok(plan)
}

/// Returns the steps for functions that may be misused, as far as they exist.
pub(crate) fn open_functions(conn: &mut Conn<'_>) -> Result<Vec<PlanStep>> {
    functions::steps(conn).doing("look at the rights of the functions")
}

fn look_at_tables(conn: &mut Conn<'_>) -> Result<SchemaPlan> {
    let applied = migrations::applied(conn)?;
    let catalog = Catalog::read(conn).doing("read the catalog of the database")?;
    let dialect = conn.dialect();
    let mut plan = SchemaPlan::new(dialect, &migrations::texts(dialect), &applied, &catalog);
    let options = beside_rails::steps(conn, &catalog).doing("read the settings")?;
    plan.steps.extend(options);
    Ok(plan)
}

/// Returns what [`migrate`] would do.
#[cfg(feature = "cli")]
pub(crate) fn pending(conn: &mut Conn<'_>) -> Result<Migrated> {
    look(conn).map(Migrated::of)
}

/// Which missing things matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingParts {
    Anything,
    /// What programs cannot work without.
    Vital,
}

/// Returns what is missing in a database to which all migrations were applied.
pub(crate) fn missing(conn: &mut Conn<'_>, which: MissingParts) -> Result<Vec<String>> {
    let steps = look_at_tables(conn)?.steps.into_iter();
    let steps = steps.filter(|step| step.is_vital || which == MissingParts::Anything);
    Ok(steps.filter_map(|step| step.says()).collect())
}

/// Refuses a plan that needs a person, before anything is changed.
pub(crate) fn check(plan: &SchemaPlan) -> Result<()> {
    match plan.steps.iter().find(|step| step.acts.is_empty()) {
        Some(step) => {
            let says = step.says().unwrap_or_default();
            Err(failed(step, format!("{says}; change the table by hand")))
        }
        None => Ok(()),
    }
}

pub(crate) fn failed(step: &PlanStep, reason: String) -> Error {
    Error::Migration {
        version: step.version.clone(),
        reason: explain(reason),
    }
}

/// Returns the database's message, with advice for the most common one: since version 15, Postgres
/// lets only the owner of a database create tables in it.
pub(crate) fn explain(message: String) -> String {
    if message.contains("permission denied for schema") {
        format!("{message}; migrate as the owner of the database, or GRANT CREATE ON that schema")
    } else if message.contains("must be owner of") {
        format!("{message}; migrate as the role that owns the tables")
    } else {
        message
    }
}
