//! Pauses and resumes queues.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{cached, sql};
use crate::db::table::pauses::Id;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};

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
        crate::db::conn::wakeup::notify(conn, usize::MAX)?;
        Ok(true)
    })
}
