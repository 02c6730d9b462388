//! `solid_queue_scheduled_executions`: jobs that wait for their time.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, micros};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::new_row::ORDERED;
use crate::db::table::wanted_keys::{self, ConcurrencyKey, keys};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Integer, Nullable, Text};
use std::time::Duration;

/// A job to schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DelayedJob {
    pub(crate) job_id: i64,
    pub(crate) delay: Duration,
    /// True if a job of an ordered key keeps the slot that it had.
    pub(crate) keeps_slot: bool,
}

/// Schedules jobs, each after its delay, at most a thousand years. An execution that exists
/// already, inserted by another program, does not fail the rest.
pub(crate) fn insert_each(conn: &mut Conn<'_>, jobs: &[DelayedJob]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let input = InputRows {
        names: ["job_id", "delay", "keeps_slot"],
        rows: jobs
            .iter()
            .map(|job| {
                [
                    job.job_id.into(),
                    micros(job.delay).into(),
                    job.keeps_slot.into(),
                ]
            })
            .collect(),
    };
    let text = format!(
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at, concurrency_key) \
         SELECT j.id, j.queue_name, j.priority, {{later input.delay}}, {{now}}, \
           CASE WHEN input.keeps_slot AND j.concurrency_conflict = '{ORDERED}' THEN j.concurrency_key END \
         FROM {} CROSS JOIN solid_queue_jobs j WHERE j.id = input.job_id ORDER BY j.id + 0 \
         ON CONFLICT (job_id) DO UPDATE SET scheduled_at = excluded.scheduled_at, \
           concurrency_key = excluded.concurrency_key",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

/// Deletes the scheduled executions of jobs, which frees the slots that jobs of ordered keys kept.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_scheduled_executions WHERE job_id IN {in $1} RETURNING concurrency_key";
    let rows: Vec<ConcurrencyKey> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    wanted_keys::request_promotion(conn, &keys(rows))
}

/// A deleted scheduled execution. Times that another program may have stored are texts.
#[derive(Debug, QueryableByName)]
pub(crate) struct TakenSchedule {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Text)]
    scheduled_at: String,
    #[diesel(sql_type = Text)]
    created_at: String,
    #[diesel(sql_type = Nullable<Text>)]
    concurrency_key: Option<String>,
}

/// Deletes the scheduled executions of jobs, which the caller inserts again.
pub(crate) fn take_rows(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<TakenSchedule>> {
    let text = "DELETE FROM solid_queue_scheduled_executions WHERE job_id IN {in $1} RETURNING job_id, priority, \
         CAST(scheduled_at AS text) AS scheduled_at, CAST(created_at AS text) AS created_at, concurrency_key";
    Statement::new(text).bind(id_list(jobs)).load(conn)
}

/// Inserts executions that were deleted, on another queue.
pub(crate) fn put_rows(
    conn: &mut Conn<'_>,
    rows: &[TakenSchedule],
    queue: &str,
) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let row = |row: &'_ TakenSchedule| {
        [
            row.job_id.into(),
            i64::from(row.priority).into(),
            row.scheduled_at.clone().into(),
            row.created_at.clone().into(),
            row.concurrency_key.clone().into(),
            queue.to_owned().into(),
        ]
    };
    let input = InputRows {
        names: [
            "job_id",
            "priority",
            "scheduled_at",
            "created_at",
            "concurrency_key",
            "queue_name",
        ],
        rows: rows.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at, concurrency_key) \
         SELECT input.job_id, input.queue_name, input.priority, {{time input.scheduled_at}}, {{time input.created_at}}, \
           input.concurrency_key FROM {} ORDER BY input.job_id",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
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
