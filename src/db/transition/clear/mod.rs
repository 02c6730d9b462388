//! Deletes rows whose retention has ended, a bounded chunk at a time.
//!
//! Finished jobs are found by a scan of the jobs in the order of their ids. An index over
//! `finished_at` would find them at once, but would cost every job a write when it finishes. The
//! scan costs only the clearing process, and is short: it ends at the first job that is too young
//! to have finished long ago.

pub(crate) mod delete;
pub(crate) mod expired;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, micros};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::model::history::cell::Resolution;
use crate::db::table::flows::batches::{self, IS_OURS};
use crate::db::table::flows::parents;
use crate::db::table::history::{deltas, series};
use crate::db::table::jobs::is_of_ruby;
use crate::db::table::quotas;
use crate::db::transition::clear::delete::{delete, delete_finished};
use crate::db::transition::pause::{LockWait, with_lock_wait};
use diesel::QueryResult;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::time::Duration;

/// The selection of finished jobs to delete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClearLimits {
    /// Jobs that finished this long ago.
    pub(crate) age: Duration,
    /// Jobs up to this id, whatever their age.
    pub(crate) up_to: i64,
    /// True if jobs are included that Active Job enqueued and no worker of Windlass claimed.
    pub(crate) of_ruby: bool,
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClearedPage {
    /// The last id that was read; `None` at the end of the scan.
    pub(crate) reached: Option<i64>,
    /// The number of deleted rows, not counting those that belong to deleted jobs.
    pub(crate) cleared: usize,
    /// Why some due rows were left, if any were.
    pub(crate) left: Option<String>,
}

/// Runs `work` for rows in as few transactions as possible.
///
/// Each half of the rows is tried when the database refuses all, down to the single rows that it refuses. Those are
/// left, as when a table of the application refers to a job. Returns what `work` returned for the others, and why the
/// last of those is left.
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

/// Reads `chunk` jobs after the id `after`, and deletes those of them that are due.
pub(crate) fn finished(
    conn: &mut Conn<'_>,
    old: ClearLimits,
    after: i64,
    chunk: usize,
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
        .bind(chunk as i64)
        .load(conn)?;
    let due: Vec<i64> = seen
        .iter()
        .filter(|job| job.due)
        .map(|job| job.id)
        .collect();
    let more = seen.len() == chunk && !seen.iter().any(|job| job.young);
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

/// Reads `chunk` failed executions after the id `after`, and deletes the jobs of those that failed
/// long enough ago.
pub(crate) fn failed(
    conn: &mut Conn<'_>,
    age: Duration,
    after: i64,
    chunk: usize,
) -> QueryResult<ClearedPage> {
    // The ids grow with time, so only the oldest need to be read.
    let text = "SELECT id, job_id, created_at <= {later $1} AS due FROM solid_queue_failed_executions \
         WHERE id > $2 ORDER BY id LIMIT $3";
    let seen: Vec<FailedExecution> = Statement::new(text)
        .bind(-micros(age))
        .bind(after)
        .bind(chunk as i64)
        .load(conn)?;
    let more = seen.len() == chunk && seen.last().is_some_and(|last| last.due);
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

// --- Deletes batches that are over ---

/// Deletes up to `chunk` batches of Windlass after the id `after` that were over so long ago and have no jobs any more,
/// with their edges.
pub(crate) fn clear_ended_batches(
    conn: &mut Conn<'_>,
    age: Duration,
    after: i64,
    chunk: usize,
) -> QueryResult<ClearedPage> {
    let is_unused = "NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.batch_id = b.id) \
         AND NOT EXISTS (SELECT 1 FROM windlass_edges w JOIN solid_queue_jobs j ON j.id = w.child_job_id \
           WHERE w.parent_batch_id = b.id AND j.finished_at IS NULL)";
    let text = format!(
        "SELECT b.id FROM solid_queue_batches b WHERE b.id > $1 AND b.finished_at <= {{later $2}} AND {IS_OURS} \
         AND {is_unused} ORDER BY b.id LIMIT $3"
    );
    let due: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(-micros(age))
        .bind(chunk as i64)
        .load(conn)?;
    let due: Vec<i64> = due.into_iter().map(|row| row.id).collect();
    let (cleared, left) = count_one_by_one(conn, &due, |conn, due| {
        // Looked at once more under the lock: another transaction may have let a job wait for one.
        let locked = batches::lock_free(conn, due)?;
        let text =
            format!("DELETE FROM solid_queue_batches AS b WHERE b.id IN {{in $1}} AND {is_unused}");
        Statement::new(text)
            .uncached()
            .bind(id_list(&locked))
            .changes(conn)
    })?;
    Ok(ClearedPage {
        reached: due.last().copied().filter(|_| due.len() == chunk),
        cleared,
        left,
    })
}

// --- Deletes what the history keeps no longer ---

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time for which the row of the newest contribution of a process stays. A process that gets no answer for longer
/// may count its last heartbeat twice.
const FOLDED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time for which a contribution that no program could read stays.
const UNREADABLE_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The number of series that one step looks at.
const SERIES: usize = 100;

/// Deletes the buckets past their time of some series after the id `after`.
pub(crate) fn old_buckets(conn: &mut Conn<'_>, after: i64) -> QueryResult<ClearedPage> {
    let page = series::page(conn, after, SERIES)?;
    let mut cleared = 0;
    for resolution in Resolution::ALL {
        let before = page.now - resolution.kept();
        cleared += series::clear(conn, &page.ids, resolution, before)?;
    }
    let is_full = page.ids.len() >= SERIES;
    Ok(ClearedPage {
        reached: page.ids.last().copied().filter(|_| is_full),
        cleared,
        left: None,
    })
}

/// Deletes contributions that are not needed any more, and series in which nothing ended for as long
/// as buckets are kept. The totals of those go too: their counters have stood still for 13 months.
pub(crate) fn unused(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<ClearedPage> {
    let mut cleared = deltas::clear(conn, FOLDED_FOR, UNREADABLE_FOR, chunk)?;
    cleared += conn.transaction(|conn| {
        // A fold may be adding to one of them.
        if series::lock(conn)?.is_none() {
            return Ok(0);
        }
        let kept = Resolution::Hour.kept().unsigned_abs();
        let age = Duration::from_secs(kept) + DAY;
        let unused = series::unused(conn, age, SERIES)?;
        if !unused.is_empty() {
            series::delete(conn, &unused)?;
        }
        QueryResult::Ok(unused.len())
    })?;
    Ok(ClearedPage {
        reached: None,
        cleared,
        left: None,
    })
}

// --- Clears what quotas have counted ---

/// The time for which the slots of an unused quota are kept.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Deletes up to `chunk` slots of quotas that are not used any more, and gives back the places of as
/// many jobs that do not wait any more. Returns how many rows were deleted. It waits for no
/// transaction that enqueues.
pub(crate) fn clear(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<usize> {
    let chunk = i64::try_from(chunk).unwrap_or(i64::MAX);
    conn.transaction(|conn| {
        let deleted = quotas::clear(conn, UNUSED, chunk)?;
        Ok(deleted + quotas::free(conn, None, chunk)?)
    })
}
