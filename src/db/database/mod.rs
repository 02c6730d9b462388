//! A database by its address: opening connections of one's own, or from a pool.

mod bench;
mod lent;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::db::address::{self, without_secrets};
use crate::db::conn::Conn;
use crate::db::fatal::FileId;
use crate::db::wakeup::{self, Listener};
use crate::error::{Error, Result};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool, PooledConnection};
use std::fmt;
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("windlass needs a database: switch on the feature `sqlite` or `postgres`");

/// A SQLite file or a Postgres database, by its address.
///
/// Cheap to clone. Opening one connects to nothing: a server that is down
/// delays work, it does not end programs.
///
/// ```
/// # fn main() -> windlass::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # std::env::set_current_dir(&directory).unwrap();
/// let database = windlass::Database::open("sqlite://jobs.db")?;
/// database.migrate()?;
/// let mut connection = database.connect()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Database {
    inner: Arc<Backend>,
}

enum Backend {
    #[cfg(feature = "postgres")]
    Postgres {
        url: String,
        target: String,
        pool: Pool<ConnectionManager<PgConnection>>,
    },
    #[cfg(feature = "sqlite")]
    Sqlite {
        path: PathBuf,
        pool: Pool<ConnectionManager<SqliteConnection>>,
        /// SQLite has one writer. Threads of this process take turns here,
        /// fairly, instead of in SQLite's sleeping busy handler.
        turn: Arc<Mutex<()>>,
    },
    /// Of a test that lends its own connection.
    Lent(Arc<lent::Shelf>),
    /// Of a test that has none.
    Nowhere,
}

/// An owned connection that Windlass has opened and set up.
pub struct Connection {
    kind: Kind,
    turn: Option<Arc<Mutex<()>>>,
}

enum Kind {
    #[cfg(feature = "postgres")]
    Postgres(Box<PgConnection>),
    #[cfg(feature = "postgres")]
    PooledPostgres(PooledConnection<ConnectionManager<PgConnection>>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<SqliteConnection>),
    #[cfg(feature = "sqlite")]
    PooledSqlite(PooledConnection<ConnectionManager<SqliteConnection>>),
    Lent(Box<lent::Lent>),
}

pub use bench::TestDatabase;

impl Connection {
    pub(super) fn lend(&mut self) -> Conn<'_> {
        match &mut self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres(conn) => Conn::Postgres(conn),
            #[cfg(feature = "postgres")]
            Kind::PooledPostgres(conn) => Conn::Postgres(conn),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(conn) => Conn::Sqlite(conn),
            #[cfg(feature = "sqlite")]
            Kind::PooledSqlite(conn) => Conn::Sqlite(conn),
            Kind::Lent(lent) => lent.lend(),
        }
    }

    /// Lends the connection for a statement that writes, waiting for this
    /// process' turn where the database has one writer.
    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> T) -> T {
        let turn = self.turn.clone();
        let _turn: Option<MutexGuard<'_, ()>> = turn
            .as_ref()
            .map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        work(&mut self.lend())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.target())
    }
}

const LENT: &str = "its one connection is borrowed already: a job of a test can have one at a time";
const NOWHERE: &str = "a test that gives jobs a connection is made with `testing::TestDatabase`";

/// How many connections the pool lends at most, unless told otherwise.
const POOL_SIZE: u32 = 10;

impl Database {
    /// Reads an address: `postgres://user@host/name`, `sqlite://path/to.db`,
    /// or a plain path, which is a SQLite file. At most 10 pooled connections.
    ///
    /// # Errors
    /// When the address is none of these, or names a database for which this
    /// program was built without the Cargo feature.
    pub fn open(url: &str) -> Result<Self> {
        Self::open_with_pool(url, POOL_SIZE)
    }

