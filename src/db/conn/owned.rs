//! Owned connections, and the one connection that a test and its jobs share.

use crate::db::conn::connection::{AsConn, Conn, sealed};
#[cfg(feature = "postgres")]
use crate::db::conn::pooling::recognise::ServerSession;
#[cfg(feature = "postgres")]
use crate::db::conn::postgres;
use crate::db::conn::turns::{Precedence, WriteTurns};
use crate::deadline::Armed;
use diesel::prelude::*;
#[cfg(feature = "sqlite")]
use diesel::r2d2::ConnectionManager;
use diesel::r2d2::PooledConnection;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[cfg(not(feature = "postgres"))]
pub(crate) use std::convert::Infallible as ServerSession;

/// Runs when a job of a test borrows the connection; an error refuses it.
pub(crate) type BorrowHook = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Holds the connection while it is not borrowed.
#[derive(Default)]
pub(crate) struct SharedConnection {
    slot: Arc<SharedSlot>,
    hook: Option<BorrowHook>,
}

#[derive(Default)]
struct SharedSlot {
    connection: Mutex<Option<DbConnection>>,
    returned: Condvar,
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConnection")
    }
}

impl SharedConnection {
    /// Returns the same connection, with a hook that runs when it is borrowed by a job.
    pub(crate) fn with_hook(&self, hook: BorrowHook) -> Self {
        SharedConnection {
            slot: Arc::clone(&self.slot),
            hook: Some(hook),
        }
    }

    /// Runs the hook. Returns its reason to refuse the connection.
    pub(crate) fn run_hook(&self) -> Result<(), String> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook())
    }

    pub(crate) fn put(&self, connection: DbConnection) {
        let slot = &self.slot.connection;
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(connection);
        self.slot.returned.notify_one();
    }

    /// Takes the connection, and waits up to `timeout` until it is returned.
    pub(crate) fn take(&self, timeout: Duration) -> Option<DbConnection> {
        let slot = &self.slot.connection;
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self
            .slot
            .returned
            .wait_timeout_while(slot, timeout, |slot| slot.is_none());
        let (mut slot, _) = wait.unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }
}

/// A borrowed connection of a test, returned when this is dropped.
pub(crate) struct BorrowedConnection {
    /// `None` while jobs borrow it from its home.
    connection: Option<DbConnection>,
    home: Arc<SharedConnection>,
    inline: Option<InlineMode>,
}

/// The inline mode of a test, on the test's own connection.
#[derive(Clone)]
pub(crate) struct InlineMode {
    /// Performs what is ready, on the connection at its home.
    pub(crate) perform: Arc<dyn Fn() -> crate::error::Result<()> + Send + Sync>,
    /// The number of transactions that are the test's own. Inside a further one, nothing is performed yet.
    pub(crate) depth: u32,
}

/// The longest wait of a test for a job that has not returned the connection.
pub(crate) const BORROW_TIMEOUT: Duration = Duration::from_secs(5);

impl BorrowedConnection {
    pub(crate) fn from(home: &Arc<SharedConnection>) -> Option<DbConnection> {
        Some(Self::with_home(home, home.take(BORROW_TIMEOUT)?))
    }

    /// Returns a connection whose home is `home`.
    pub(crate) fn with_home(
        home: &Arc<SharedConnection>,
        connection: DbConnection,
    ) -> DbConnection {
        let borrowed = BorrowedConnection {
            connection: Some(connection),
            home: Arc::clone(home),
            inline: None,
        };
        DbConnection {
            kind: ConnectionKind::Borrowed(Box::new(borrowed)),
            turns: None,
            writers: None,
            precedence: Precedence::Normal,
            limit: STATEMENT,
        }
    }

    /// Runs `work` while the connection is at its home, where jobs borrow it.
    ///
    /// # Panics
    /// If a job does not return it.
    fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if let Some(connection) = self.connection.take() {
            self.home.put(connection);
        }
        let done = work();
        self.connection = self.home.take(BORROW_TIMEOUT);
        assert!(
            self.connection.is_some(),
            "a job has kept the connection that it borrowed; it must drop it before it returns"
        );
        done
    }

    /// Performs what is ready, in inline mode.
    fn perform_inline(&mut self) -> crate::error::Result<()> {
        let Some(mode) = self.inline.clone() else {
            return Ok(());
        };
        if self.borrow().transaction_depth() > mode.depth {
            return Ok(());
        }
        self.lend(|| (mode.perform)())
    }

    pub(crate) fn shared(&self) -> Option<&DbConnection> {
        self.connection.as_ref()
    }

    pub(crate) fn borrow(&mut self) -> Conn<'_> {
        match &mut self.connection {
            Some(connection) => connection.borrow(),
            None => unreachable!("a job borrows it only within `lend`"),
        }
    }
}

impl Drop for BorrowedConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.home.put(connection);
        }
    }
}

impl sealed::Sealed for DbConnection {
    fn writers(&self) -> Option<Arc<WriteTurns>> {
        match &self.kind {
            ConnectionKind::Borrowed(_) => None,
            _ => self.writers.clone(),
        }
    }

    fn after_enqueue(&mut self) -> crate::error::Result<()> {
        match &mut self.kind {
            ConnectionKind::Borrowed(borrowed) => borrowed.perform_inline(),
            _ => Ok(()),
        }
    }
}

impl AsConn for DbConnection {
    fn as_conn(&mut self) -> Conn<'_> {
        self.borrow()
    }
}

