//! `solid_queue_recurring_executions`: firing the ticks of recurring tasks.
//!
//! A tick is fired in one transaction: the task's row is locked and must be as
//! it was when the ticks were computed, its `next_run_at` moves past them, and
//! their jobs come into being. So a tick is fired once, by whichever scheduler
//! comes first; one that dies has fired it or not. The rows here, unique by
//! task and time, say the same again, and to a Rails app too; but they go with
//! their jobs, and `next_run_at` does not.

use super::conn::{Conn, on};
use super::jobs::{self, NewRow, timestamp};
use super::recurring::Row;
use super::sql::{cached, id_list, sql};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What becomes of a tick while the task's job before it has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// It is fired: jobs of the task may run at the same time. The default.
    #[default]
    Allow,
    /// It is dropped.
    Skip,
    /// It waits for the end of that job. Only one waits: the latest.
    QueueOne,
}

/// Ticks of one task, to be fired together.
#[derive(Debug)]
pub(crate) struct Firing<'a> {
    /// As it was when the ticks were computed.
    pub(crate) task: &'a Row,
    /// With their jobs, in order; one that waited comes first.
    pub(crate) ticks: &'a [(NaiveDateTime, NewRow)],
    /// The first tick after those, and after what is not fired at all.
    pub(crate) next_run_at: NaiveDateTime,
    pub(crate) overlap: Overlap,
}

/// What firing came to.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    /// Ticks that have a job now.
    pub(crate) jobs: Vec<(NaiveDateTime, i64)>,
    /// Ticks that were dropped for the job before them.
    pub(crate) dropped: Vec<NaiveDateTime>,
    /// The tick that waits for the job before it.
    pub(crate) queued: Option<NaiveDateTime>,
}

/// For how long it can be seen which ticks had a job.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Fires ticks. `None`: somebody else is at the task, or has changed it.
pub(crate) fn fire(conn: &mut Conn<'_>, firing: &Firing<'_>) -> QueryResult<Option<Fired>> {
    conn.transaction(|conn| {
        let Some(open) = lock(conn, firing.task)? else {
            return Ok(None);
        };
        let mut open = match firing.overlap {
            Overlap::Allow => Vec::new(),
            _ => unended(conn, &open)?,
        };
        let mut fired = Fired::default();
        for (tick, job) in firing.ticks {
            match firing.overlap {
                Overlap::Skip if !open.is_empty() => fired.dropped.push(*tick),
                Overlap::QueueOne if !open.is_empty() => {
                    fired.dropped.extend(fired.queued.replace(*tick));
                }
                _ => {
                    if let Some(id) = insert(conn, &firing.task.key, *tick, job)? {
                        open.push(id);
                        fired.jobs.push((*tick, id));
                    }
                }
            }
        }
        let open = match firing.overlap {
            Overlap::Allow => None,
            _ => Some(id_list(&open)),
        };
        let waits_on = fired.jobs.is_empty() && fired.queued == firing.task.queued_run_at;
        if waits_on && firing.task.next_run_at == Some(firing.next_run_at) {
            return Ok(Some(fired));
        }
        move_on(conn, firing, &fired, open)?;
        delete_old(conn, &firing.task.key)?;
        Ok(Some(fired))
    })
}

#[derive(QueryableByName)]
struct Locked {
    #[diesel(sql_type = Nullable<Text>)]
    open_jobs: Option<String>,
}

/// Locks a task that is still as it was seen, without waiting for anybody who
/// is at it, and returns the jobs that had not ended.
fn lock(conn: &mut Conn<'_>, task: &Row) -> QueryResult<Option<Vec<i64>>> {
    let text = conn.write(
        "SELECT open_jobs FROM solid_queue_recurring_tasks WHERE id = $1 AND lock_version = $2 {lock skip}",
    );
    let locked: Option<Locked> = on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(task.id)
            .bind::<BigInt, _>(task.lock_version)
    )
    .get_result(c))
    .optional()?;
    Ok(locked.map(|locked| ids(locked.open_jobs.as_deref())))
}

