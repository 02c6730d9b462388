//! A database by its address: opening connections of one's own, or from a pool.

mod bench;
mod lent;
mod looking;
mod pooled;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod typed;

use crate::db::address::{self, without_secrets};
use crate::db::completion::Migrated;
use crate::db::conn::Conn;
use crate::db::fatal::FileId;
use crate::db::wakeup::{self, Listener};
#[cfg(feature = "postgres")]
use crate::deadline::Armed;
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use diesel::prelude::*;
#[cfg(feature = "sqlite")]
use diesel::r2d2::ConnectionManager;
use diesel::r2d2::{ManageConnection, Pool, PooledConnection};
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
    /// How long each statement of a loop may take, on Postgres.
    limit: Duration,
    /// A SQLite file that may not be written is opened all the same.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    only_looks: bool,
}

enum Backend {
    #[cfg(feature = "postgres")]
    Postgres {
        url: String,
        target: String,
        pool: Pool<postgres::Manager>,
    },
    #[cfg(feature = "sqlite")]
    Sqlite {
        path: PathBuf,
        pool: Pool<ConnectionManager<SqliteConnection>>,
        /// SQLite has one writer. Threads of this process take turns here, in
        /// whatever order, instead of in SQLite's sleeping busy handler.
        turn: Arc<Mutex<()>>,
    },
    /// Of a test that lends its own connection.
    Lent(Arc<lent::Shelf>),
    /// Of a test that has none.
    Nowhere,
}

/// An owned connection that Windlass has opened and set up.
pub struct DbConnection {
    kind: Kind,
    turn: Option<Arc<Mutex<()>>>,
    /// How long the server may take to answer a statement of ours.
    limit: Duration,
}

enum Kind {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Guarded>),
    #[cfg(feature = "postgres")]
    PooledPostgres(Box<PooledConnection<postgres::Manager>>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<SqliteConnection>),
    #[cfg(feature = "sqlite")]
    PooledSqlite(PooledConnection<ConnectionManager<SqliteConnection>>),
    Lent(Box<lent::Lent>),
}

pub use bench::TestDatabase;
#[cfg(feature = "postgres")]
pub use typed::TypedPostgres;
#[cfg(feature = "sqlite")]
pub use typed::TypedSqlite;
pub use typed::{Backend as DbBackend, Typed};

/// For each statement of a loop. SQLite has its own deadlines.
#[cfg(feature = "postgres")]
const STATEMENT: Duration = postgres::STATEMENT;
#[cfg(not(feature = "postgres"))]
const STATEMENT: Duration = Duration::MAX;

#[cfg(feature = "postgres")]
pub(crate) use postgres::{Session, arm, tagged};

/// SQLite has none.
#[cfg(not(feature = "postgres"))]
#[derive(Debug)]
pub(crate) enum Session {}

impl DbConnection {
    pub(super) fn lend(&mut self) -> Conn<'_> {
        match &mut self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres(guarded) => Conn::Postgres(&mut guarded.conn),
            #[cfg(feature = "postgres")]
            Kind::PooledPostgres(guarded) => Conn::Postgres(&mut guarded.conn),
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
        #[cfg(feature = "postgres")]
        let _armed = self
            .guarded()
            .map_or_else(Armed::not, |guarded| guarded.arm(self.limit));
        work(&mut self.lend())
    }

    #[cfg(feature = "postgres")]
    fn guarded(&self) -> Option<&postgres::Guarded> {
        match &self.kind {
            Kind::Postgres(guarded) => Some(guarded),
            Kind::PooledPostgres(guarded) => Some(guarded),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(_) | Kind::PooledSqlite(_) => None,
            Kind::Lent(_) => None,
        }
    }

    /// How long a statement was waited for in vain, if one was: then the
    /// connection is of no use any more, whatever it answered in the end.
    pub(crate) fn missed(&self) -> Option<Duration> {
        #[cfg(feature = "postgres")]
        return self.guarded()?.missed();
        #[cfg(not(feature = "postgres"))]
        None
    }

    /// The session that a server keeps for it.
    pub(crate) fn session(&self) -> Option<Session> {
        #[cfg(feature = "postgres")]
        return Some(self.guarded()?.session.clone());
        #[cfg(not(feature = "postgres"))]
        None
    }

    /// Ends a session that gave no answer: it may hold locks.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn end(&mut self, session: &Session) -> QueryResult<()> {
        self.write(|conn| match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => postgres::end(conn, session),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => Ok(()),
        })
    }

    /// Gives each statement this much time; the server gives up before.
    pub(crate) fn hurry(&mut self, limit: Duration) -> QueryResult<()> {
        self.limit = limit;
        self.write(|conn| match conn {
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
            limit: STATEMENT,
            only_looks: false,
        })
    }

    /// The same database, with this much time for each statement of a loop
    /// instead of 40 s: for tests.
    #[doc(hidden)]
    pub fn with_statement_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
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
    pub fn connect(&self) -> Result<DbConnection> {
        self.connect_in_haste(None)
    }

    /// The same, for a process that can be asked to stop.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn connect_in_haste(&self, hurry: Option<Hurry>) -> Result<DbConnection> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { url, target, .. } => postgres::Guarded::connect(url, hurry)
                .map(|guarded| DbConnection {
                    kind: Kind::Postgres(Box::new(guarded)),
                    turn: None,
                    limit: self.limit,
                })
                .map_err(|reason| self.refused(target, reason)),
            #[cfg(feature = "sqlite")]
            Backend::Sqlite { path, turn, .. } => self
                .open_file(path)
                .map(|conn| DbConnection {
                    kind: Kind::Sqlite(Box::new(conn)),
                    turn: Some(Arc::clone(turn)),
                    limit: self.limit,
                })
                .map_err(|reason| self.refused(&path.display().to_string(), reason)),
            Backend::Lent(_) | Backend::Nowhere => self.get(),
        }
    }

    /// Opens what hears of new work, also by a channel of the listener's own.
    pub(crate) fn listen(&self, channel: Option<&str>) -> Result<Listener> {
        let channels: Vec<&str> = channel.into_iter().chain([wakeup::OF_ALL]).collect();
        self.listen_on(&channels)
    }

    /// Opens what hears of what is notified on these channels of Postgres, and
    /// of every commit on SQLite.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn listen_on(&self, channels: &[&str]) -> Result<Listener> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            Backend::Postgres { url, target, .. } => wakeup::listen_postgres(url, channels)
                .map_err(|reason| self.refused(target, reason)),
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
    /// When the database cannot be reached, and as [`migrate`](crate::migrate).
    pub fn migrate(&self) -> Result<Migrated> {
        #[cfg(feature = "sqlite")]
        #[allow(
            irrefutable_let_patterns,
            reason = "with one feature there is one kind"
        )]
        if let Backend::Sqlite { path, .. } = &*self.inner {
            sqlite::create(path).map_err(|reason| self.refused(&self.target(), reason))?;
        }
        crate::db::completion::migrate(&mut self.connect()?)
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

fn pool<M: ManageConnection>(size: u32) -> diesel::r2d2::Builder<M> {
    Pool::builder()
        .max_size(size.max(1))
        .min_idle(Some(0))
        // A job must not be handed the remains of a server's restart.
        .test_on_check_out(true)
        .connection_timeout(pooled::BUSY)
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
        pool: pool(size).build_unchecked(postgres::Manager { url: url.clone() }),
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
            pool: pool(size)
                .connection_customizer(Box::new(sqlite::SetUp))
                .build_unchecked(ConnectionManager::new(sqlite::existing(path))),
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
