//! `solid_queue_recurring_executions`: the ticks of recurring tasks that were fired.
//!
//! A tick is fired in one transaction: the task's row is locked and must be unchanged since the
//! ticks were computed, its `next_run_at` moves past them, and their jobs are inserted. So a tick
//! is fired once, by the first scheduler; one that dies has fired it or not. The rows here are
//! unique by task and time, and guard against a second run as well, also by a Rails app; but they
//! are deleted with their jobs, and `next_run_at` is not.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Id, id_list, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::recurring::{Fired, Firing, RecurringTaskRow};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};
use std::time::Duration;

/// How long fired ticks are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(QueryableByName)]
struct LockedTask {
    #[diesel(sql_type = Nullable<Text>)]
    open_jobs: Option<String>,
}

/// Locks a task if it is unchanged and not locked by another transaction, and returns the jobs of
/// it that had not ended.
pub(crate) fn lock(conn: &mut Conn<'_>, task: &RecurringTaskRow) -> QueryResult<Option<Vec<i64>>> {
    let text = "SELECT open_jobs FROM solid_queue_recurring_tasks WHERE id = $1 AND lock_version = $2 {lock skip}";
    let locked: Option<LockedTask> = Statement::new(text)
        .bind(task.id)
        .bind(task.lock_version)
        .get_result(conn)
        .optional()?;
    Ok(locked.map(|locked| ids(locked.open_jobs.as_deref())))
}

fn ids(list: Option<&str>) -> Vec<i64> {
    list.and_then(|list| serde_json::from_str(list).ok())
        .unwrap_or_default()
}

/// Returns those of the jobs that have neither finished nor failed.
pub(crate) fn unended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let text = "SELECT id FROM solid_queue_jobs j WHERE id IN {in $1} AND finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id) ORDER BY id";
    let rows: Vec<Id> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

pub(crate) fn move_on(
    conn: &mut Conn<'_>,
    firing: &Firing<'_>,
    fired: &Fired,
    open: Option<String>,
) -> QueryResult<()> {
    let text = "UPDATE solid_queue_recurring_tasks SET next_run_at = {time $1}, last_run_at = coalesce({time $2}, last_run_at), \
         queued_run_at = {time $3}, open_jobs = $4, updated_at = {now}, lock_version = lock_version + 1 WHERE id = $5";
    let last = fired.jobs.iter().map(|tick| tick.at).max();
    Statement::new(text)
        .bind(timestamp(firing.next_run_at))
        .bind(last.map(timestamp))
        .bind(fired.queued.map(timestamp))
        .bind(open)
        .bind(firing.task.id)
        .execute(conn)
}

/// Notes a job that later ticks must not overlap. The caller holds the lock of the task.
pub(crate) fn note_open(conn: &mut Conn<'_>, task: &RecurringTaskRow, job: i64) -> QueryResult<()> {
    let mut open = unended(conn, &ids(task.open_jobs.as_deref()))?;
    open.push(job);
    // If jobs may overlap, the list is never read, and stays short.
    let first = open.len().saturating_sub(1_000);
    let text = "UPDATE solid_queue_recurring_tasks SET open_jobs = $1 WHERE id = $2";
    Statement::new(text)
        .bind(id_list(&open[first..]))
        .bind(task.id)
        .execute(conn)
}

/// Deletes some rows of the task's oldest ticks, which are not used any more.
pub(crate) fn delete_old(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_recurring_executions WHERE id IN (SELECT id FROM solid_queue_recurring_executions \
         WHERE task_key = $1 AND run_at < {later $2} ORDER BY run_at LIMIT 200)";
    Statement::new(text)
        .bind(key)
        .bind(-crate::db::conn::sql::micros(KEPT))
        .execute(conn)
}

/// A tick and its job.
#[derive(Debug, QueryableByName)]
pub(crate) struct FiredTick {
    #[diesel(sql_type = Timestamp)]
    pub(crate) run_at: NaiveDateTime,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
}

/// Returns the newest ticks of a task that had a job, with their jobs' ids.
pub(crate) fn history(conn: &mut Conn<'_>, key: &str, count: i64) -> QueryResult<Vec<FiredTick>> {
    let text = "SELECT {moment run_at} AS run_at, job_id FROM solid_queue_recurring_executions WHERE task_key = $1 \
         ORDER BY run_at DESC LIMIT $2";
    Statement::new(text)
        .bind(key)
        .bind(count)
        .unkept()
        .load(conn)
}
