//! Completing the tables: what the migrations lead to is compared with what
//! is there, and what lacks is added, whatever the version table says. Another
//! program may have dropped tables and made them again without our columns, or
//! copied a schema without what its own format cannot tell.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::Database;
use crate::db::schema::compare::{self, Migrated, look};
#[cfg(feature = "postgres")]
use crate::db::schema::migrate_postgres;
#[cfg(feature = "sqlite")]
use crate::db::schema::migrate_sqlite;
use crate::db::schema::migrations::{FILES, applied, version};
use crate::error::{Result, SchemaError};

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
        Conn::Postgres(conn) => migrate_postgres::complete(conn, migrate_postgres::PATIENCE),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => migrate_sqlite::complete(&mut conn),
    }
}

/// Whether the tables serve this program. Newer tables do: migrations only
/// ever add what older programs do not look at.
pub(crate) fn check(conn: &mut Conn<'_>, database: &Database) -> Result<()> {
    let applied = applied(conn)?;
    let Some(found) = applied.last() else {
        return Err(SchemaError::Missing {
            target: database.target(),
        }
        .into());
    };
    let mut needed = FILES.iter().map(version);
    if let Some(needed) = needed.find(|version| !applied.contains(version)) {
        return Err(SchemaError::Old {
            target: database.target(),
            found: found.clone(),
            needed,
        }
        .into());
    }
    match compare::missing(conn, true)?.into_iter().next() {
        None => Ok(()),
        Some(missing) => Err(SchemaError::Incomplete {
            target: database.target(),
            missing,
        }
        .into()),
    }
}

impl Database {
    /// Creates or updates the tables; see [`migrate`](crate::migrate). A
    /// SQLite file that does not exist is created.
    ///
    /// # Errors
    /// When the database cannot be reached, and as [`migrate`](crate::migrate).
    pub fn migrate(&self) -> Result<Migrated> {
        self.create()?;
        migrate(&mut self.connect()?)
    }
}