    /// Like [`open`](Self::open), with a pool of `size` connections for jobs.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with_pool(url: &str, size: u32) -> Result<Self> {
        let url = url.trim();
        let inner = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            open_postgres(url, size)?
        } else {
            open_sqlite(url, size)?
        };
        Ok(Database {
            inner: Arc::new(inner),
        })
    }

    /// The address for people: without user, password and parameters.
    pub fn target(&self) -> String {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { target, .. } => target.clone(),
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, .. } => path.display().to_string(),
            Backend::Lent(_) | Backend::Nowhere => "the database of this test".to_owned(),
        }
    }

    /// Opens a connection of its own, outside the pool, for a loop that keeps
    /// it or for a program that needs just one.
    ///
    /// # Errors
    /// When the server does not answer within 5 seconds, or the file does not
    /// exist, is no SQLite database or may not be written.
    pub fn connect(&self) -> Result<Connection> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { url, target, .. } => postgres::connect(url)
                .map(|conn| Connection {
                    kind: Kind::Postgres(Box::new(conn)),
                    turn: None,
                })
                .map_err(|reason| self.refused(target, reason)),
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, turn, .. } => sqlite::connect(path)
                .map(|conn| Connection {
                    kind: Kind::Sqlite(Box::new(conn)),
                    turn: Some(Arc::clone(turn)),
                })
                .map_err(|reason| self.refused(&path.display().to_string(), reason)),
            Backend::Lent(_) | Backend::Nowhere => self.get(),
        }
    }

    /// Borrows a connection from the pool: for jobs that touch the database.
    ///
    /// # Errors
    /// When none becomes free or can be opened within 30 seconds.
    pub fn get(&self) -> Result<Connection> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { pool, target, .. } => match pool.get() {
                Ok(conn) => Ok(Connection {
                    kind: Kind::PooledPostgres(conn),
                    turn: None,
                }),
                Err(error) => Err(self.refused(target, error.to_string())),
            },
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { pool, turn, path } => match pool.get() {
                Ok(conn) => Ok(Connection {
                    kind: Kind::PooledSqlite(conn),
                    turn: Some(Arc::clone(turn)),
                }),
                Err(error) => Err(self.refused(&path.display().to_string(), error.to_string())),
            },
            Backend::Lent(shelf) => {
                let lent = lent::Lent::from(shelf, Duration::from_secs(5));
                lent.ok_or_else(|| self.refused(&self.target(), LENT.to_owned()))
            }
            Backend::Nowhere => Err(self.refused(&self.target(), NOWHERE.to_owned())),
        }
    }

    /// Opens what hears of new work.
    pub(crate) fn listen(&self) -> Result<Listener> {
        self.listen_on("windlass")
    }

    /// Opens what hears of what is notified on this channel of Postgres, and
    /// of every commit on SQLite.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn listen_on(&self, channel: &str) -> Result<Listener> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { url, target, .. } => {
                wakeup::listen_postgres(url, channel).map_err(|reason| self.refused(target, reason))
            }
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, .. } => sqlite::connect(path)
                .and_then(|conn| wakeup::listen_sqlite(conn, path))
                .map_err(|reason| self.refused(&path.display().to_string(), reason)),
            Backend::Lent(_) | Backend::Nowhere => {
                Err(self.refused(&self.target(), LENT.to_owned()))
            }
        }
    }

    /// Creates or updates the tables; see [`migrate`](crate::migrate). A
    /// SQLite file that does not exist is created.
    ///
    /// # Errors
    /// When the database cannot be reached or a migration fails; then nothing
    /// of that migration is kept.
    pub fn migrate(&self) -> Result<Vec<String>> {
        #[cfg(feature = "sqlite")]
        #[allow(
            irrefutable_let_patterns,
            reason = "with one feature there is one kind"
        )]
        if let Backend::Sqlite { path, .. } = &*self.inner {
            sqlite::create(path).map_err(|reason| self.refused(&self.target(), reason))?;
        }
        crate::db::migrations::run(&mut self.connect()?)
    }

    /// Whether it is Postgres, which tells of new work by NOTIFY.
    pub(crate) fn listens_by_notification(&self) -> bool {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { .. } => true,
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { .. } => false,
            Backend::Lent(_) | Backend::Nowhere => false,
        }
    }

    /// Which file it is, once it is open. `None` for a server.
    pub(crate) fn file(&self) -> Option<FileId> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { .. } => None,
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, .. } => FileId::of(path),
            Backend::Lent(_) | Backend::Nowhere => None,
        }
    }

    /// Why no further attempt can go well, if the message of a failed one
    /// says so. A server may always come back.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_variables))]
    pub(crate) fn lasting_trouble(&self, message: &str) -> Option<String> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { .. } => None,
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, .. } => crate::db::fatal::corrupt(path, message),
            Backend::Lent(_) | Backend::Nowhere => None,
        }
    }

    /// What heard of commits does so no more.
    pub(crate) fn deaf(&self, reason: String) -> Error {
        self.refused(&self.target(), reason)
    }

    fn refused(&self, target: &str, reason: String) -> Error {
        Error::Connect {
            target: target.to_owned(),
            reason,
        }
    }
}

