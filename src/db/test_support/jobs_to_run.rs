//! What the drain of a test does beside the transitions of a worker.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, Lossy, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::wait_keys::waits_for_others_sql;
use crate::db::table::ready;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};

/// Makes the jobs ready that wait for a slot of their concurrency key, as if they had no limit. Jobs
/// that wait for another one with their unique id, or for a batch, stay.
pub(crate) fn ignore_limits(conn: &mut Conn<'_>) -> QueryResult<()> {
    conn.transaction(|conn| {
        let text = format!(
            "DELETE FROM solid_queue_blocked_executions WHERE NOT {} RETURNING job_id",
            waits_for_others_sql("concurrency_key")
        );
        let blocked: Vec<Execution> = Statement::new(text).unkept().load(conn)?;
        ready::insert(conn, &job_ids(blocked))
    })
}

/// A job that is scheduled for later, on a queue that is not paused.
#[derive(Debug, QueryableByName)]
pub(crate) struct LaterJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    /// Whether an earlier run of it failed or crashed.
    #[diesel(sql_type = Bool)]
    pub(crate) is_retry: bool,
}

/// Returns the jobs that are scheduled for later, the earliest first.
pub(crate) fn later(conn: &mut Conn<'_>) -> QueryResult<Vec<LaterJob>> {
    let text = "SELECT j.id, j.class_name, j.queue_name, j.attempts > 0 OR j.crash_count > 0 AS is_retry \
         FROM solid_queue_scheduled_executions s JOIN solid_queue_jobs j ON j.id = s.job_id \
         WHERE NOT EXISTS (SELECT 1 FROM solid_queue_pauses p WHERE p.queue_name = j.queue_name) \
         ORDER BY s.scheduled_at, s.job_id";
    Statement::new(text).unkept().load(conn)
}

/// Makes a scheduled job due now.
pub(crate) fn bring_forward(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = "UPDATE solid_queue_scheduled_executions SET scheduled_at = {now} WHERE job_id = $1";
    Statement::new(text).bind(job).unkept().execute(conn)
}
