//! The database's time, and what the navigation of the web pages counts.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamp};

#[derive(Debug, QueryableByName)]
pub(crate) struct FrameRow {
    #[diesel(sql_type = Timestamp)]
    pub(crate) now: NaiveDateTime,
    /// Failed jobs, counted up to a limit.
    #[diesel(sql_type = BigInt)]
    pub(crate) failed: i64,
}

/// Reads the time, and counts failed jobs up to `most`.
pub(crate) fn read(conn: &mut Conn<'_>, most: i64) -> QueryResult<FrameRow> {
    Statement::new(
        "SELECT {now} AS now, (SELECT count(*) FROM \
         (SELECT id FROM solid_queue_failed_executions WHERE id > 0 ORDER BY id DESC LIMIT $1) AS counted) AS failed",
    )
    .bind(most)
    .get_result(conn)
}
