//! Connections in Diesel's own types, for queries of the application.

use crate::db::conn::connection::{AsConn, Conn, sealed};
use crate::db::conn::owned::{ConnectionKind, DbConnection};
use crate::error::{Error, Result};
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection;
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A kind of connection that a [`DbConnection`] can be.
///
/// ```
/// # use diesel::connection::SimpleConnection;
/// use windlass::database::{Backend, Typed};
///
/// /// A query of the program, on a connection of either kind.
/// fn tables<B: Backend + diesel::Connection>(conn: &mut Typed<B>) -> diesel::QueryResult<()> {
///     conn.batch_execute("ANALYZE")
/// }
/// ```
pub trait Backend: sealed::Sealed + 'static {
    #[doc(hidden)]
    fn of(conn: Conn<'_>) -> Result<&mut Self>;
    #[doc(hidden)]
    fn within(conn: &DbConnection) -> Option<&Self>;
}

#[allow(dead_code, reason = "needs both features")]
fn other<T>(is: &'static str, wanted: &'static str) -> Result<T> {
    Err(Error::OtherDatabase { is, wanted })
}

#[cfg(feature = "postgres")]
impl Backend for PgConnection {
    fn of(conn: Conn<'_>) -> Result<&mut Self> {
        match conn {
            Conn::Postgres(conn) => Ok(conn),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => other("SQLite", "Postgres"),
        }
    }

    fn within(conn: &DbConnection) -> Option<&Self> {
        match &conn.kind {
            ConnectionKind::Postgres(guarded) => Some(&guarded.conn),
            ConnectionKind::PooledPostgres(guarded) => Some(&guarded.conn),
            ConnectionKind::Borrowed(borrowed) => Self::within(borrowed.shared()?),
            #[cfg(feature = "sqlite")]
            _ => None,
        }
    }
}

#[cfg(feature = "sqlite")]
impl Backend for SqliteConnection {
    fn of(conn: Conn<'_>) -> Result<&mut Self> {
        match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(_) => other("Postgres", "SQLite"),
            Conn::Sqlite(conn) => Ok(conn),
        }
    }

    fn within(conn: &DbConnection) -> Option<&Self> {
        match &conn.kind {
            ConnectionKind::Sqlite(conn) => Some(conn),
            ConnectionKind::PooledSqlite(conn) => Some(conn),
            ConnectionKind::Borrowed(borrowed) => Self::within(borrowed.shared()?),
            #[cfg(feature = "postgres")]
            _ => None,
        }
    }
}

impl<'a> Conn<'a> {
    /// Returns the connection in Diesel's type.
    ///
    /// # Errors
    /// Returns an error if it is a connection to SQLite.
    #[cfg(feature = "postgres")]
    pub fn postgres(self) -> Result<&'a mut PgConnection> {
        PgConnection::of(self)
    }

    /// Returns the connection in Diesel's type.
    ///
    /// # Errors
    /// Returns an error if it is a connection to Postgres.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(self) -> Result<&'a mut SqliteConnection> {
        SqliteConnection::of(self)
    }
}

impl DbConnection {
    /// Returns the connection in Diesel's type, for your own queries.
    ///
    /// # Errors
    /// Returns an error if it is a connection to SQLite.
    #[cfg(feature = "postgres")]
    pub fn postgres(&mut self) -> Result<&mut PgConnection> {
        self.as_conn().postgres()
    }

    /// Returns the connection in Diesel's type, for your own queries.
    ///
    /// # Errors
    /// Returns an error if it is a connection to Postgres.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(&mut self) -> Result<&mut SqliteConnection> {
        self.as_conn().sqlite()
    }

    /// Runs `work` in a transaction; see [`windlass::transaction`](crate::transaction()).
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use windlass::{Database, NewJob};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("jobs.db");
    /// let database = Database::open(&format!("sqlite://{}", path.display()))?;
    /// database.migrate()?;
    /// let mut conn = database.connect()?;
    /// diesel::sql_query("CREATE TABLE users (email text)").execute(conn.sqlite()?)?;
    /// conn.transaction(|conn| {
    ///     diesel::sql_query("INSERT INTO users VALUES ('ada')").execute(conn.sqlite()?)?;
    ///     NewJob::of_class("welcome", r#"{"to":"ada"}"#).enqueue(conn)?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of `work`, or that of starting or committing the transaction.
    pub fn transaction<T, E>(
        &mut self,
        work: impl FnOnce(&mut DbConnection) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        E: From<diesel::result::Error>,
    {
        transaction(self, work)
    }
}

