//! `solid_queue_pauses`: queues of which nobody takes jobs, and how full and
//! how late a queue is.

use super::conn::{Conn, on};
use super::sql::{cached, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use std::time::Duration;

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    #[expect(dead_code, reason = "that there is a row is all")]
    id: i64,
}

/// Stops claims from a queue. False: it was paused already, and stays so by
/// whom and why it was.
pub(crate) fn pause(
    conn: &mut Conn<'_>,
    queue: &str,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<bool> {
    let text = conn.write(
        "INSERT INTO solid_queue_pauses (queue_name, paused_by, pause_reason, created_at) \
         VALUES ($1, $2, $3, {now}) ON CONFLICT (queue_name) DO NOTHING RETURNING id",
    );
    let row: Option<Id> = on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(queue)
            .bind::<Nullable<Text>, _>(by)
            .bind::<Nullable<Text>, _>(reason)
    )
    .get_result(c))
    .optional()?;
    Ok(row.is_some())
}

/// Allows claims from a queue again, and wakes who sleeps. False: it was not
/// paused.
pub(crate) fn resume(conn: &mut Conn<'_>, queue: &str) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let text = conn.write("DELETE FROM solid_queue_pauses WHERE queue_name = $1 RETURNING id");
        let rows: Vec<Id> = on!(conn, |c| cached(sql(text).bind::<Text, _>(queue)).load(c))?;
        if rows.is_empty() {
            return Ok(false);
        }
        super::wakeup::notify(conn, usize::MAX)?;
        Ok(true)
    })
}

#[derive(QueryableByName)]
struct Fill {
    #[diesel(sql_type = BigInt)]
    size: i64,
    #[diesel(sql_type = Nullable<Double>)]
    latency: Option<f64>,
}

/// How many jobs of a queue are ready.
pub(crate) fn size(conn: &mut Conn<'_>, queue: &str) -> QueryResult<u64> {
    let text = conn.write(
        "SELECT count(*) AS size, CAST(NULL AS double precision) AS latency FROM solid_queue_ready_executions WHERE queue_name = $1",
    );
    fill(conn, text, queue).map(|fill| u64::try_from(fill.size).unwrap_or(0))
}

/// How long the oldest ready job of a queue has been ready.
pub(crate) fn latency(conn: &mut Conn<'_>, queue: &str) -> QueryResult<Option<Duration>> {
    let age = super::status::age(conn, "min(created_at)");
    let text = conn.write(&format!(
        "SELECT CAST(0 AS bigint) AS size, {age} AS latency FROM solid_queue_ready_executions WHERE queue_name = $1"
    ));
    let latency = fill(conn, text, queue)?.latency;
    // A clock that was set back makes it negative.
    Ok(latency.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}

fn fill(conn: &mut Conn<'_>, text: String, queue: &str) -> QueryResult<Fill> {
    on!(conn, |c| cached(sql(text).bind::<Text, _>(queue))
        .get_result(c))
}
