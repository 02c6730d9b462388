//! Connections from the pool, for jobs. They wait while the database is unreachable.

use crate::clock;
use crate::db::conn::database::{ALREADY_BORROWED, BUSY, Database, DatabaseBackend, NO_CONNECTION};
use crate::db::conn::owned::{self, ConnectionKind, DbConnection};
use crate::db::conn::turns::Precedence;
use crate::error::{Error, Result};
#[cfg(feature = "sqlite")]
use std::sync::Arc;
use std::time::Duration;

/// The longest wait of a job for a database that is unreachable.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The interval at which the wait checks whether the job should end.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Database {
    /// Borrows a connection from the pool, for jobs that use the database.
    ///
    /// # Errors
    /// Returns an error if no connection becomes free or can be opened within 30 seconds.
    pub fn get(&self) -> Result<DbConnection> {
        self.get_within(BUSY)
    }

    fn get_within(&self, timeout: Duration) -> Result<DbConnection> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { pool, target, .. } => match pool.get_timeout(timeout) {
                Ok(conn) => Ok(DbConnection {
                    kind: ConnectionKind::PooledPostgres(Box::new(conn)),
                    turns: None,
                    writers: None,
                    precedence: Precedence::Normal,
                    limit: self.limit,
                }),
                Err(error) => Err(self.refused(target, error.to_string())),
            },
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { pool, path, turns } => match pool.get_timeout(timeout) {
                Ok(conn) => Ok(DbConnection {
                    kind: ConnectionKind::PooledSqlite(conn),
                    // Its instrumentation takes turns.
                    turns: None,
                    writers: Some(Arc::clone(turns)),
                    precedence: Precedence::Normal,
                    limit: self.limit,
                }),
                Err(error) => Err(self.refused(&path.display().to_string(), error.to_string())),
            },
            DatabaseBackend::Shared(shelf) => {
                let hook = shelf.run_hook();
                hook.map_err(|reason| self.refused(&self.target(), reason))?;
                let borrowed = owned::BorrowedConnection::from(shelf);
                borrowed.ok_or_else(|| self.refused(&self.target(), ALREADY_BORROWED.to_owned()))
            }
            DatabaseBackend::Unconnected => {
                Err(self.refused(&self.target(), NO_CONNECTION.to_owned()))
            }
        }
    }

    /// Borrows a connection from the pool. While the database is unreachable, waits up to 5
    /// minutes, or until `check` returns a reason to stop.
    pub(crate) fn get_or_wait<E>(
        &self,
        check: impl Fn() -> std::result::Result<(), E>,
    ) -> Result<DbConnection>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let start = clock::instant();
        loop {
            let (target, reason) = match self.get_within(CHECK_INTERVAL) {
                Err(Error::Connect { target, reason }) => (target, reason),
                done => return done,
            };
            if let Err(why) = check() {
                let why = why.into();
                return Err(Error::GaveUp {
                    target,
                    reason,
                    why,
                });
            }
            if start.elapsed() >= self.patience() {
                return Err(Error::Connect { target, reason });
            }
        }
    }

    /// Returns how long a job tries to get a connection. It makes one attempt in a test: the next
    /// one would fail as well.
    fn patience(&self) -> Duration {
        match &*self.inner {
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => Duration::ZERO,
            _ if self.is_full() => BUSY,
            _ => UNREACHABLE_TIMEOUT,
        }
    }

    /// Returns whether all connections of the pool are open, and so in use if none is available. A
    /// test's own connection has no idle ones beside it.
    fn is_full(&self) -> bool {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { pool, .. } => pool.state().connections >= pool.max_size(),
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { pool, .. } => pool.state().connections >= pool.max_size(),
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => true,
        }
    }
}
