//! Connections through a pooler, and the wake-ups for new work.

use crate::clock;
#[cfg(feature = "postgres")]
use crate::db::conn::address::{from_host, without_secrets};
use crate::db::conn::connection::Conn;
use crate::db::conn::database::{ALREADY_BORROWED, Database, DatabaseBackend};
#[cfg(feature = "postgres")]
use crate::db::conn::database::{direct, postgres_at};
use crate::db::conn::dialect::Dialect;
use crate::db::conn::pooling::pooler::{Pooler, Pooling};
use crate::db::conn::statement::Statement;
#[cfg(feature = "postgres")]
use crate::db::conn::wakeup_postgres;
#[cfg(feature = "sqlite")]
use crate::db::conn::{sqlite, wakeup_sqlite};
use crate::error::{Error, Result};
use diesel::prelude::*;
#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::time::Duration;

/// Checks an address to listen on.
#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
pub fn check_listen_url(url: &str) -> Result<()> {
    #[cfg(feature = "postgres")]
    direct(url)?;
    Ok(())
}

impl Database {
    /// Sets for how long a pooler between this program and the server, such as `PgBouncer`, gives a session of the
    /// server to a connection. Without it, or with [`Pooling::Auto`], the address decides (`?pooling=transaction`),
    /// and if that does not say it, the first connection finds out.
    ///
    /// Connections that were opened before stay as they are. On SQLite it does nothing.
    ///
    /// ```
    /// # #[cfg(feature = "postgres")] {
    /// use windlass::Database;
    /// use windlass::database::Pooling;
    ///
    /// let database = Database::open("postgres://app@pgbouncer:6432/app")?
    ///     .pooling(Pooling::Transaction)
    ///     .listen_url("postgres://app@db:5432/app")?;
    /// # }
    /// # Ok::<(), windlass::Error>(())
    /// ```
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        match pooling {
            Pooling::Auto => self,
            stated => self.with_pooler(|pooler| pooler.stated = stated),
        }
    }

    /// Sets an address that leads to the server itself, on which workers listen for new jobs: one connection for each
    /// process. Behind a pooler in transaction mode workers poll without it. It is also a parameter of the address,
    /// `listen_url`, percent-encoded.
    ///
    /// On SQLite it does nothing.
    ///
    /// # Errors
    /// If it is no address of Postgres.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub fn listen_url(self, url: &str) -> Result<Self> {
        #[cfg(feature = "postgres")]
        {
            let direct = direct(url.trim())?;
            Ok(self.with_pooler(|pooler| pooler.listen_url = Some(direct)))
        }
        #[cfg(not(feature = "postgres"))]
        Ok(self)
    }

    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    fn with_pooler(self, change: impl FnOnce(&mut Pooler)) -> Self {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres {
                url, pool, pooler, ..
            } => {
                let mut changed = Pooler::new(pooler.stated, pooler.listen_url.clone());
                change(&mut changed);
                Database {
                    inner: Arc::new(postgres_at(url.clone(), pool.max_size(), changed)),
                    ..self
                }
            }
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { .. } => self,
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => self,
        }
    }

    /// Returns what is known of the pooler. SQLite has none.
    #[doc(hidden)]
    pub fn pooler(&self) -> Option<&Pooler> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { pooler, .. } => Some(pooler),
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { .. } => None,
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => None,
        }
    }

    /// Returns whether workers hear of new jobs, as far as is known; otherwise they poll.
    #[doc(hidden)]
    pub fn can_listen(&self) -> bool {
        self.pooler().is_none_or(Pooler::can_listen)
    }

    /// Opens a listener for new work, also on a channel of its own.
    pub(crate) fn listen(&self, channel: Option<&str>) -> Result<Listener> {
        let channels: Vec<&str> = channel.into_iter().chain([OF_ALL]).collect();
        self.listen_on(&channels)
    }

    /// Opens a listener for notifications on these channels of Postgres, or for every commit on
    /// SQLite.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
    pub(crate) fn listen_on(&self, channels: &[&str]) -> Result<Listener> {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { url, pooler, .. } => {
                if pooler.known().is_none() {
                    // LISTEN would stay behind in a session that others get.
                    drop(self.connect()?);
                }
                if !pooler.can_listen() {
                    return Ok(Listener::Polling);
                }
                let direct = pooler.listen_url.clone();
                let url = direct.unwrap_or_else(|| from_host(url, pooler.first_host()));
                listen_postgres(&url, channels)
                    .map_err(|reason| self.refused(&without_secrets(&url), reason))
            }
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { path, .. } => sqlite::connect(path)
                .and_then(|conn| listen_sqlite(conn, path))
                .map_err(|reason| self.refused(&path.display().to_string(), reason)),
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => {
                Err(self.refused(&self.target(), ALREADY_BORROWED.to_owned()))
            }
        }
    }

    /// Returns whether new work is announced by NOTIFY, that is, whether it is Postgres.
    #[doc(hidden)]
    pub fn listens_by_notification(&self) -> bool {
        match &*self.inner {
            #[cfg(feature = "postgres")]
            DatabaseBackend::Postgres { .. } => true,
            #[cfg(feature = "sqlite")]
            DatabaseBackend::Sqlite { .. } => false,
            DatabaseBackend::Shared(_) | DatabaseBackend::Unconnected => false,
        }
    }

    /// Returns the error of a listener that cannot hear commits any more.
    pub(crate) fn listen_error(&self, reason: String) -> Error {
        self.refused(&self.target(), reason)
    }
}

