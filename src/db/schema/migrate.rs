//! Completes the tables: compares what the migrations lead to with what exists, and adds what is
//! missing, whatever the version table says.
//!
//! Another program may have dropped tables and made them
//! again without Windlass's columns, or copied a schema without the parts that its own format
//! lacks.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::Database;
use crate::db::schema::compare::{Migrated, MissingParts, migration_plan, missing};
#[cfg(feature = "postgres")]
use crate::db::schema::migrate_postgres;
#[cfg(feature = "sqlite")]
use crate::db::schema::migrate_sqlite;
use crate::db::schema::migrations::{applied, known};
use crate::error::{Result, SchemaError};

/// Applies to the database behind `conn` the migrations that it lacks, and adds whatever else is
/// missing in the tables.
///
/// It works on an empty database, on one made by a Rails app, and on one whose tables Rails made
/// again or copied: existing tables are kept, missing parts are added, and columns and tables of
/// other programs are left alone. It is safe to run twice, also at once. If nothing is missing, it
/// takes no lock.
///
/// On Postgres, each table in use is changed in a short transaction of its own, and indexes of
/// tables with 1,000 rows or more are built `CONCURRENTLY`. Inside a transaction of the caller,
/// everything is done in it, and writers wait until it ends.
///
/// ```
/// use diesel::prelude::*;
/// let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// assert!(!windlass::migrate(&mut conn).unwrap().versions.is_empty());
/// assert!(windlass::migrate(&mut conn).unwrap().is_empty());
/// ```
///
/// # Errors
/// Returns an error if a statement fails, if a table was locked by other sessions for 60 s, or if the
/// tables are of a version of Windlass that was never released. On
/// SQLite, and if no table existed, nothing is kept then. On Postgres, the parts completed so far
/// are kept, and the next call continues.
pub fn migrate<C: AsConn + ?Sized>(conn: &mut C) -> Result<Migrated> {
    let mut conn = conn.as_conn();
    // Most calls end here, and have locked nothing.
    if migration_plan(&mut conn)?.is_empty() {
        return Ok(Migrated::default());
    }
    match &mut conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => migrate_postgres::complete(conn, migrate_postgres::LOCK_TIMEOUT),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => migrate_sqlite::complete(&mut conn),
    }
}

/// Checks that this program can work with the tables. Newer tables are fine: migrations only add
/// what older programs ignore.
pub fn check(conn: &mut Conn<'_>, database: &Database) -> Result<()> {
    let applied = applied(conn)?;
    let Some(found) = applied.last() else {
        return Err(SchemaError::Missing {
            target: database.target(),
        }
        .into());
    };
    if let Some(needed) = known().difference(&applied).next() {
        return Err(SchemaError::Old {
            target: database.target(),
            found: found.clone(),
            needed: needed.clone(),
        }
        .into());
    }
    match missing(conn, MissingParts::Vital)?.into_iter().next() {
        None => Ok(()),
        Some(missing) => Err(SchemaError::Incomplete {
            target: database.target(),
            missing,
        }
        .into()),
    }
}

impl Database {
    /// Creates or updates the tables; see [`migrate`](crate::migrate). Creates a SQLite file that
    /// does not exist.
    ///
    /// # Errors
    /// Returns an error if the database cannot be reached, and in the cases of
    /// [`migrate`](crate::migrate).
    pub fn migrate(&self) -> Result<Migrated> {
        self.create()?;
        migrate(&mut self.connect()?)
    }
}
