//! A borrowed connection to either database, and transactions on it.

use crate::db::conn::dialect::Dialect;
#[cfg(feature = "postgres")]
use crate::db::conn::postgres::local;
use crate::deadline::Armed;
use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection;
use diesel::r2d2::{ConnectionManager, PooledConnection};
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};

/// A borrowed connection: the caller's own, inside the caller's own transaction if one is open.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{AsConn, Conn};
///
/// let kind = match conn.as_conn() {
///     Conn::Sqlite(_) => "SQLite",
///     # #[allow(unreachable_patterns)]
///     _ => "Postgres",
/// };
/// assert_eq!(kind, "SQLite");
/// # Ok::<(), windlass::Error>(())
/// ```
#[non_exhaustive]
#[allow(
    missing_debug_implementations,
    reason = "Diesel's connections have none"
)]
pub enum Conn<'a> {
    /// To Postgres.
    #[cfg(feature = "postgres")]
    Postgres(&'a mut PgConnection),
    /// To SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut SqliteConnection),
}

impl Conn<'_> {
    /// Borrows the same connection for a shorter time.
    pub(crate) fn reborrow(&mut self) -> Conn<'_> {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => Conn::Postgres(conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => Conn::Sqlite(conn),
        }
    }

    /// Gives each of Windlass's own statements a deadline until the result is dropped, if Windlass
    /// opened the connection.
    pub(crate) fn arm(&mut self) -> Armed {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => crate::db::conn::postgres::arm(conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => crate::db::conn::sqlite::arm(conn),
        }
    }

    /// Returns whether a pooler gives it another session of the server in each transaction.
    #[doc(hidden)]
    pub fn has_no_session(&mut self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => local(conn).is_some(),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => false,
        }
    }

    #[doc(hidden)]
    pub fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Returns the text of a statement in this connection's dialect.
    pub(crate) fn render(&self, text: &str) -> String {
        self.dialect().render(text)
    }

    /// Returns an expression for the seconds between two times, still to be passed to
    /// [`render`](Self::render).
    ///
    /// SQLite computes in days as floating point, where an hour can be 13 µs short. Its times have
    /// milliseconds, so the result is rounded to them.
    pub(crate) fn seconds(&self, from: &str, to: &str) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(_) => format!("extract(epoch FROM {to} - {from})::float8"),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => {
                format!("round((julianday({to}) - julianday({from})) * 86400.0, 3)")
            }
        }
    }

    /// Runs `work` in a transaction, and rolls back if it returns an error.
    ///
    /// On SQLite the write lock is taken at the start: a transaction that reads first and writes
    /// later is refused at once, whatever the busy timeout, if another process wrote in between.
    /// Inside a transaction of the caller it is a savepoint on both databases.
    pub(crate) fn transaction<T, E>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<diesel::result::Error>,
    {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => within(conn, |conn| work(&mut Conn::Postgres(conn))),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => {
                if in_transaction(*conn) {
                    conn.transaction(|conn| work(&mut Conn::Sqlite(conn)))
                } else {
                    conn.immediate_transaction(|conn| work(&mut Conn::Sqlite(conn)))
                }
            }
        }
    }

    /// Runs `work` in the transaction that is open, or in one of its own. If `work` fails, the one that
    /// is open cannot be committed on Postgres. On SQLite it can be, so that a savepoint undoes the
    /// work.
    pub(crate) fn join_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> diesel::QueryResult<T>,
    ) -> diesel::QueryResult<T> {
        if self.dialect() == Dialect::Postgres && self.is_in_transaction() {
            work(self)
        } else {
            self.transaction(work)
        }
    }

    /// Starts a transaction like [`transaction`](Self::transaction), for work that needs the
    /// connection in the caller's own type.
    pub(crate) fn begin(&mut self) -> diesel::QueryResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => begin(conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => {
                if in_transaction(*conn) {
                    AnsiTransactionManager::begin_transaction(*conn)
                } else {
                    AnsiTransactionManager::begin_transaction_sql(*conn, "BEGIN IMMEDIATE")
                }
            }
        }
    }

    pub(crate) fn commit(&mut self) -> diesel::QueryResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => AnsiTransactionManager::commit_transaction(*conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => AnsiTransactionManager::commit_transaction(*conn),
        }
    }

    pub(crate) fn roll_back(&mut self) -> diesel::QueryResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => AnsiTransactionManager::rollback_transaction(*conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => AnsiTransactionManager::rollback_transaction(*conn),
        }
    }

    /// Returns whether a transaction is open.
    #[doc(hidden)]
    pub fn is_in_transaction(&mut self) -> bool {
        self.transaction_depth() > 0
    }

    /// Returns how many transactions and savepoints are open.
    pub(crate) fn transaction_depth(&mut self) -> u32 {
        match self {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => transaction_depth(*conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => transaction_depth(*conn),
        }
    }
}

/// Starts a transaction or a savepoint. A connection without a session of its own makes its settings with BEGIN.
#[cfg(feature = "postgres")]
fn begin(conn: &mut PgConnection) -> diesel::QueryResult<()> {
    if !in_transaction(conn)
        && let Some(local) = local(conn)
    {
        let begin = local.begin();
        return AnsiTransactionManager::begin_transaction_sql(conn, &begin);
    }
    AnsiTransactionManager::begin_transaction(conn)
}

