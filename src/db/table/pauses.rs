//! `solid_queue_pauses`: queues from which no jobs are claimed, and the size and latency of a
//! queue.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use std::borrow::Cow;
use std::time::Duration;

#[derive(QueryableByName)]
struct QueueLoad {
    #[diesel(sql_type = BigInt)]
    size: i64,
    #[diesel(sql_type = Nullable<Double>)]
    latency: Option<f64>,
}

#[derive(QueryableByName)]
struct PausedQueue {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
}

/// Returns the names of the paused queues, sorted.
pub fn names(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let text = "SELECT queue_name FROM solid_queue_pauses";
    let names: Vec<PausedQueue> = Statement::new(text).uncached().load(conn)?;
    let mut names: Vec<String> = names.into_iter().map(|row| row.queue_name).collect();
    names.sort_unstable();
    Ok(names)
}

/// A paused queue, and why it is.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct PauseOfQueue {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub queue_name: String,
    /// The user who paused it, if known.
    #[diesel(sql_type = Nullable<Text>)]
    pub paused_by: Option<String>,
    /// The reason, if one was given.
    #[diesel(sql_type = Nullable<Text>)]
    pub pause_reason: Option<String>,
    /// Seconds since it was paused.
    #[diesel(sql_type = Double)]
    pub paused_seconds: f64,
}

fn columns(conn: &Conn<'_>) -> String {
    let age = crate::db::conn::connection::age(conn, "created_at");
    format!("queue_name, paused_by, pause_reason, coalesce({age}, 0) AS paused_seconds")
}

/// Returns up to `limit` paused queues, by name.
pub fn list_pauses(conn: &mut Conn<'_>, limit: i64) -> QueryResult<Vec<PauseOfQueue>> {
    let columns = columns(conn);
    let text = format!("SELECT {columns} FROM solid_queue_pauses ORDER BY queue_name LIMIT $1");
    Statement::new(text).bind(limit).load(conn)
}

/// Returns the pause of a queue. `None` if it is not paused.
pub fn pause_of_queue(conn: &mut Conn<'_>, queue: &str) -> QueryResult<Option<PauseOfQueue>> {
    let columns = columns(conn);
    let text = format!("SELECT {columns} FROM solid_queue_pauses WHERE queue_name = $1");
    Statement::new(text).bind(queue).get_result(conn).optional()
}

/// Returns how many jobs of a queue are ready.
pub(crate) fn size(conn: &mut Conn<'_>, queue: &str) -> QueryResult<u64> {
    let text = "SELECT count(*) AS size, CAST(NULL AS double precision) AS latency FROM solid_queue_ready_executions WHERE queue_name = $1";
    fill(conn, text, queue).map(|fill| u64::try_from(fill.size).unwrap_or(0))
}

/// Returns how long the oldest ready job of a queue has been ready.
pub(crate) fn latency(conn: &mut Conn<'_>, queue: &str) -> QueryResult<Option<Duration>> {
    let age = crate::db::conn::connection::age(conn, "min(created_at)");
    let text = format!(
        "SELECT CAST(0 AS bigint) AS size, {age} AS latency FROM solid_queue_ready_executions WHERE queue_name = $1"
    );
    let latency = fill(conn, text, queue)?.latency;
    // Negative after the clock was set back.
    Ok(latency.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}

fn fill(
    conn: &mut Conn<'_>,
    text: impl Into<Cow<'static, str>>,
    queue: &str,
) -> QueryResult<QueueLoad> {
    Statement::new(text).bind(queue).get_result(conn)
}