thread_local! {
    /// True if the last [`transaction`] of this thread could not start.
    static COULD_NOT_START: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the last [`transaction`] of this thread could not start, and forgets it.
pub(crate) fn take_failed_start() -> bool {
    COULD_NOT_START.take()
}

/// Runs `work` in a transaction on any connection.
///
/// It commits if `work` returns `Ok`, and rolls back if that returns an error. Inside an open transaction
/// it is a savepoint. On SQLite it takes the write lock at the start.
///
/// ```
/// use diesel::prelude::*;
/// use windlass::{AsConn, NewJob, with_conn};
///
/// fn sign_up(conn: &mut impl AsConn) -> Result<(), Box<dyn std::error::Error>> {
///     windlass::transaction(conn, |conn| {
///         with_conn!(conn, |c| diesel::sql_query("INSERT INTO users VALUES ('ada')").execute(c))?;
///         NewJob::of_class("welcome", r#"{"to":"ada"}"#).enqueue(conn)?;
///         Ok(())
///     })
/// }
/// # let mut db = windlass::testing::TestDatabase::in_memory()?;
/// # with_conn!(&mut db, |c| diesel::sql_query("CREATE TABLE users (email text)").execute(c))?;
/// # sign_up(&mut db)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns the error of `work`, or that of starting or committing the transaction.
pub fn transaction<C, T, E>(
    conn: &mut C,
    work: impl FnOnce(&mut C) -> std::result::Result<T, E>,
) -> std::result::Result<T, E>
where
    C: AsConn + ?Sized,
    E: From<diesel::result::Error>,
{
    let started = conn.as_conn().begin();
    COULD_NOT_START.set(started.is_err());
    started?;
    match work(conn) {
        Ok(value) => {
            conn.as_conn().commit()?;
            conn.after_enqueue()
                .map_err(|error| diesel::result::Error::QueryBuilderError(error.into()))?;
            Ok(value)
        }
        Err(error) => {
            // If this fails too, the connection is broken and the transaction with it.
            let _ = conn.as_conn().roll_back();
            Err(error)
        }
    }
}

// Features are looked at where a macro is defined: in its text, they would be those of the caller.
/// Runs a query of Diesel, written once, on whichever database the connection leads to.
///
/// The first argument is a `&mut impl AsConn`. The second is written like a closure, and is
/// compiled once for each database that Windlass was built with: `c` is a `&mut SqliteConnection`
/// in one, a `&mut PgConnection` in the other. It is no closure, so `?` and `return` leave the
/// function around it.
///
/// ```
/// use diesel::prelude::*;
/// use windlass::{AsConn, with_conn};
///
/// diesel::table! {
///     users (email) { email -> Text, }
/// }
///
/// fn add(conn: &mut impl AsConn, email: &str) -> QueryResult<usize> {
///     with_conn!(conn, |c| diesel::insert_into(users::table).values(users::email.eq(email)).execute(c))
/// }
/// # let mut db = windlass::testing::TestDatabase::in_memory()?;
/// # with_conn!(&mut db, |c| diesel::sql_query("CREATE TABLE users (email text)").execute(c))?;
/// # assert_eq!(add(&mut db, "ada@example.com")?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is a macro because Diesel checks a query's type for each database, which a function with a
/// closure cannot ask for.
#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[macro_export]
macro_rules! with_conn {
    ($conn:expr, |$c:ident| $body:expr $(,)?) => {
        match $crate::AsConn::as_conn($conn) {
            $crate::Conn::Postgres($c) => $body,
            $crate::Conn::Sqlite($c) => $body,
            #[allow(
                unreachable_patterns,
                reason = "outside of Windlass there could be more"
            )]
            _ => ::core::unreachable!("Windlass has two kinds of databases"),
        }
    };
}

/// Runs a query of Diesel on a connection to SQLite.
#[cfg(all(feature = "sqlite", not(feature = "postgres")))]
#[macro_export]
macro_rules! with_conn {
    ($conn:expr, |$c:ident| $body:expr $(,)?) => {
        match $crate::AsConn::as_conn($conn) {
            $crate::Conn::Sqlite($c) => $body,
            #[allow(
                unreachable_patterns,
                reason = "outside of Windlass there could be more"
            )]
            _ => ::core::unreachable!("Windlass was built for SQLite alone"),
        }
    };
}

/// Runs a query of Diesel on a connection to Postgres.
#[cfg(all(feature = "postgres", not(feature = "sqlite")))]
#[macro_export]
macro_rules! with_conn {
    ($conn:expr, |$c:ident| $body:expr $(,)?) => {
        match $crate::AsConn::as_conn($conn) {
            $crate::Conn::Postgres($c) => $body,
            #[allow(
                unreachable_patterns,
                reason = "outside of Windlass there could be more"
            )]
            _ => ::core::unreachable!("Windlass was built for Postgres alone"),
        }
    };
}

pub use with_conn;

/// A separate connection in Diesel's type: pass `&mut *conn` to Diesel.
pub struct Typed<C> {
    connection: DbConnection,
    kind: PhantomData<fn() -> C>,
}

/// A separate connection to Postgres.
#[cfg(feature = "postgres")]
pub type TypedPostgres = Typed<PgConnection>;

/// A separate connection to SQLite.
#[cfg(feature = "sqlite")]
pub type TypedSqlite = Typed<SqliteConnection>;

impl<C: Backend> Typed<C> {
    pub(crate) fn new(mut connection: DbConnection) -> Result<Self> {
        C::of(connection.as_conn())?;
        Ok(Typed {
            connection,
            kind: PhantomData,
        })
    }
}

impl<C: Backend> Deref for Typed<C> {
    type Target = C;

    fn deref(&self) -> &C {
        match C::within(&self.connection) {
            Some(conn) => conn,
            None => unreachable!("its kind was looked at when it was made"),
        }
    }
}

impl<C: Backend> DerefMut for Typed<C> {
    fn deref_mut(&mut self) -> &mut C {
        match C::of(self.connection.as_conn()) {
            Ok(conn) => conn,
            Err(_) => unreachable!("its kind was looked at when it was made"),
        }
    }
}

impl<C: Backend> sealed::Sealed for Typed<C> {}

impl<C: Backend> AsConn for Typed<C> {
    fn as_conn(&mut self) -> Conn<'_> {
        self.connection.as_conn()
    }
}

impl<C: Backend> fmt::Debug for Typed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}
