//! `windlass_waits`: jobs that wait for an event.
//!
//! Such a job is blocked under the key [`WAITS_FOR_EVENT`]. A row is of the claim that ended with the wait: only with a
//! blocked execution does it count.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, Lossy, id_list, job_ids, micros};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::new_row::WAITS_FOR_EVENT;
use crate::db::table::semaphores::NEVER_EXPIRES;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text, Timestamp};
use std::time::Duration;

/// A wait to insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewWait<'w> {
    pub(crate) job_id: i64,
    pub(crate) claim_id: i64,
    pub(crate) step: &'w str,
    pub(crate) event: &'w str,
    pub(crate) timeout: Duration,
}

/// Lets jobs wait, whose claims the caller has ended. An execution that exists already, inserted by another program, does
/// not fail the rest.
pub(crate) fn park_for_events(conn: &mut Conn<'_>, waits: &[NewWait<'_>]) -> QueryResult<()> {
    let jobs: Vec<i64> = waits.iter().map(|wait| wait.job_id).collect();
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, $1, {{time '{NEVER_EXPIRES}'}}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $2}} ORDER BY id ON CONFLICT (job_id) DO NOTHING"
    );
    Statement::new(text)
        .bind(WAITS_FOR_EVENT)
        .bind(id_list(&jobs))
        .execute(conn)?;
    let input = InputRows {
        names: ["job_id", "claim_id", "step", "event_name", "timeout"],
        rows: waits.iter().map(NewWait::row).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
         SELECT input.job_id, input.claim_id, input.step, input.event_name, {{later input.timeout}}, {{now}} \
         FROM {} WHERE true ORDER BY 1 ON CONFLICT (job_id) DO UPDATE SET claim_id = excluded.claim_id, \
           step = excluded.step, event_name = excluded.event_name, timeout_at = excluded.timeout_at, \
           created_at = excluded.created_at",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

impl<'w> NewWait<'w> {
    fn row(&self) -> [crate::db::conn::statement::Param<'w>; 5] {
        [
            self.job_id.into(),
            self.claim_id.into(),
            self.step.into(),
            self.event.into(),
            micros(self.timeout).into(),
        ]
    }
}

/// Locks the executions of jobs that wait for an event, without those that other transactions have locked.
pub(crate) fn lock_free(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2 ORDER BY b.id + 0 {lock skip of b}";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(WAITS_FOR_EVENT)
        .load(conn)
        .map(job_ids)
}

/// Returns those of the jobs that wait for an event.
pub(crate) fn parked_jobs(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .bind(WAITS_FOR_EVENT)
        .load(conn)
        .map(job_ids)
}

/// Records the steps of those of the jobs whose waits have ended, with the payloads of their events, and returns these jobs.
/// The caller has locked their executions. The event counts, even if it came late.
///
/// One statement decides and records: an event that is cleared beside it is there for both, or for none.
pub(crate) fn record_ended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "INSERT INTO windlass_steps (job_id, name, value, created_at) \
         SELECT w.job_id, w.step, coalesce('[' || e.payload || ']', '{}'), {{now}} \
         FROM windlass_waits w LEFT JOIN windlass_events e ON e.name = w.event_name \
         WHERE w.job_id IN {{in $1}} AND (e.name IS NOT NULL OR w.timeout_at <= {{now}}) ORDER BY w.job_id \
         ON CONFLICT (job_id, name) DO UPDATE SET name = excluded.name RETURNING job_id",
        crate::db::model::outcome::TIMED_OUT
    );
    Statement::new(text)
        .bind(id_list(jobs))
        .load(conn)
        .map(job_ids)
}

/// Deletes the waits of jobs.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM windlass_waits WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// Returns up to `most` jobs that wait for an event.
pub(crate) fn of_event(conn: &mut Conn<'_>, event: &str, most: usize) -> QueryResult<Vec<i64>> {
    let text = "SELECT job_id FROM windlass_waits WHERE event_name = $1 LIMIT $2";
    let rows: Vec<Execution> = Statement::new(text)
        .bind(event)
        .bind(most as i64)
        .load(conn)?;
    Ok(job_ids(rows))
}

/// Locks the executions of up to `most` jobs that wait for an event, without those that other transactions have locked, and
/// returns the jobs.
pub(crate) fn lock_of_event(
    conn: &mut Conn<'_>,
    event: &str,
    most: usize,
) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id FROM windlass_waits w JOIN solid_queue_blocked_executions b ON b.job_id = w.job_id \
         WHERE w.event_name = $1 AND b.concurrency_key || '' = $2 LIMIT $3 {lock skip of b}";
    Statement::new(text)
        .uncached()
        .bind(event)
        .bind(WAITS_FOR_EVENT)
        .bind(most as i64)
        .load(conn)
        .map(job_ids)
}

/// The event that a job waits for.
#[derive(Debug, QueryableByName)]
pub(crate) struct AwaitedEvent {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) event_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) step: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) timeout_at: Option<NaiveDateTime>,
}

/// Returns the event that a blocked job waits for, if it waits for one.
pub(crate) fn awaited_event(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<AwaitedEvent>> {
    let text = "SELECT w.event_name, w.step, {moment w.timeout_at} AS timeout_at FROM windlass_waits w \
         JOIN solid_queue_blocked_executions b ON b.job_id = w.job_id AND b.concurrency_key || '' = $2 WHERE w.job_id = $1";
    Statement::new(text)
        .uncached()
        .bind(job)
        .bind(WAITS_FOR_EVENT)
        .get_result(conn)
        .optional()
}

/// A wait whose time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub(crate) struct LateWait {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
}

/// Returns up to `most` waits whose time has passed, the earliest first.
pub(crate) fn late(conn: &mut Conn<'_>, most: usize) -> QueryResult<Vec<LateWait>> {
    let text = "SELECT job_id, claim_id FROM windlass_waits WHERE timeout_at <= {now} ORDER BY timeout_at LIMIT $1";
    Statement::new(text).bind(most as i64).load(conn)
}

#[derive(QueryableByName)]
struct UntilTimeout {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// Returns how long until the next wait times out, by the database's clock.
pub(crate) fn next_timeout(conn: &mut Conn<'_>) -> QueryResult<Option<Duration>> {
    let seconds = conn.seconds("{now}", "{moment min(timeout_at)}");
    let text = format!("SELECT {seconds} AS seconds FROM windlass_waits");
    let wait: UntilTimeout = Statement::new(text).get_result(conn)?;
    let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
    Ok(wait.seconds.map(time))
}

/// Deletes those of the waits whose jobs are not blocked: another program has moved them. A wait that has come since for
/// the same job is of another claim, and stays.
pub(crate) fn delete_strays(conn: &mut Conn<'_>, waits: &[LateWait]) -> QueryResult<usize> {
    let input = InputRows {
        names: ["job_id", "claim_id"],
        rows: waits
            .iter()
            .map(|wait| [wait.job_id.into(), wait.claim_id.into()])
            .collect(),
    };
    let text = format!(
        "DELETE FROM windlass_waits WHERE (job_id, claim_id) IN (SELECT input.job_id, input.claim_id FROM {})",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text)
        .uncached()
        .bind_all(params)
        .changes(conn)
}
