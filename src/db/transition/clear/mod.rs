//! Deletes rows whose retention has ended, a bounded batch at a time.
//!
//! Finished jobs are found by a scan of the jobs in the order of their ids. An index over
//! `finished_at` would find them at once, but would cost every job a write when it finishes. The
//! scan costs only the clearing process, and is short: it ends at the first job that is too young
//! to have finished long ago.

pub(crate) mod batches;
pub(crate) mod delete;
pub(crate) mod expired;
pub(crate) mod history;
pub(crate) mod orphans;
pub(crate) mod quotas;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, micros};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::table::flows::parents;
use crate::db::table::jobs::is_of_ruby;
use crate::db::transition::clear::delete::{delete, delete_finished};
use crate::db::transition::lock_wait::{LockWait, with_lock_wait};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::time::Duration;

/// Which finished jobs to delete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClearLimits {
    /// Jobs that finished this long ago.
    pub(crate) age: Duration,
    /// Jobs up to this id, whatever their age.
    pub(crate) up_to: i64,
    /// Whether to include jobs enqueued by Active Job that no worker of Windlass claimed.
    pub(crate) of_ruby: bool,
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClearedPage {
    /// The last id that was read; `None` at the end of the scan.
    pub(crate) reached: Option<i64>,
    /// How many rows were deleted, not counting those that belong to deleted jobs.
    pub(crate) cleared: usize,
    /// Why some due rows were left, if any were.
    pub(crate) left: Option<String>,
}

/// Runs `work` for rows in as few transactions as possible.
///
/// When the database refuses, each half of them is tried, down to the single rows that it refuses.
/// Those are left, as when a table of the application refers to a job. Returns what `work` returned
/// for the others, and why the last of those is left.
pub(crate) fn one_by_one<T>(
    conn: &mut Conn<'_>,
    rows: &[i64],
    work: impl Fn(&mut Conn<'_>, &[i64]) -> QueryResult<T>,
) -> QueryResult<(Vec<T>, Option<String>)> {
    let (mut all, mut left) = (Vec::new(), None);
    let mut todo = vec![rows];
    while let Some(part) = todo.pop().filter(|part| !part.is_empty()) {
        let done = with_lock_wait(conn, LockWait::Short, |conn| work(conn, part));
        match done {
            Ok(done) => all.push(done),
            Err(error) if Refusal::of(&error) == Refusal::Trouble => return Err(error),
            Err(error) if part.len() == 1 => left = Some(format!("{}: {error}", part[0])),
            Err(_) => {
                let (first, rest) = part.split_at(part.len() / 2);
                todo.extend([rest, first]);
            }
        }
    }
    Ok((all, left))
}

/// Does the same, and returns how many rows `work` counted.
fn count_one_by_one(
    conn: &mut Conn<'_>,
    rows: &[i64],
    work: impl Fn(&mut Conn<'_>, &[i64]) -> QueryResult<usize>,
) -> QueryResult<(usize, Option<String>)> {
    let (counts, left) = one_by_one(conn, rows, work)?;
    Ok((counts.into_iter().sum(), left))
}

#[derive(QueryableByName)]
struct ScannedRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
    #[diesel(sql_type = Bool)]
    young: bool,
}

/// Reads `batch` jobs after the id `after`, and deletes those of them that are due.
pub(crate) fn finished(
    conn: &mut Conn<'_>,
    old: ClearLimits,
    after: i64,
    batch: usize,
) -> QueryResult<ClearedPage> {
    let text = format!(
        "SELECT id, finished_at IS NOT NULL AND (finished_at <= {{later $1}} OR id <= $2) \
           AND ($3 OR NOT {} OR last_claim_id IS NOT NULL) AS due, \
         created_at > {{later $1}} AND id > $2 AS young \
         FROM solid_queue_jobs j WHERE id > $4 ORDER BY id LIMIT $5",
        is_of_ruby("j"),
    );
    let seen: Vec<ScannedRow> = Statement::new(text)
        .bind(-micros(old.age))
        .bind(old.up_to)
        .bind(old.of_ruby)
        .bind(after)
        .bind(batch as i64)
        .load(conn)?;
    let due: Vec<i64> = seen
        .iter()
        .filter(|job| job.due)
        .map(|job| job.id)
        .collect();
    let more = seen.len() == batch && !seen.iter().any(|job| job.young);
    let (cleared, left) = count_one_by_one(conn, &due, delete_finished)?;
    Ok(ClearedPage {
        reached: seen.last().filter(|_| more).map(|job| job.id),
        cleared,
        left,
    })
}

/// Returns the id up to which finished jobs are deleted if only the newest `count` may stay.
pub(crate) fn surplus(conn: &mut Conn<'_>, count: u64) -> QueryResult<i64> {
    let text = "SELECT id FROM solid_queue_jobs WHERE finished_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET $1";
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let last: Option<Id> = Statement::new(text)
        .bind(count)
        .get_result(conn)
        .optional()?;
    Ok(last.map_or(0, |row| row.id))
}

#[derive(QueryableByName)]
struct FailedExecution {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
}

/// Reads `batch` failed executions after the id `after`, and deletes the jobs of those that failed
/// long enough ago.
pub(crate) fn failed(
    conn: &mut Conn<'_>,
    age: Duration,
    after: i64,
    batch: usize,
) -> QueryResult<ClearedPage> {
    // The ids grow with time, so only the oldest need to be read.
    let text = "SELECT id, job_id, created_at <= {later $1} AS due FROM solid_queue_failed_executions \
         WHERE id > $2 ORDER BY id LIMIT $3";
    let seen: Vec<FailedExecution> = Statement::new(text)
        .bind(-micros(age))
        .bind(after)
        .bind(batch as i64)
        .load(conn)?;
    let more = seen.len() == batch && seen.last().is_some_and(|last| last.due);
    let mut due: Vec<i64> = seen
        .iter()
        .filter(|row| row.due)
        .map(|row| row.job_id)
        .collect();
    due.sort_unstable();
    let (cleared, left) = count_one_by_one(conn, &due, delete_failed)?;
    Ok(ClearedPage {
        reached: seen.last().filter(|_| more).map(|row| row.id),
        cleared,
        left,
    })
}

fn delete_failed(conn: &mut Conn<'_>, due: &[i64]) -> QueryResult<usize> {
    // A job that is being retried at this moment is left.
    let text = "SELECT job_id AS id FROM solid_queue_failed_executions WHERE job_id IN {in $1} \
         ORDER BY id + 0 {lock skip}";
    let jobs: Vec<Id> = Statement::new(text).bind(id_list(due)).load(conn)?;
    let mut jobs: Vec<i64> = jobs.into_iter().map(|row| row.id).collect();
    jobs.sort_unstable();
    let text = "DELETE FROM solid_queue_failed_executions WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(&jobs)).execute(conn)?;
    parents::note_dropped(conn, &jobs)?;
    delete(conn, &jobs)
}
