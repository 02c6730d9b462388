//! A database by its address: opening separate connections, and the pool.

use crate::db::conn::address::{self, without_secrets};
use crate::db::conn::connection::Conn;
use crate::db::conn::owned::{self, ConnectionKind, DbConnection, STATEMENT};
#[cfg(feature = "postgres")]
use crate::db::conn::pooling::pooler::Pooler;
#[cfg(feature = "postgres")]
use crate::db::conn::pooling::recognise::{
    PREFER_INDEXES, PoolerAddress, is_advised, with_defaults,
};
#[cfg(feature = "postgres")]
use crate::db::conn::postgres::{self, local};
#[cfg(feature = "sqlite")]
use crate::db::conn::sqlite;
use crate::db::conn::sqlite_file::FileId;
use crate::db::conn::statement::Statement;
use crate::db::conn::turns::Precedence;
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::WriteTurns;
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::takes_turns::TakesTurns;
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use diesel::QueryResult;
#[cfg(feature = "sqlite")]
use diesel::connection::Connection as _;
#[cfg(feature = "sqlite")]
use diesel::r2d2::ConnectionManager;
use diesel::r2d2::{ManageConnection, Pool};
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;
use std::fmt;
#[cfg(feature = "sqlite")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("windlass needs a database: switch on the feature `sqlite` or `postgres`");

/// A SQLite file or a Postgres database, by its address.
///
/// Cheap to clone. Opening one does not connect: while a server is down, work is delayed, and
/// programs keep running.
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
    pub(crate) inner: Arc<DatabaseBackend>,
    /// The most time that each statement of a loop may take. Postgres only.
    pub(crate) limit: Duration,
    /// True if a SQLite file without write permission may be opened.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub(crate) is_read_only: bool,
}

pub(crate) enum DatabaseBackend {
    #[cfg(feature = "postgres")]
    Postgres {
        url: String,
        target: String,
        pool: Pool<postgres::PostgresManager>,
        pooler: Arc<Pooler>,
    },
    #[cfg(feature = "sqlite")]
    Sqlite {
        path: PathBuf,
        pool: Pool<ConnectionManager<SqliteConnection>>,
        turns: Arc<WriteTurns>,
    },
    /// A test's database, whose only connection its jobs borrow.
    Shared(Arc<owned::SharedConnection>),
    /// A test's database without a connection.
    Unconnected,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.target())
    }
}

pub(crate) const ALREADY_BORROWED: &str =
    "its one connection is borrowed already: a job of a test can have one at a time";

pub(crate) const NO_CONNECTION: &str =
    "a test that gives jobs a connection is made with `testing::TestDatabase`";

/// The default size of the pool.
const POOL_SIZE: u32 = 10;

impl Database {
    /// Reads an address: `postgres://user@host/name`, `sqlite://path/to.db`,
    /// or a plain path, which is a SQLite file. At most 10 pooled connections.
    ///
    /// # Errors
    /// Returns an error if the address is none of these, or names a database for which this program
    /// was built without the Cargo feature.
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
            is_read_only: false,
        })
    }

    /// Returns the same database with this time limit for each statement of a loop instead of 40 s.
    /// For tests.
    #[doc(hidden)]
    pub fn with_statement_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the address for display: without user, password and parameters.
    pub fn target(&self) -> String {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { target, .. } => target.clone(),
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, .. } => path.display().to_string(),
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => {
                "the database of this test".to_owned()
            }
        }
    }

    /// Opens a connection outside the pool, for a loop that keeps it or for a program that needs
    /// just one.
    ///
    /// # Errors
    /// Returns an error if the server does not answer within 5 seconds, or if the file does not
    /// exist, is not a SQLite database or may not be written.
    pub fn connect(&self) -> Result<DbConnection> {
        self.connect_in_haste(None)
    }

    /// Opens a connection like [`connect`](Self::connect), for a process that can be asked to stop.
    pub(crate) fn connect_in_haste(&self, hurry: Option<Hurry>) -> Result<DbConnection> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { url, pooler, .. } => {
                postgres::Guarded::connect(url, hurry, pooler)
                    .map(|guarded| DbConnection {
                        kind: ConnectionKind::Postgres(Box::new(guarded)),
                        turns: None,
                        writers: None,
                        precedence: Precedence::Normal,
                        limit: self.limit,
                    })
                    .map_err(|reason| self.refused(&self.target(), reason))
            }
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, turns, .. } => self
                .open_sqlite(path, turns, hurry.is_some())
                .map_err(|reason| self.refused(&path.display().to_string(), reason)),
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => self.get(),
        }
    }

    /// Creates the file of a SQLite database if it does not exist.
    pub(crate) fn create(&self) -> Result<()> {
        #[cfg(feature = "sqlite")]
        #[allow(
            irrefutable_let_patterns,
            reason = "with one feature there is one kind"
        )]
        if let DatabaseBackend::Sqlite { path, .. } = &*self.inner {
            sqlite::create(path).map_err(|reason| self.refused(&self.target(), reason))?;
        }
        Ok(())
    }

    /// Returns which file it is, once it is open. `None` for a server.
    #[doc(hidden)]
    pub fn file(&self) -> Option<FileId> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { .. } => None,
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, .. } => FileId::of(path),
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => None,
        }
    }

    /// Returns why no further attempt can succeed, if the message of a failed one says so. A server
    /// may always come back, unless statements prepared in it are those of others.
    pub(crate) fn permanent_failure(&self, message: &str) -> Option<String> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { .. } => is_advised(message).then(|| message.to_owned()),
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, .. } => {
                crate::db::conn::sqlite_file::corrupt(path, message)
            }
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => None,
        }
    }

    #[doc(hidden)]
    pub fn refused(&self, target: &str, reason: String) -> Error {
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
        // A job must not get a connection that was lost when the server restarted.
        .test_on_check_out(true)
        .connection_timeout(BUSY)
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, size: u32) -> Result<DatabaseBackend> {
    if let Some(reason) = address::misread(url) {
        return Err(Error::Url {
            url: without_secrets(url),
            reason: reason.to_owned(),
        });
    }
    let refused = |reason| Error::Url {
        url: without_secrets(url),
        reason,
    };
    let PoolerAddress {
        url: plain,
        pooling,
        listen_url,
    } = PoolerAddress::parse(url).map_err(refused)?;
    let listen_url = listen_url.map(|url| direct(&url)).transpose()?;
    let pooler = Pooler::new(pooling, listen_url);
    Ok(postgres_at(with_defaults(&plain), size, pooler))
}