// --- Immediate notice of new work ---

/// The channel on which every worker listens, for programs that know no other.
pub(crate) const OF_ALL: &str = "windlass";

/// The length of the part of a channel's name that is the same for workers that take the same jobs.
pub(crate) const GROUP: usize = 25;

/// Returns the name of a worker's own channel. Workers of the same `kind` take the same jobs.
pub(crate) fn channel(kind: u64) -> String {
    format!("{OF_ALL}_{kind:016x}_{:016x}", fastrand::u64(..))
}

/// Returns an expression, for one row, that wakes as many listening workers as there are `jobs`,
/// and one more, drawn at random from each group that takes the same jobs. If no worker listens it
/// sends nothing, because NOTIFY makes commits wait for each other.
///
/// A woken worker that cannot take all jobs wakes others, see [`pass_on`]. A worker with an old
/// heartbeat may be dead, so it comes last.
pub(crate) fn wake(jobs: &str) -> String {
    wake_some(jobs, "true")
}

fn wake_some(jobs: &str, which: &str) -> String {
    format!(
        "(SELECT count(pg_notify(w.channel, '')) FROM (SELECT coalesce(channel, '{OF_ALL}') AS channel, \
           row_number() OVER (PARTITION BY left(channel, {GROUP}) \
             ORDER BY last_heartbeat_at < {{now}} - interval '30 seconds', random()) AS place \
           FROM solid_queue_processes WHERE listening AND {which}) AS w WHERE w.place <= {jobs} + 1)"
    )
}

/// A condition: a worker listens. It costs a quarter of [`wake`], whose plan is set up even if no worker listens.
pub(crate) const IS_HEARD: &str = "EXISTS (SELECT 1 FROM solid_queue_processes WHERE listening)";

/// Wakes workers for new jobs, which are committed unless the caller has a transaction open. Then workers find them
/// anyway, so that a failure is none of the enqueue.
pub(crate) fn announce(conn: &mut Conn<'_>, jobs: usize) -> QueryResult<()> {
    let announced = notify(conn, jobs);
    match conn.is_in_transaction() {
        true => announced,
        false => Ok(()),
    }
}

/// Wakes workers for this many jobs at commit. SQLite needs none of it, as a commit itself is
/// noticed.
pub(crate) fn notify(conn: &mut Conn<'_>, jobs: usize) -> QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("SELECT {}", wake("$1")))
            .bind(i64::try_from(jobs).unwrap_or(i64::MAX).min(ALL))
            .plain()
            .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}

/// More jobs than there are workers.
const ALL: i64 = 1_000_000;

/// Wakes other workers than this process, which was woken and cannot take all the jobs there may
/// be.
pub(crate) fn pass_on(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("SELECT {}", wake_some("1", "id <> $1")))
            .bind(process_id)
            .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}

/// Waits for other connections' commits, on a connection of its own.
pub(crate) enum Listener {
    /// LISTEN, and a wait on the socket.
    #[cfg(feature = "postgres")]
    Postgres(wakeup_postgres::PostgresListener),
    /// `PRAGMA data_version`, read when the log was written.
    #[cfg(feature = "sqlite")]
    Sqlite(wakeup_sqlite::SqliteListener),
    /// Nothing: a pooler is in between, and there is no direct address.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Polling,
}

impl Listener {
    /// Waits up to `timeout`, and returns `true` if something may have changed. After an error the
    /// connection is lost; open another one.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        match self {
            #[cfg(feature = "postgres")]
            Listener::Postgres(listener) => listener.wait(timeout),
            #[cfg(feature = "sqlite")]
            Listener::Sqlite(listener) => listener.wait(timeout),
            Listener::Polling => {
                clock::nap(timeout);
                Ok(false)
            }
        }
    }
}

#[cfg(feature = "postgres")]
pub(crate) fn listen_postgres(url: &str, channels: &[&str]) -> Result<Listener, String> {
    wakeup_postgres::PostgresListener::connect(url, channels).map(Listener::Postgres)
}

#[cfg(feature = "sqlite")]
pub(crate) fn listen_sqlite(
    conn: SqliteConnection,
    path: &std::path::Path,
) -> Result<Listener, String> {
    wakeup_sqlite::SqliteListener::new(conn, path).map(Listener::Sqlite)
}
