//! The ticks of a recurring task with the states of their jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};

/// A tick, its job and the name of its job's state.
#[derive(Debug, QueryableByName)]
pub(crate) struct TickRow {
    #[diesel(sql_type = Timestamp)]
    pub(crate) run_at: NaiveDateTime,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) state: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
}

/// Returns the newest ticks of a task that had a job.
pub(crate) fn list_ticks(conn: &mut Conn<'_>, key: &str, count: i64) -> QueryResult<Vec<TickRow>> {
    let has = |table: &str| {
        format!(
            "WHEN EXISTS (SELECT 1 FROM solid_queue_{table}_executions x WHERE x.job_id = newest.job_id) THEN '{table}'"
        )
    };
    let waits = ["claimed", "scheduled", "blocked", "ready", "failed"].map(has);
    let text = format!(
        "WITH newest AS MATERIALIZED (SELECT run_at, job_id FROM solid_queue_recurring_executions \
           WHERE task_key = $1 ORDER BY run_at DESC LIMIT $2) \
         SELECT {{moment newest.run_at}} AS run_at, newest.job_id, {{moment j.finished_at}} AS finished_at, \
         CASE {} ELSE coalesce((SELECT a.outcome FROM windlass_attempts a WHERE a.job_id = newest.job_id \
           AND coalesce(a.outcome, '') IN ('cancelled', 'discarded') ORDER BY a.id DESC LIMIT 1), 'finished') END AS state \
         FROM newest JOIN solid_queue_jobs j ON j.id = newest.job_id ORDER BY newest.run_at DESC",
        waits.join(" ")
    );
    Statement::new(text)
        .bind(key)
        .bind(count)
        .uncached()
        .load(conn)
}
