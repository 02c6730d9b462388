//! Pauses and resumes queues and classes.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::table::run_time::class_pauses;
use diesel::prelude::*;

/// Stops claims from a queue. Returns `false` if it was paused already, and keeps its user and
/// reason.
pub(crate) fn pause(
    conn: &mut Conn<'_>,
    queue: &str,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<bool> {
    let text = "INSERT INTO solid_queue_pauses (queue_name, paused_by, pause_reason, created_at) \
         VALUES ($1, $2, $3, {now}) ON CONFLICT (queue_name) DO NOTHING RETURNING id";
    let row: Option<Id> = Statement::new(text)
        .bind(queue)
        .bind(by)
        .bind(reason)
        .get_result(conn)
        .optional()?;
    Ok(row.is_some())
}

/// Allows claims from a queue again, and wakes sleeping workers. Returns `false` if it was not
/// paused.
pub(crate) fn resume(conn: &mut Conn<'_>, queue: &str) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let text = "DELETE FROM solid_queue_pauses WHERE queue_name = $1 RETURNING id";
        let rows: Vec<Id> = Statement::new(text).bind(queue).load(conn)?;
        if rows.is_empty() {
            return Ok(false);
        }
        crate::db::conn::listening::notify(conn, usize::MAX)?;
        Ok(true)
    })
}

/// Allows claims of a class again, and wakes sleeping workers. Returns `false` if it was not
/// paused.
pub(crate) fn resume_class(conn: &mut Conn<'_>, class: &str) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let resumed = class_pauses::delete(conn, class)?;
        if resumed {
            crate::db::conn::listening::notify(conn, usize::MAX)?;
        }
        Ok(resumed)
    })
}
