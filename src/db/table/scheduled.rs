//! `solid_queue_scheduled_executions`: jobs that wait for their time.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::micros;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{Double, Nullable};
use std::time::Duration;

/// A job to schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DelayedJob {
    pub(crate) job_id: i64,
    pub(crate) delay: Duration,
}

/// Schedules jobs, each after its delay, at most a thousand years. An execution that exists
/// already, inserted by another program, does not fail the rest.
pub(crate) fn insert_each(conn: &mut Conn<'_>, jobs: &[DelayedJob]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT j.id, j.queue_name, j.priority, {later CAST(value ->> 1 AS bigint)}, {now} \
         FROM {rows $1} CROSS JOIN solid_queue_jobs j WHERE j.id = CAST(value ->> 0 AS bigint) ORDER BY j.id + 0 \
         ON CONFLICT (job_id) DO UPDATE SET scheduled_at = excluded.scheduled_at";
    let rows: Vec<(i64, i64)> = jobs
        .iter()
        .map(|job| (job.job_id, micros(job.delay)))
        .collect();
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    Statement::new(text).bind(&rows).execute(conn)
}

#[derive(QueryableByName)]
struct UntilDue {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// Returns how long until the next execution is due, by the database's clock.
pub(crate) fn next_due(conn: &mut Conn<'_>) -> QueryResult<Option<Duration>> {
    let seconds = conn.seconds("{now}", "{moment min(scheduled_at)}");
    let text = format!("SELECT {seconds} AS seconds FROM solid_queue_scheduled_executions");
    let wait: UntilDue = Statement::new(text).get_result(conn)?;
    Ok(wait
        .seconds
        .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}
