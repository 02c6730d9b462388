//! Hearing of new work at once. A trick for latency, never for correctness:
//! whoever listens also polls.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
#[cfg(feature = "postgres")]
use crate::db::conn::wakeup_postgres;
#[cfg(feature = "sqlite")]
use crate::db::conn::wakeup_sqlite;
use diesel::prelude::*;
use std::time::Duration;

/// The channel that every worker listens to, for programs that know no other.
pub(crate) const OF_ALL: &str = "windlass";

/// A channel's name up to here is the same for workers that take the same jobs.
pub(crate) const GROUP: usize = 25;

/// A channel of a worker's own. Workers of the same `kind` take the same jobs.
pub(crate) fn channel(kind: u64) -> String {
    format!("{OF_ALL}_{kind:016x}_{:016x}", fastrand::u64(..))
}

/// Wakes as many of the workers that listen as there are `jobs`, and one more,
/// drawn by lot from each group that takes the same jobs: an expression for one
/// row. Where no worker listens it notifies none, because NOTIFY makes commits
/// wait for each other.
///
/// A worker that is woken and cannot take all there is wakes others, see
/// [`pass_on`]. One whose heartbeat is old may be dead, so it comes last.
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

/// Wakes, at commit, workers for so many jobs. SQLite needs none of it: a
/// commit is seen.
pub(crate) fn notify(conn: &mut Conn<'_>, jobs: usize) -> QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("SELECT {}", wake("$1")))
            .bind(i64::try_from(jobs).unwrap_or(i64::MAX).min(ALL))
            .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}

/// More jobs than there are workers.
const ALL: i64 = 1_000_000;

/// Wakes other workers than the process that was woken and cannot take what
/// there may be.
pub(crate) fn pass_on(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("SELECT {}", wake_some("1", "id <> $1")))
            .bind(process_id)
            .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}

/// Waits for others' commits on a connection of its own.
pub(crate) enum Listener {
    /// LISTEN, and a wait on the socket.
    #[cfg(feature = "postgres")]
    Postgres(wakeup_postgres::Listener),
    /// `PRAGMA data_version`, looked at when the log was written.
    #[cfg(feature = "sqlite")]
    Sqlite(wakeup_sqlite::Listener),
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
pub(crate) fn listen_postgres(url: &str, channels: &[&str]) -> Result<Listener, String> {
    wakeup_postgres::Listener::connect(url, channels).map(Listener::Postgres)
}

#[cfg(feature = "sqlite")]
pub(crate) fn listen_sqlite(
    conn: SqliteConnection,
    path: &std::path::Path,
) -> Result<Listener, String> {
    wakeup_sqlite::Listener::new(conn, path).map(Listener::Sqlite)
}
