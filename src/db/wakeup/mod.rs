//! Hearing of new work at once. A trick for latency, never for correctness:
//! whoever listens also polls.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use super::conn::Conn;
use diesel::prelude::*;
use std::time::Duration;

/// Notifies when some process listens, and does nothing otherwise, because
/// NOTIFY makes commits wait for each other. An expression for one row: where
/// there are many, it belongs into a `(SELECT ..)` of its own.
#[cfg(feature = "postgres")]
pub(super) const NOTIFY: &str = "CASE WHEN EXISTS (SELECT 1 FROM solid_queue_processes WHERE listening) \
     THEN pg_notify('windlass', '') IS NULL END";

/// Wakes, at commit, who listens. SQLite needs none: a commit is seen.
pub(super) fn notify(conn: &mut Conn<'_>) -> QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => super::sql::cached(super::sql::sql(format!("SELECT {NOTIFY}")))
            .execute(*conn)
            .map(drop),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Ok(()),
    }
}

/// Waits for others' commits on a connection of its own.
pub(crate) enum Listener {
    /// LISTEN, and a wait on the socket.
    #[cfg(feature = "postgres")]
    Postgres(postgres::Listener),
    /// `PRAGMA data_version`, looked at when the log was written.
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::Listener),
}

impl Listener {
    /// Waits up to `timeout`. True: something may have changed. An error
    /// means that the connection is lost; open another one.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        match self {
            #[cfg(feature = "postgres")]
            Listener::Postgres(listener) => listener.wait(timeout),
            #[cfg(feature = "sqlite")]
            Listener::Sqlite(listener) => listener.wait(timeout),
        }
    }
}

#[cfg(feature = "postgres")]
pub(super) fn listen_postgres(url: &str, channel: &str) -> Result<Listener, String> {
    postgres::Listener::connect(url, channel).map(Listener::Postgres)
}

#[cfg(feature = "sqlite")]
pub(super) fn listen_sqlite(
    conn: SqliteConnection,
    path: &std::path::Path,
) -> Result<Listener, String> {
    sqlite::Listener::new(conn, path).map(Listener::Sqlite)
}
