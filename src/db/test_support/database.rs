//! Databases for tests: in memory, or in a transaction that never commits.

use crate::db::conn::connection::sealed::Sealed;
use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::{Database, DatabaseBackend};
#[cfg(feature = "sqlite")]
use crate::db::conn::owned::ConnectionKind;
use crate::db::conn::owned::{BorrowHook, BorrowedConnection, DbConnection, SharedConnection};
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::Precedence;
#[cfg(feature = "sqlite")]
use crate::error::Error;
use crate::error::{Doing, Result};
use diesel::connection::Connection as _;
use diesel::prelude::*;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A database for one test, on one connection, of which nothing is kept.
///
/// The test enqueues on it, has the jobs performed, and examines the results. A running job borrows
/// the connection by [`Context::connection`](crate::Context::connection) and sees what the test has
/// written. See [`testing`](crate::testing).
///
/// It is a [`DbConnection`] for code that takes one: `&mut db` becomes `&mut DbConnection`.
#[derive(Debug)]
pub struct TestDatabase {
    connection: DbConnection,
    pub(crate) database: Database,
    /// Whether the fault of a drain was reached.
    pub(crate) has_reached_fault: Arc<AtomicBool>,
}

impl TestDatabase {
    /// Opens a migrated SQLite database in memory.
    ///
    /// The best start for most tests: it needs nothing, takes a few milliseconds, and any number of
    /// tests run in parallel.
    ///
    /// # Errors
    /// Returns an error if SQLite cannot be set up, which does not happen in practice.
    #[cfg(feature = "sqlite")]
    pub fn in_memory() -> Result<Self> {
        let refused = |error: String| Error::Connect {
            target: ":memory:".to_owned(),
            reason: error,
        };
        let mut conn =
            SqliteConnection::establish(":memory:").map_err(|error| refused(error.to_string()))?;
        diesel::sql_query("PRAGMA foreign_keys = ON")
            .execute(&mut conn)
            .doing("set up the database")?;
        crate::db::schema::migrate::migrate(&mut conn)?;
        Ok(Self::on(DbConnection {
            kind: ConnectionKind::Sqlite(Box::new(conn)),
            turns: None,
            precedence: Precedence::Normal,
            limit: crate::db::conn::owned::STATEMENT,
        }))
    }

    /// Opens an existing database, in a transaction that is rolled back when this is dropped.
    ///
    /// The tables must exist. On Postgres, tests run in parallel; on a SQLite file, one of them
    /// holds the write lock, and [`in_memory`](Self::in_memory) is better.
    ///
    /// # Errors
    /// Returns an error if the database cannot be reached, or if its tables are missing or too old.
    pub fn open(url: &str) -> Result<Self> {
        let database = Database::open(url)?;
        let mut connection = database.connect()?;
        crate::db::schema::migrate::check(&mut connection.as_conn(), &database)?;
        match connection.borrow() {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => {
                // A test paused in a debugger is not a frozen client.
                diesel::sql_query("SET idle_in_transaction_session_timeout = 0")
                    .execute(conn)
                    .doing("set up the connection")?;
                conn.begin_test_transaction().doing("begin the test")?;
            }
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => conn.begin_test_transaction().doing("begin the test")?,
        }
        Ok(Self::on(connection))
    }

    fn on(connection: DbConnection) -> Self {
        let shelf = Arc::new(SharedConnection::default());
        TestDatabase {
            connection: BorrowedConnection::with_home(&shelf, connection),
            database: Database {
                inner: Arc::new(DatabaseBackend::Shared(shelf)),
                limit: crate::db::conn::owned::STATEMENT,
                is_read_only: false,
            },
            has_reached_fault: Arc::default(),
        }
    }
}

impl Sealed for TestDatabase {
    fn after_enqueue(&mut self) -> Result<()> {
        self.connection.after_enqueue()
    }
}

impl AsConn for TestDatabase {
    fn as_conn(&mut self) -> Conn<'_> {
        self.connection.borrow()
    }
}

impl Deref for TestDatabase {
    type Target = DbConnection;

    fn deref(&self) -> &DbConnection {
        &self.connection
    }
}

impl DerefMut for TestDatabase {
    fn deref_mut(&mut self) -> &mut DbConnection {
        &mut self.connection
    }
}

impl Database {
    /// Returns the same database of a test, with a hook that runs when a job borrows its connection.
    pub(crate) fn with_borrow_hook(&self, hook: BorrowHook) -> Self {
        let mut database = self.clone();
        if let DatabaseBackend::Shared(shelf) = &*self.inner {
            let shelf = Arc::new(shelf.with_hook(hook));
            database.inner = Arc::new(DatabaseBackend::Shared(shelf));
        }
        database
    }

    /// Borrows the connection of a test without its hook. Returns `None` if a job has kept it.
    pub(crate) fn borrow_for_test(&self) -> Option<DbConnection> {
        match &*self.inner {
            DatabaseBackend::Shared(shelf) => BorrowedConnection::from(shelf),
            _ => None,
        }
    }

    /// Returns a database without a connection, for a job that a test performs by itself.
    pub(crate) fn none() -> Self {
        Database {
            inner: Arc::new(DatabaseBackend::Unconnected),
            limit: crate::db::conn::owned::STATEMENT,
            is_read_only: false,
        }
    }
}
