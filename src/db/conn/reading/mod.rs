//! Connections that the database itself keeps from writing, with a time limit for each use.
//!
//! They serve pages: a page must come soon or not at all, and a defect of one must change nothing.

mod failure;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod progress;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use failure::ReadFailure;

use crate::db::conn::address::without_secrets;
use crate::db::conn::connection::Conn;
use crate::db::conn::database::{Database, DatabaseBackend, NO_CONNECTION};
use crate::db::conn::owned::DbConnection;
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A connection on which every statement that writes fails.
pub struct ReadConnection {
    kind: ReadKind,
}

enum ReadKind {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::PostgresReader>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<sqlite::SqliteReader>),
}

impl Database {
    /// Opens a connection that only reads. `limit` is for connecting.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    #[doc(hidden)]
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub fn connect_to_read(&self, limit: Duration) -> Result<ReadConnection> {
        let refused = |reason: String| self.refused(&self.target(), reason);
        let kind = match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { url, pooler, .. } => {
                postgres::PostgresReader::connect(url, limit, pooler)
                    .map(|reader| ReadKind::Postgres(Box::new(reader)))
            }
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, .. } => {
                sqlite::SqliteReader::open(path).map(|reader| ReadKind::Sqlite(Box::new(reader)))
            }
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => {
                Err(NO_CONNECTION.to_owned())
            }
        };
        kind.map(|kind| ReadConnection { kind }).map_err(refused)
    }

    /// Opens the address of a replica, which need not accept changes.
    #[doc(hidden)]
    pub fn open_replica(url: &str) -> Result<Database> {
        let url = url.trim();
        let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
        if !is_postgres {
            return Err(Error::Url {
                url: without_secrets(url),
                reason: "a replica is a Postgres database: `postgres://user@host/name`".to_owned(),
            });
        }
        let sign = if url.contains('?') { '&' } else { '?' };
        let attributes = "target_session_attrs=";
        match url.contains(attributes) {
            true => Database::open(url),
            false => Database::open(&format!("{url}{sign}{attributes}any")),
        }
    }

    /// Opens a connection like [`connect`](Self::connect), with a limit for connecting and for each
    /// statement, also for those of the functions that set their own.
    #[doc(hidden)]
    pub fn connect_within(&self, limit: Duration) -> Result<DbConnection> {
        // It counts as hurried from the start.
        let hurry = Hurry {
            stopping: Arc::new(AtomicBool::new(true)),
            limit,
        };
        let mut connection = self.connect_in_haste(Some(hurry))?;
        connection
            .hurry(limit)
            .map_err(|error| self.refused(&self.target(), error.to_string()))?;
        Ok(connection)
    }
}

impl fmt::Debug for ReadConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadConnection")
    }
}

impl ReadConnection {
    /// Runs `work` in a read-only transaction, which is rolled back in any case. After `limit`, the
    /// database ends the statement that runs; if the whole takes longer still, it is given up.
    ///
    /// # Errors
    /// If it was late, or the database did not answer, or `work` failed.
    pub fn read<T>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        self.begin(limit)?;
        self.finish(work)
    }

    /// Starts what [`finish`](Self::finish) ends. The limit counts from now on.
    ///
    /// # Errors
    /// If the database did not answer.
    pub fn begin(&mut self, limit: Duration) -> Result<(), ReadFailure> {
        match &mut self.kind {
            #[cfg(feature = "postgres")]
            ReadKind::Postgres(reader) => reader.begin(limit),
            #[cfg(feature = "sqlite")]
            ReadKind::Sqlite(reader) => reader.begin(limit),
        }
    }

    /// Runs `work` after [`begin`](Self::begin), and ends the transaction.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn finish<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        match &mut self.kind {
            #[cfg(feature = "postgres")]
            ReadKind::Postgres(reader) => reader.finish(work),
            #[cfg(feature = "sqlite")]
            ReadKind::Sqlite(reader) => reader.finish(work),
        }
    }
}
