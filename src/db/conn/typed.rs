//! Connections in Diesel's own types, for queries of the application.

use crate::db::conn::connection::{AsConn, Conn, sealed};
use crate::db::conn::owned::{ConnectionKind, DbConnection};
use crate::error::{Error, Result};
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection;
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A kind of connection that a [`DbConnection`] can be.
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

    /// Runs `work` in a transaction: commits if it returns `Ok`, and rolls back if it returns an
    /// error. Inside an open transaction it is a savepoint. On SQLite it takes the write lock at
    /// the start.
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
        self.as_conn().begin()?;
        match work(self) {
            Ok(value) => {
                self.as_conn().commit()?;
                Ok(value)
            }
            Err(error) => {
                // If this fails too, the connection is broken and the transaction with it.
                let _ = self.as_conn().roll_back();
                Err(error)
            }
        }
    }
}

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
