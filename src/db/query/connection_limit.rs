//! How many connections a server allows.

use crate::db::conn::connection::Conn;
use diesel::prelude::*;
#[cfg(feature = "postgres")]
use diesel::sql_types::BigInt;

/// A server's room for connections.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "postgres", derive(QueryableByName))]
pub(crate) struct Room {
    /// To ordinary users, all together.
    #[cfg_attr(feature = "postgres", diesel(sql_type = BigInt))]
    pub(crate) allowed: i64,
    /// How many clients are connected to it, to whichever database.
    #[cfg_attr(feature = "postgres", diesel(sql_type = BigInt))]
    pub(crate) open: i64,
}

/// `None`: a file, which has no such limit.
pub(crate) fn room(conn: &mut Conn<'_>) -> QueryResult<Option<Room>> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => diesel::sql_query(
            "SELECT CAST(current_setting('max_connections') AS bigint) \
             - CAST(current_setting('superuser_reserved_connections') AS bigint) AS allowed, \
             (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS open",
        )
        .get_result(*conn)
        .map(Some),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Ok(None),
    }
}