/// Runs `work` in a transaction or a savepoint.
#[cfg(feature = "postgres")]
fn within<T, E: From<diesel::result::Error>>(
    conn: &mut PgConnection,
    work: impl FnOnce(&mut PgConnection) -> Result<T, E>,
) -> Result<T, E> {
    begin(conn)?;
    match work(conn) {
        Ok(value) => {
            AnsiTransactionManager::commit_transaction(conn)?;
            Ok(value)
        }
        Err(error) => match AnsiTransactionManager::rollback_transaction(conn) {
            // The error of the work says why.
            Ok(()) | Err(diesel::result::Error::BrokenTransactionManager) => Err(error),
            Err(failed) => Err(failed.into()),
        },
    }
}

/// Runs one statement: in a transaction of its own if none is open and the connection has no session that keeps its
/// settings.
#[cfg(feature = "postgres")]
pub(crate) fn alone<T>(
    conn: &mut PgConnection,
    statement: impl FnOnce(&mut PgConnection) -> diesel::QueryResult<T>,
) -> diesel::QueryResult<T> {
    if in_transaction(conn) || local(conn).is_none() {
        statement(conn)
    } else {
        within(conn, statement)
    }
}

/// A borrowed connection for Windlass's own statements, which have a deadline if Windlass opened
/// it.
#[allow(
    missing_debug_implementations,
    reason = "Diesel's connections have none"
)]
pub struct Own<'c> {
    conn: Conn<'c>,
    _armed: Armed,
}

/// Borrows a connection of any kind for Windlass's own statements.
pub fn own<C: AsConn + ?Sized>(conn: &mut C) -> Own<'_> {
    let mut conn = conn.as_conn();
    let _armed = conn.arm();
    Own { conn, _armed }
}

impl<'c> Deref for Own<'c> {
    type Target = Conn<'c>;

    fn deref(&self) -> &Conn<'c> {
        &self.conn
    }
}

impl<'c> DerefMut for Own<'c> {
    fn deref_mut(&mut self) -> &mut Conn<'c> {
        &mut self.conn
    }
}

/// Returns whether a transaction is open, according to Diesel.
pub(crate) fn in_transaction<C: Connection>(conn: &mut C) -> bool {
    transaction_depth(conn) > 0
}

fn transaction_depth<C: Connection>(conn: &mut C) -> u32 {
    let depth = C::TransactionManager::transaction_manager_status_mut(conn).transaction_depth();
    depth.ok().flatten().map_or(0, NonZeroU32::get)
}

pub(crate) mod sealed {
    use crate::db::conn::turns::WriteTurns;
    use std::sync::Arc;

    pub trait Sealed {
        /// Returns the writers of its SQLite file, if Windlass opened the connection for an application.
        fn writers(&self) -> Option<Arc<WriteTurns>> {
            None
        }

        /// Runs after a job was enqueued on this connection, and after a commit. Only the inline
        /// mode of tests does something here.
        fn after_enqueue(&mut self) -> crate::error::Result<()> {
            Ok(())
        }
    }
}

/// A connection that can be borrowed as a [`Conn`].
///
/// These are `PgConnection`, `SqliteConnection`, either of them from an r2d2 pool, a
/// [`DbConnection`](crate::DbConnection), and a [`TestDatabase`](crate::testing::TestDatabase).
///
/// A function that takes `&mut impl AsConn` works with all of them. It runs queries by
/// [`with_conn!`](crate::with_conn), in a transaction by [`transaction`](crate::transaction()).
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{AsConn, NewJob, Result};
///
/// /// Enqueues on any connection, in its transaction if one is open.
/// fn greet<C: AsConn + ?Sized>(conn: &mut C) -> Result<()> {
///     NewJob::of_class("greet", "{}").enqueue(conn)?;
///     Ok(())
/// }
/// greet(&mut conn)?;
/// # Ok::<(), windlass::Error>(())
/// ```
pub trait AsConn: sealed::Sealed {
    /// Borrows the connection.
    fn as_conn(&mut self) -> Conn<'_>;
}

#[cfg(feature = "postgres")]
impl sealed::Sealed for PgConnection {}

#[cfg(feature = "postgres")]
impl AsConn for PgConnection {
    fn as_conn(&mut self) -> Conn<'_> {
        Conn::Postgres(self)
    }
}

#[cfg(feature = "sqlite")]
impl sealed::Sealed for SqliteConnection {}

#[cfg(feature = "sqlite")]
impl AsConn for SqliteConnection {
    fn as_conn(&mut self) -> Conn<'_> {
        Conn::Sqlite(self)
    }
}

impl sealed::Sealed for Conn<'_> {}

impl AsConn for Conn<'_> {
    fn as_conn(&mut self) -> Conn<'_> {
        self.reborrow()
    }
}

impl<C: diesel::r2d2::R2D2Connection + AsConn + 'static> sealed::Sealed
    for PooledConnection<ConnectionManager<C>>
{
}

impl<C: diesel::r2d2::R2D2Connection + AsConn + 'static> AsConn
    for PooledConnection<ConnectionManager<C>>
{
    fn as_conn(&mut self) -> Conn<'_> {
        (**self).as_conn()
    }
}

/// Returns an expression for the seconds from a column to now; NULL if the column's value is not a
/// calendar time.
pub fn age(conn: &Conn<'_>, column: &str) -> String {
    conn.seconds(&format!("{{moment {column}}}"), "{now}")
}
