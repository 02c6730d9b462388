//! Connections that the database itself keeps from writing, with a time limit for each use.
//!
//! They serve pages: a page must come soon or not at all, and a defect of one must change nothing.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod progress;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::db::conn::address::without_secrets;
use crate::db::conn::connection::Conn;
use crate::db::conn::database::{Database, DatabaseBackend, NO_CONNECTION};
use crate::db::conn::owned::DbConnection;
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A connection on which every statement that writes fails.
pub(crate) struct ReadConnection {
    kind: ReadKind,
}

enum ReadKind {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::PostgresReader>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<sqlite::SqliteReader>),
}

/// Why a read returned nothing.
#[derive(Debug)]
pub(crate) enum ReadFailure {
    /// It took longer than its limit. The connection is in order.
    Late,
    /// It began, and was given up long after its limit. Open another connection: whether the database
    /// is away is not known.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "only a connection over the network is given up")
    )]
    Cut,
    /// The database gave no answer to the first statement, or the connection broke. Open another one.
    Lost(String),
    /// It was answered with an error, or the work failed. Open another connection.
    Failed(Error),
}

impl Database {
    /// Opens a connection that only reads. `limit` is for connecting.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn connect_to_read(&self, limit: Duration) -> Result<ReadConnection> {
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
    pub(crate) fn open_replica(url: &str) -> Result<Database> {
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
    pub(crate) fn connect_within(&self, limit: Duration) -> Result<DbConnection> {
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
    pub(crate) fn read<T>(
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
    pub(crate) fn begin(&mut self, limit: Duration) -> Result<(), ReadFailure> {
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
    pub(crate) fn finish<T>(
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

/// Starts a transaction by a statement.
fn begun<C>(conn: &mut C, begin: &str) -> Result<()>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
    AnsiTransactionManager: TransactionManager<C>,
{
    AnsiTransactionManager::begin_transaction_sql(conn, begin).map_err(|source| Error::Query {
        action: "start to read",
        source,
    })
}

/// Runs `work` before a rollback.
fn rolled_back<C, T>(conn: &mut C, work: impl FnOnce(&mut C) -> Result<T>) -> Result<T>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
    AnsiTransactionManager: TransactionManager<C>,
{
    let result = work(conn);
    let rolled_back = AnsiTransactionManager::rollback_transaction(conn);
    let value = result?;
    rolled_back.map_err(|source| Error::Query {
        action: "end a read",
        source,
    })?;
    Ok(value)
}

/// Returns the message of the database in an error, if it is one of a statement.
fn database_message(error: &Error) -> Option<String> {
    match error {
        Error::Query {
            source: diesel::result::Error::DatabaseError(_, information),
            ..
        } => Some(information.message().to_owned()),
        _ => None,
    }
}