/// Returns the address at which to listen, completed.
#[cfg(feature = "postgres")]
pub(crate) fn direct(url: &str) -> Result<String> {
    let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let wrong = match address::misread(url) {
        None if is_postgres => return Ok(with_defaults(url)),
        None => "the address to listen on leads to Postgres: `postgres://user@host/name`",
        Some(reason) => reason,
    };
    Err(Error::Url {
        url: without_secrets(url),
        reason: wrong.to_owned(),
    })
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres_at(url: String, size: u32, pooler: Pooler) -> DatabaseBackend {
    let pooler = Arc::new(pooler);
    DatabaseBackend::Postgres {
        target: without_secrets(&url),
        pool: pool(size).build_unchecked(postgres::PostgresManager {
            url: url.clone(),
            pooler: Arc::clone(&pooler),
        }),
        url,
        pooler,
    }
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(url: &str, _size: u32) -> Result<DatabaseBackend> {
    Err(Error::Url {
        url: without_secrets(url),
        reason: "it was built without Postgres; add the feature `postgres` to `windlass` in its Cargo.toml".to_owned(),
    })
}

#[cfg(feature = "sqlite")]
fn open_sqlite(url: &str, size: u32) -> Result<DatabaseBackend> {
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
        let turns = WriteTurns::of(Path::new(path));
        return Ok(DatabaseBackend::Sqlite {
            path: PathBuf::from(path),
            pool: pool(size)
                .connection_customizer(Box::new(sqlite::SetUp {
                    turns: Arc::clone(&turns),
                }))
                .build_unchecked(ConnectionManager::new(sqlite::existing(path))),
            turns,
        });
    };
    Err(Error::Url {
        url: without_secrets(url),
        reason: reason.to_owned(),
    })
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(url: &str, _size: u32) -> Result<DatabaseBackend> {
    Err(Error::Url {
        url: without_secrets(url),
        reason: "it is no Postgres address, and SQLite was left out of this build".to_owned(),
    })
}

/// The longest wait for a connection of the pool while all are in use.
pub(crate) const BUSY: Duration = Duration::from_secs(30);

// --- Settings of a connection ---

/// Checks that the database answers. Changes nothing.
pub fn ping(conn: &mut Conn<'_>) -> QueryResult<()> {
    Statement::new("SELECT 1").uncached().plain().execute(conn)
}

/// Keeps the planner from full scans and sorts on the connection of a loop.
///
/// A cached plan, made from statistics of a table that was empty a moment ago, would read a million
/// rows to find one. Every statement of the loops has its index, and these settings only raise the
/// cost of everything else. `jit` is off because the raised cost of a sort would make Postgres
/// compile it. A generic plan is as good then, and planning anew costs more than most statements.
pub fn prefer_indexes(conn: &mut Conn<'_>) -> QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(pg) => {
            if let Some(local) = local(pg) {
                local.prefers_indexes = true;
                return Ok(());
            }
            let settings = PREFER_INDEXES
                .map(|(name, value)| format!("set_config('{name}', '{value}', false)"));
            Statement::new(format!("SELECT {}", settings.join(", ")))
                .uncached()
                .execute(conn)
        }
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Ok(()),
    }
}

// --- Opening a database only to read it ---

impl Database {
    /// Returns the same database for reading only: this user may lack permission to write a SQLite
    /// file.
    #[doc(hidden)]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Opens a SQLite file. A loop takes its turns itself, for several statements at once, and shows how
    /// long it waits; for other callers, each transaction takes a turn.
    #[cfg(feature = "sqlite")]
    pub(crate) fn open_sqlite(
        &self,
        path: &Path,
        turns: &Arc<WriteTurns>,
        is_of_a_loop: bool,
    ) -> Result<DbConnection, String> {
        let mut conn = self.open_file(path)?;
        if is_of_a_loop {
            sqlite::show_waits(&mut conn);
        } else {
            conn.set_instrumentation(TakesTurns::new(turns));
        }
        Ok(DbConnection {
            kind: ConnectionKind::Sqlite(Box::new(conn)),
            turns: is_of_a_loop.then(|| Arc::clone(turns)),
            writers: (!is_of_a_loop).then(|| Arc::clone(turns)),
            precedence: Precedence::Normal,
            limit: self.limit,
        })
    }

    #[cfg(feature = "sqlite")]
    fn open_file(&self, path: &Path) -> Result<SqliteConnection, String> {
        if self.is_read_only {
            sqlite::open_as_permitted(path)
        } else {
            sqlite::connect(path)
        }
    }
}