fn pool<C>(
    manager: ConnectionManager<C>,
    size: u32,
    setup: impl Setup<C>,
) -> Pool<ConnectionManager<C>>
where
    C: diesel::r2d2::R2D2Connection + 'static,
{
    Pool::builder()
        .max_size(size.max(1))
        .min_idle(Some(0))
        // A job must not be handed the remains of a server's restart.
        .test_on_check_out(true)
        .connection_timeout(Duration::from_secs(30))
        .connection_customizer(Box::new(Customizer(setup)))
        .build_unchecked(manager)
}

trait Setup<C>: Fn(&mut C) -> QueryResult<()> + Send + Sync + 'static {}
impl<C, F: Fn(&mut C) -> QueryResult<()> + Send + Sync + 'static> Setup<C> for F {}

struct Customizer<F>(F);

impl<F> fmt::Debug for Customizer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Customizer")
    }
}

impl<C: 'static, F: Setup<C>> diesel::r2d2::CustomizeConnection<C, diesel::r2d2::Error>
    for Customizer<F>
{
    fn on_acquire(&self, conn: &mut C) -> std::result::Result<(), diesel::r2d2::Error> {
        (self.0)(conn).map_err(diesel::r2d2::Error::QueryError)
    }
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, size: u32) -> Result<Backend> {
    if let Some(reason) = address::misread(url) {
        return Err(Error::Url {
            url: without_secrets(url),
            reason: reason.to_owned(),
        });
    }
    let url = postgres::with_defaults(url);
    Ok(Backend::Postgres {
        target: without_secrets(&url),
        pool: pool(ConnectionManager::new(&url), size, postgres::set_up),
        url,
    })
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(url: &str, _size: u32) -> Result<Backend> {
    Err(Error::Url {
        url: without_secrets(url),
        reason: "it was built without Postgres; build it with `--features postgres`".to_owned(),
    })
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str, size: u32) -> Result<Backend> {
    let named = url
        .strip_prefix("sqlite://")
        .or_else(|| url.strip_prefix("sqlite:"));
    let path = named.unwrap_or(url);
    let has_scheme = named.is_none()
        && path
            .split_once(':')
            .is_some_and(|(word, _)| address::is_word(word));
    let reason = if path.is_empty() {
        "the path is empty; write `sqlite://path/to.db` or `postgres://host/name`"
    } else if has_scheme
        || path.contains("://")
        || path.contains("dbname=")
        || path.contains("password=")
    {
        "write `sqlite://path/to.db` or `postgres://host/name`"
    } else if named.is_some() && path.contains('?') {
        "the address of a SQLite file takes no parameters; write `sqlite://path/to.db`"
    } else if path == ":memory:" {
        "a database in memory ends with its connection and cannot be shared by threads; name a file"
    } else {
        return Ok(Backend::Sqlite {
            path: PathBuf::from(path),
            pool: pool(
                ConnectionManager::new(sqlite::existing(path)),
                size,
                sqlite::set_up,
            ),
            turn: Arc::default(),
        });
    };
    Err(Error::Url {
        url: without_secrets(url),
        reason: reason.to_owned(),
    })
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(url: &str, _size: u32) -> Result<Backend> {
    Err(Error::Url {
        url: without_secrets(url),
        reason: "it is no Postgres address, and SQLite was left out of this build".to_owned(),
    })
}