fn ids(list: Option<&str>) -> Vec<i64> {
    list.and_then(|list| serde_json::from_str(list).ok())
        .unwrap_or_default()
}

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Of these jobs, those that have neither finished nor failed.
fn unended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let text = conn.write(
        "SELECT id FROM solid_queue_jobs j WHERE id IN {in $1} AND finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id) ORDER BY id",
    );
    let rows: Vec<Id> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(jobs)))
        .load(c))?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Enqueues the job of a tick. `None`: the tick has had one.
fn insert(
    conn: &mut Conn<'_>,
    key: &str,
    tick: NaiveDateTime,
    job: &NewRow,
) -> QueryResult<Option<i64>> {
    let text = conn.write(
        "SELECT job_id AS id FROM solid_queue_recurring_executions WHERE task_key = $1 AND run_at = {time $2}",
    );
    let known: Option<Id> = on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(key)
            .bind::<Text, _>(timestamp(tick))
    )
    .get_result(c))
    .optional()?;
    if known.is_some() {
        return Ok(None);
    }
    let inserted = jobs::insert(conn, job)?;
    if inserted.is_new {
        let text = conn.write(
            "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
             VALUES ($1, $2, {time $3}, {now})",
        );
        on!(conn, |c| cached(
            sql(text)
                .bind::<BigInt, _>(inserted.id)
                .bind::<Text, _>(key)
                .bind::<Text, _>(timestamp(tick))
        )
        .execute(c))?;
    }
    Ok(Some(inserted.id))
}

fn move_on(
    conn: &mut Conn<'_>,
    firing: &Firing<'_>,
    fired: &Fired,
    open: Option<String>,
) -> QueryResult<()> {
    let text = conn.write(
        "UPDATE solid_queue_recurring_tasks SET next_run_at = {time $1}, last_run_at = coalesce({time $2}, last_run_at), \
         queued_run_at = {time $3}, open_jobs = $4, updated_at = {now}, lock_version = lock_version + 1 WHERE id = $5",
    );
    let last = fired.jobs.iter().map(|(tick, _)| *tick).max();
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(timestamp(firing.next_run_at))
            .bind::<Nullable<Text>, _>(last.map(timestamp))
            .bind::<Nullable<Text>, _>(fired.queued.map(timestamp))
            .bind::<Nullable<Text>, _>(open)
            .bind::<BigInt, _>(firing.task.id)
    )
    .execute(c))
}

/// Notes a job that the ticks after it must not overlap. The caller holds the
/// lock of the task.
pub(super) fn note_open(conn: &mut Conn<'_>, task: &Row, job: i64) -> QueryResult<()> {
    let mut open = unended(conn, &ids(task.open_jobs.as_deref()))?;
    open.push(job);
    // Where jobs may overlap, nobody asks, and the list stays short.
    let first = open.len().saturating_sub(1_000);
    let text = conn.write("UPDATE solid_queue_recurring_tasks SET open_jobs = $1 WHERE id = $2");
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(id_list(&open[first..]))
            .bind::<BigInt, _>(task.id)
    )
    .execute(c))
}

/// Deletes some rows of the task's oldest ticks, which nobody asks for.
fn delete_old(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    let text = conn.write(
        "DELETE FROM solid_queue_recurring_executions WHERE id IN (SELECT id FROM solid_queue_recurring_executions \
         WHERE task_key = $1 AND run_at < {later $2} ORDER BY run_at LIMIT 200)",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(key)
            .bind::<BigInt, _>(-super::scheduled::micros(KEPT))
    )
    .execute(c))
}

/// The newest ticks of a task that had a job, and their jobs' ids.
pub(crate) fn history(
    conn: &mut Conn<'_>,
    key: &str,
    count: i64,
) -> QueryResult<Vec<(NaiveDateTime, i64)>> {
    #[derive(QueryableByName)]
    struct Tick {
        #[diesel(sql_type = Timestamp)]
        run_at: NaiveDateTime,
        #[diesel(sql_type = BigInt)]
        job_id: i64,
    }
    let text = conn.write(
        "SELECT {moment run_at} AS run_at, job_id FROM solid_queue_recurring_executions WHERE task_key = $1 \
         ORDER BY run_at DESC LIMIT $2",
    );
    let ticks: Vec<Tick> = on!(conn, |c| sql(text)
        .bind::<Text, _>(key)
        .bind::<BigInt, _>(count)
        .load(c))?;
    Ok(ticks
        .into_iter()
        .map(|row| (row.run_at, row.job_id))
        .collect())
}