/// An owned connection, opened and set up by Windlass.
///
/// ```
/// use windlass::{Database, NewJob};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("jobs.db");
/// let database = Database::open(&format!("sqlite://{}", path.display()))?;
/// database.migrate()?;
/// let mut conn = database.connect()?;
/// conn.transaction(|conn| NewJob::of_class("import", "{}").enqueue(conn))?;
/// # Ok::<(), windlass::Error>(())
/// ```
pub struct DbConnection {
    pub(crate) kind: ConnectionKind,
    /// `None` if the database has many writers, or if each statement asks for its turn.
    pub(crate) turns: Option<Arc<WriteTurns>>,
    /// The writers of its file, if it is one of an application, which asks for a turn with each statement.
    pub(crate) writers: Option<Arc<WriteTurns>>,
    /// The precedence of its turns among those of this process.
    pub(crate) precedence: Precedence,
    /// The most time that the server may take to answer a statement of Windlass's own.
    pub(crate) limit: Duration,
}

pub(crate) enum ConnectionKind {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Guarded>),
    #[cfg(feature = "postgres")]
    PooledPostgres(Box<PooledConnection<postgres::PostgresManager>>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<SqliteConnection>),
    #[cfg(feature = "sqlite")]
    PooledSqlite(PooledConnection<ConnectionManager<SqliteConnection>>),
    Borrowed(Box<BorrowedConnection>),
}

/// The time limit for each statement of a loop. SQLite has its own.
#[cfg(feature = "postgres")]
pub(crate) const STATEMENT: Duration = postgres::STATEMENT;

#[cfg(not(feature = "postgres"))]
pub(crate) const STATEMENT: Duration = Duration::MAX;

/// The session of a server. SQLite has none.
impl DbConnection {
    /// Runs `work`, which may borrow this connection of a test from its home.
    ///
    /// # Panics
    /// If a job does not return it.
    pub(crate) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        match &mut self.kind {
            ConnectionKind::Borrowed(borrowed) => borrowed.lend(work),
            _ => work(),
        }
    }

    /// Switches the inline mode of a test's connection on or off.
    pub(crate) fn set_inline(&mut self, mode: Option<InlineMode>) {
        if let ConnectionKind::Borrowed(borrowed) = &mut self.kind {
            borrowed.inline = mode;
        }
    }

    pub(crate) fn borrow(&mut self) -> Conn<'_> {
        match &mut self.kind {
            #[cfg(feature = "postgres")]
            ConnectionKind::Postgres(guarded) => Conn::Postgres(&mut guarded.conn),
            #[cfg(feature = "postgres")]
            ConnectionKind::PooledPostgres(guarded) => Conn::Postgres(&mut guarded.conn),
            #[cfg(feature = "sqlite")]
            ConnectionKind::Sqlite(conn) => Conn::Sqlite(conn),
            #[cfg(feature = "sqlite")]
            ConnectionKind::PooledSqlite(conn) => Conn::Sqlite(conn),
            ConnectionKind::Borrowed(borrowed) => borrowed.borrow(),
        }
    }

    /// Borrows the connection for a statement that writes, and waits for this process's turn if the
    /// database has one writer.
    #[doc(hidden)]
    pub fn with_write_lock<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> T) -> T {
        let _armed = self.armed();
        let turns = self.turns.as_ref();
        let _turn = turns.and_then(|turns| turns.take(self.precedence));
        work(&mut self.borrow())
    }

    /// Borrows the connection for statements that only read.
    #[doc(hidden)]
    pub fn with_connection<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> T) -> T {
        let _armed = self.armed();
        work(&mut self.borrow())
    }

    /// Gives each statement its time limit until the result is dropped; on SQLite, which has its own,
    /// the time that it has been waiting.
    fn armed(&mut self) -> Armed {
        #[cfg(feature = "postgres")]
        if let Some(guarded) = self.guarded() {
            return guarded.arm(self.limit);
        }
        self.borrow().arm()
    }

    #[cfg(feature = "postgres")]
    fn guarded(&self) -> Option<&postgres::Guarded> {
        match &self.kind {
            ConnectionKind::Postgres(guarded) => Some(guarded),
            ConnectionKind::PooledPostgres(guarded) => Some(guarded),
            #[cfg(feature = "sqlite")]
            ConnectionKind::Sqlite(_) | ConnectionKind::PooledSqlite(_) => None,
            ConnectionKind::Borrowed(_) => None,
        }
    }

    /// Returns the time limit of a statement that overran it, if one did. The connection is
    /// unusable from then on, even if an answer came late.
    #[doc(hidden)]
    pub fn missed(&self) -> Option<Duration> {
        #[cfg(feature = "postgres")]
        return self.guarded()?.missed();
        #[cfg(not(feature = "postgres"))]
        None
    }

    /// Returns the session that the server keeps for this connection, if it keeps one.
    pub(crate) fn session(&self) -> Option<ServerSession> {
        #[cfg(feature = "postgres")]
        return self.guarded()?.session.clone();
        #[cfg(not(feature = "postgres"))]
        None
    }

    /// Terminates a session that does not answer, as it may hold locks.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn end(&mut self, session: &ServerSession) -> QueryResult<()> {
        self.with_write_lock(|conn| match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => postgres::end(conn, session),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => Ok(()),
        })
    }

    /// Sets the time limit of each statement; the server's own limit is shorter.
    pub(crate) fn hurry(&mut self, limit: Duration) -> QueryResult<()> {
        self.limit = limit;
        self.with_write_lock(|conn| match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => postgres::hurry(conn, limit),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => Ok(()),
        })
    }
}

impl fmt::Debug for DbConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DbConnection")
    }
}
