//! How many connections a server allows.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// The connection limit of a server.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct ConnectionLimit {
    /// For ordinary users, all together.
    #[diesel(sql_type = BigInt)]
    pub(crate) allowed: i64,
    /// How many clients are connected to the server, to any of its databases.
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
        .unkept()
        .get_result(conn)
        .map(Some),
        Dialect::Sqlite => Ok(None),
    }
}
