//! `solid_queue_recurring_executions`: the ticks of recurring tasks that were fired.
//!
//! A tick is fired in one transaction: the task's row is locked and must be unchanged since the
//! ticks were computed, its `next_run_at` moves past them, and their jobs are inserted. So a tick
//! is fired once, by the first scheduler; one that dies has fired it or not. The rows here are
//! unique by task and time, and guard against a second run as well, also by a Rails app; but they
//! are deleted with their jobs, and `next_run_at` is not.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::recurring::{Fired, Firing, RecurringTaskRow};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The time for which fired ticks are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The jobs that had not ended, by the id of their task.
pub(crate) type OpenJobs = HashMap<i64, Vec<i64>>;

#[derive(QueryableByName)]
struct LockedTask {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    open_jobs: Option<String>,
}

/// Locks those of the tasks that are unchanged and not locked by another transaction, and returns
/// their jobs that had not ended.
pub(crate) fn lock(conn: &mut Conn<'_>, tasks: &[&RecurringTaskRow]) -> QueryResult<OpenJobs> {
    let text = "SELECT t.id, t.open_jobs FROM solid_queue_recurring_tasks t \
         JOIN (SELECT CAST(value ->> 0 AS bigint) AS id, CAST(value ->> 1 AS bigint) AS version FROM {rows $1}) AS seen \
         ON seen.id = t.id AND seen.version = t.row_version ORDER BY t.id + 0 {lock skip of t}";
    let seen: Vec<(i64, i64)> = tasks
        .iter()
        .map(|task| (task.id, task.row_version))
        .collect();
    let seen = serde_json::to_string(&seen).unwrap_or_default();
    let locked: Vec<LockedTask> = Statement::new(text).bind(seen).load(conn)?;
    let open = locked.into_iter();
    Ok(open
        .map(|task| (task.id, ids(task.open_jobs.as_deref())))
        .collect())
}

/// A tick of a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, QueryableByName)]
pub(crate) struct TickOf {
    #[diesel(sql_type = Text)]
    task_key: String,
    /// As in a timestamp for both databases.
    #[diesel(sql_type = Text)]
    run_at: String,
}

impl TickOf {
    pub(crate) fn new(task: &RecurringTaskRow, at: NaiveDateTime) -> Self {
        TickOf {
            task_key: task.key.clone(),
            run_at: timestamp(at),
        }
    }
}

/// Returns those of the ticks that have a job.
pub(crate) fn known(conn: &mut Conn<'_>, ticks: &[TickOf]) -> QueryResult<HashSet<TickOf>> {
    let text = "SELECT e.task_key, wanted.run_at FROM \
         (SELECT value ->> 'task_key' AS key, value ->> 'run_at' AS run_at FROM {rows $1}) AS wanted \
         JOIN solid_queue_recurring_executions e ON e.task_key = wanted.key AND e.run_at = {time wanted.run_at}";
    let ticks = serde_json::to_string(ticks).unwrap_or_default();
    let known: Vec<TickOf> = Statement::new(text).bind(ticks).load(conn)?;
    Ok(known.into_iter().collect())
}

/// A row to insert: a tick and its job.
#[derive(Debug, Serialize)]
pub(crate) struct NewExecution {
    job_id: i64,
    #[serde(flatten)]
    tick: TickOf,
}

impl NewExecution {
    pub(crate) fn new(job_id: i64, task: &RecurringTaskRow, at: NaiveDateTime) -> Self {
        NewExecution {
            job_id,
            tick: TickOf::new(task, at),
        }
    }
}

pub(crate) fn insert_recurring_executions(
    conn: &mut Conn<'_>,
    new: &[NewExecution],
) -> QueryResult<()> {
    if new.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
         SELECT CAST(value ->> 'job_id' AS bigint), value ->> 'task_key', {time value ->> 'run_at'}, {now} FROM {rows $1}";
    let new = serde_json::to_string(new).unwrap_or_default();
    Statement::new(text).bind(new).execute(conn)
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

/// The changes to the row of a task whose ticks were fired.
#[derive(Debug, Serialize)]
pub(crate) struct FiredTask {
    id: i64,
    next: String,
    last: Option<String>,
    queued: Option<String>,
    open: Option<String>,
}

impl FiredTask {
    pub(crate) fn new(firing: &Firing<'_>, fired: &Fired, open: Option<String>) -> Self {
        let last = fired.jobs.iter().map(|tick| tick.at).max();
        FiredTask {
            id: firing.task.id,
            next: timestamp(firing.next_run_at),
            last: last.map(timestamp),
            queued: fired.queued.map(timestamp),
            open,
        }
    }
}

/// Moves the next ticks of tasks. The caller holds their locks.
pub(crate) fn move_on(conn: &mut Conn<'_>, tasks: &[FiredTask]) -> QueryResult<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let text = "UPDATE solid_queue_recurring_tasks SET next_run_at = {time fired.next}, \
         last_run_at = coalesce({time fired.last}, last_run_at), queued_run_at = {time fired.queued}, \
         open_jobs = fired.open, updated_at = {now}, row_version = row_version + 1 \
         FROM (SELECT CAST(value ->> 'id' AS bigint) AS id, value ->> 'next' AS next, value ->> 'last' AS last, \
           value ->> 'queued' AS queued, value ->> 'open' AS open FROM {rows $1}) AS fired \
         WHERE solid_queue_recurring_tasks.id = fired.id";
    let tasks = serde_json::to_string(tasks).unwrap_or_default();
    Statement::new(text).bind(tasks).execute(conn)
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

/// Deletes some rows of the oldest ticks of tasks, which are not used any more.
pub(crate) fn delete_old(conn: &mut Conn<'_>, keys: &[&str]) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM solid_queue_recurring_executions WHERE id IN (SELECT e.id FROM \
           (SELECT value ->> 0 AS key FROM {rows $1}) AS fired \
           CROSS JOIN solid_queue_recurring_executions e WHERE e.task_key = fired.key AND e.run_at < {later $2} LIMIT 1000)";
    let keys: Vec<[&str; 1]> = keys.iter().map(|key| [*key]).collect();
    Statement::new(text)
        .bind(serde_json::to_string(&keys).unwrap_or_default())
        .bind(-crate::db::conn::dialect::micros(KEPT))
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
        .uncached()
        .load(conn)
}
