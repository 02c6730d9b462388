//! Compares the tables of a database with those that the migrations make.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::schema::beside_rails;
use crate::db::schema::functions::{OPEN_FUNCTIONS, close_functions};
use crate::db::schema::items::Catalog;
use crate::db::schema::migrations::{applied, texts};
use crate::db::schema::plan::{Action, PlanStep, SchemaPlan};
use crate::error::{Error, ErrorContext, Result};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::Text;

/// The result of [`migrate`](crate::migrate).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Migrated {
    /// The versions that were applied.
    pub versions: Vec<String>,
    /// The parts that were missing in a database that had tables already, one line each, as in `the
    /// column solid_queue_jobs.policy is missing`.
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
pub(crate) fn migration_plan(conn: &mut Conn<'_>) -> Result<SchemaPlan> {
    let mut plan = table_plan(conn)?;
    plan.steps.extend(open_functions(conn)?);
    Ok(plan)
}

/// A function of Postgres that may be misused.
#[derive(Debug, QueryableByName)]
struct OpenFunction {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    fault: String,
}

/// Returns the steps that close such functions: a backup that was restored without its rights
/// gives all functions to every role.
pub fn open_functions(conn: &mut Conn<'_>) -> Result<Vec<PlanStep>> {
    if conn.dialect() == Dialect::Sqlite {
        return Ok(Vec::new()); // It has no roles.
    }
    let open: Vec<OpenFunction> = Statement::new(OPEN_FUNCTIONS)
        .uncached()
        .load(conn)
        .during("look at the rights of the functions")?;
    let steps = open.into_iter().map(|function| PlanStep {
        what: Some(format!("function {}", function.name)),
        fault: function.fault,
        version: "functions".to_owned(),
        table: None,
        acts: vec![Action::Run(close_functions())],
        is_vital: false,
    });
    Ok(steps.collect())
}

fn table_plan(conn: &mut Conn<'_>) -> Result<SchemaPlan> {
    let applied = applied(conn)?;
    let catalog = Catalog::read(conn).during("read the catalog of the database")?;
    let mut plan = SchemaPlan::new(conn.dialect(), &applied, &catalog);
    let options = beside_rails::steps(conn, &catalog).during("read the settings")?;
    plan.steps.extend(options);
    Ok(plan)
}

/// Returns what [`migrate`](crate::migrate) would do.
pub fn pending(conn: &mut Conn<'_>) -> Result<Migrated> {
    migration_plan(conn).map(Migrated::of)
}

/// The missing parts to look for.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingParts {
    Anything,
    /// Only the parts without which programs cannot work.
    Vital,
}

/// Returns what is missing in a database to which all migrations were applied.
pub fn missing(conn: &mut Conn<'_>, which: MissingParts) -> Result<Vec<String>> {
    let steps = table_plan(conn)?.steps.into_iter();
    let steps = steps.filter(|step| step.is_vital || which == MissingParts::Anything);
    Ok(steps.filter_map(|step| step.says()).collect())
}

/// Refuses a plan that needs a person, before anything is changed.
pub(crate) fn refuse_by_hand(plan: &SchemaPlan) -> Result<()> {
    match plan.steps.iter().find(|step| step.acts.is_empty()) {
        Some(step) => {
            let says = step.says().unwrap_or_default();
            Err(failed(step, format!("{says}; change the table by hand")))
        }
        None => Ok(()),
    }
}

/// Runs all migrations in one transaction, in a database without any of the tables.
pub(crate) fn create(conn: &mut Conn<'_>) -> Result<()> {
    conn.transaction(|conn| {
        for (version, text) in texts(conn.dialect()) {
            let done = match conn {
                #[cfg(feature = "postgres")]
                Conn::Postgres(conn) => conn.batch_execute(text),
                #[cfg(feature = "sqlite")]
                Conn::Sqlite(conn) => conn.batch_execute(text),
            };
            done.map_err(|error| Error::Migration {
                version,
                reason: explain(error.to_string()),
            })?;
        }
        Ok(())
    })
}

pub(crate) fn failed(step: &PlanStep, reason: String) -> Error {
    Error::Migration {
        version: step.version.clone(),
        reason: explain(reason),
    }
}

/// Returns the database's message, with advice for the most common one: since version 15, Postgres
/// lets only the owner of a database create tables in it.
fn explain(message: String) -> String {
    if message.contains("permission denied for schema") {
        format!("{message}; migrate as the owner of the database, or GRANT CREATE ON that schema")
    } else if message.contains("must be owner of") {
        format!("{message}; migrate as the role that owns the tables")
    } else {
        message
    }
}
