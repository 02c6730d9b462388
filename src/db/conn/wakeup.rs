//! Immediate notice of new work. It lowers latency and is never needed for correctness: a listener
//! also polls.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
#[cfg(feature = "postgres")]
use crate::db::conn::wakeup_postgres;
#[cfg(feature = "sqlite")]
use crate::db::conn::wakeup_sqlite;
use diesel::prelude::*;
use std::time::Duration;

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

/// Wakes workers for this many jobs at commit. SQLite needs none of it, as a commit itself is
/// noticed.
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
