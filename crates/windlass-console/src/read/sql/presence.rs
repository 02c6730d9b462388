//! The presence of processes, for health checks.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::Lossy;
use windlass::internal::db::conn::statement::Statement;

/// The processes to look for. `None` means any.
#[derive(Debug, Clone, Default)]
pub(crate) struct WantedPresence {
    pub(crate) hostname: Option<String>,
    /// In any case: `worker` and `Worker` are the same.
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
}

/// A registered process.
#[derive(Debug, QueryableByName)]
pub(crate) struct Presence {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    /// Seconds since its last heartbeat.
    #[diesel(sql_type = Double)]
    pub(crate) heartbeat_seconds: f64,
    /// True if it is stopping.
    #[diesel(sql_type = Bool)]
    pub(crate) draining: bool,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
}

impl Presence {
    /// Returns whether the process was asked to claim nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        let metadata = self.metadata.as_deref().unwrap_or_default();
        let metadata: serde_json::Value = serde_json::from_str(metadata).unwrap_or_default();
        metadata["quiet"] == true
    }
}

/// Returns the processes that are meant, the one with the newest heartbeat first; at most 100.
pub(crate) fn presences(
    conn: &mut Conn<'_>,
    wanted: &WantedPresence,
) -> QueryResult<Vec<Presence>> {
    let text = format!(
        "SELECT name, coalesce({}, 0) AS heartbeat_seconds, draining, metadata FROM solid_queue_processes \
         WHERE (CAST($1 AS text) IS NULL OR hostname = $1) AND (CAST($2 AS text) IS NULL OR lower(kind) = lower($2)) \
         AND (CAST($3 AS text) IS NULL OR name = $3) ORDER BY last_heartbeat_at DESC LIMIT 100",
        age(conn, "last_heartbeat_at")
    );
    Statement::new(text)
        .bind(wanted.hostname.as_deref())
        .bind(wanted.kind.as_deref())
        .bind(wanted.name.as_deref())
        .uncached()
        .load(conn)
}

// --- The connection limit of a server ---

/// The connection limit of a server.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct ConnectionLimit {
    /// For ordinary users, all together.
    #[diesel(sql_type = BigInt)]
    pub(crate) allowed: i64,
    /// The number of clients that are connected to the server, to any of its databases.
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
}

/// Reads the limit. `None` for a file, which has none.
pub(crate) fn connection_limit(conn: &mut Conn<'_>) -> QueryResult<Option<ConnectionLimit>> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(
            "SELECT CAST(current_setting('max_connections') AS bigint) \
             - CAST(current_setting('superuser_reserved_connections') AS bigint) AS allowed, \
             (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS open",
        )
        .uncached()
        .get_result(conn)
        .map(Some),
        Dialect::Sqlite => Ok(None),
    }
}
