//! `solid_queue_batches`: batches of Windlass, beside those of Ruby, whose callbacks only Ruby can run.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable};

/// Returns a condition: the batch `b` is of Windlass. Ruby finds its batches by other ids.
pub const IS_OURS: &str = "b.active_job_batch_id LIKE 'windlass-%'";

/// Returns a condition: a job of the batch `b` has not ended. Jobs end from the front, so it looks from behind:
/// Postgres keeps the index entries of those that ended until the next vacuum.
pub const IS_OPEN: &str = "(SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id \
     ORDER BY e.job_id DESC LIMIT 1) IS NOT NULL";

/// Returns a condition: no retry can bring the batch `b` to success any more.
pub(crate) const IS_LOST: &str = "(SELECT f.job_id FROM windlass_batch_failures f WHERE f.batch_id = b.id \
     AND f.is_final LIMIT 1) IS NOT NULL";

/// A batch to insert.
#[derive(Debug)]
pub(crate) struct NewBatchRow<'b> {
    pub(crate) name: &'b str,
    pub(crate) metadata: Option<&'b str>,
    /// The id by which Ruby would find it.
    pub(crate) uuid: &'b str,
}

/// Inserts a batch without jobs, and returns its id.
pub(crate) fn create_batch(conn: &mut Conn<'_>, new: &NewBatchRow<'_>) -> QueryResult<i64> {
    let text = "INSERT INTO solid_queue_batches (active_job_batch_id, description, metadata, enqueued_at, created_at, updated_at) \
         VALUES ($1, $2, $3, {now}, {now}, {now}) RETURNING id";
    let row: Id = Statement::new(text)
        .bind(new.uuid)
        .bind(new.name)
        .bind(new.metadata)
        .get_result(conn)?;
    Ok(row.id)
}

/// The answer to a request to add jobs to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addition {
    Accepted,
    /// It has ended.
    Ended,
    /// There is none of Windlass with this id.
    Unknown,
}

#[derive(QueryableByName)]
struct EndedRow {
    #[diesel(sql_type = Bool)]
    is_over: bool,
}

/// Keeps batches from ending until the transaction does. The rows of new jobs take the same lock by their foreign
/// key. Returns how many of them exist.
pub(crate) fn keep_open(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<usize> {
    let text = "SELECT id FROM solid_queue_batches WHERE id IN {in $1} ORDER BY id {keep}";
    let found: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .load(conn)?;
    Ok(found.len())
}

/// Returns whether jobs can be added to a batch, and keeps it from ending until the transaction does.
pub(crate) fn accepts(conn: &mut Conn<'_>, batch: i64) -> QueryResult<Addition> {
    keep_open(conn, &[batch])?;
    // A statement of its own: it sees what was committed before the lock was granted.
    let text = format!(
        "SELECT b.finished_at IS NOT NULL AND NOT {IS_OPEN} AS is_over FROM solid_queue_batches b \
         WHERE b.id = $1 AND {IS_OURS}"
    );
    let row: Option<EndedRow> = Statement::new(text)
        .uncached()
        .bind(batch)
        .get_result(conn)
        .optional()?;
    Ok(match row {
        Some(EndedRow { is_over: false }) => Addition::Accepted,
        Some(EndedRow { is_over: true }) => Addition::Ended,
        None => Addition::Unknown,
    })
}

/// Returns the first of these batches, in order, that is not of Windlass or does not exist.
pub(crate) fn first_unknown(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<Option<i64>> {
    let text =
        format!("SELECT b.id FROM solid_queue_batches b WHERE b.id IN {{in $1}} AND {IS_OURS}");
    let known: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .load(conn)?;
    let is_known = |batch: &i64| known.iter().any(|row| row.id == *batch);
    Ok(batches.iter().copied().find(|batch| !is_known(batch)))
}

/// Adds jobs to the total of a batch.
pub(crate) fn add_to_total(conn: &mut Conn<'_>, batch: i64, jobs: i64) -> QueryResult<()> {
    // A number that another program has written is not to end promotions.
    let raised = |column: &str| {
        let most = i32::MAX;
        format!("CASE WHEN {column} > {most} - $1 THEN {most} ELSE {column} + $1 END")
    };
    let text = format!(
        "UPDATE solid_queue_batches SET total_jobs = {}, \
           completed_jobs = CASE WHEN finished_at IS NULL THEN completed_jobs ELSE {} END, updated_at = {{now}} \
         WHERE id = $2",
        raised("total_jobs"),
        raised("completed_jobs"),
    );
    Statement::new(text)
        .uncached()
        .bind(jobs)
        .bind(batch)
        .execute(conn)
}

/// A batch of which no job is left.
#[derive(Debug, QueryableByName)]
pub(crate) struct EndedBatch {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    /// The number of its jobs that have failed, or were cancelled.
    #[diesel(sql_type = BigInt)]
    pub(crate) failures: i64,
}

/// Returns those of the batches that are of Windlass and have no job left.
pub(crate) fn ended(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<Vec<EndedBatch>> {
    let text = format!(
        "SELECT b.id, (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id) AS failures \
         FROM solid_queue_batches b WHERE b.id IN {{in $1}} AND {IS_OURS} AND b.enqueued_at IS NOT NULL \
         AND NOT {IS_OPEN} ORDER BY b.id"
    );
    Statement::new(text).bind(id_list(batches)).load(conn)
}

/// Locks batches, in order, and returns those that no other transaction has locked: none adds jobs to
/// them.
pub(crate) fn lock_free(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT id FROM solid_queue_batches WHERE id IN {in $1} ORDER BY id {lock skip}";
    let rows: Vec<Id> = Statement::new(text).bind(id_list(batches)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Marks batches as over. Ruby's dispatcher may have done so before, in which case its times stay.
pub(crate) fn finish(conn: &mut Conn<'_>, ended: &[EndedBatch]) -> QueryResult<()> {
    let text = "UPDATE solid_queue_batches SET finished_at = coalesce(finished_at, {now}), \
           failed_at = CASE WHEN ended.failures > 0 THEN coalesce(failed_at, {now}) END, \
           failed_jobs = ended.failures, \
           completed_jobs = CASE WHEN total_jobs > ended.failures THEN total_jobs - ended.failures ELSE 0 END, \
           updated_at = {now} \
         FROM (SELECT CAST(value ->> 0 AS bigint) AS id, CAST(value ->> 1 AS integer) AS failures FROM {rows $1}) AS ended \
         WHERE solid_queue_batches.id = ended.id";
    let rows: Vec<(i64, i64)> = ended.iter().map(|one| (one.id, one.failures)).collect();
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    Statement::new(text).uncached().bind(rows).execute(conn)
}

/// Returns a condition: a job waits for the success of the batch `b`, until failed jobs were retried. Each SELECT has a
/// LIMIT, as the planner may otherwise read all edges or jobs at once.
const IS_AWAITED: &str = "(SELECT w.id FROM windlass_edges w WHERE w.parent_batch_id = b.id AND w.otherwise = 'wait' AND w.runs_on = 'success' \
       AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = w.child_job_id AND j.finished_at IS NULL LIMIT 1) IS NOT NULL \
       LIMIT 1) IS NOT NULL";

/// Returns those of the batches that wait for failed jobs which are retried: they are not over, or a job waits for their
/// success.
pub(crate) fn awaiting_retries(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT b.id FROM solid_queue_batches b WHERE b.id IN {{in $1}} AND {IS_OURS} \
         AND (b.finished_at IS NULL OR {IS_AWAITED})"
    );
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Returns those of the batches for whose success a job waits, and that no retry can bring to it any more.
pub(crate) fn without_retry(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<Vec<i64>> {
    if batches.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!(
        "SELECT b.id FROM solid_queue_batches b WHERE b.id IN {{in $1}} AND {IS_LOST} AND {IS_AWAITED}"
    );
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Returns the batches that are over and have failed, for whose success these jobs wait until failed jobs were retried.
pub(crate) fn failed_parents(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "WITH chosen AS MATERIALIZED (SELECT DISTINCT w.parent_batch_id AS id FROM windlass_edges w \
           WHERE w.child_job_id IN {in $1} AND w.parent_batch_id IS NOT NULL \
           AND w.outcome = 'failed' AND w.otherwise = 'wait' AND w.runs_on = 'success') \
         SELECT chosen.id FROM chosen WHERE (SELECT b.finished_at FROM solid_queue_batches b \
           WHERE b.id = chosen.id LIMIT 1) IS NOT NULL";
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Opens batches again, whose failed jobs are retried.
pub(crate) fn reopen(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<()> {
    let text = "UPDATE solid_queue_batches SET finished_at = NULL, failed_at = NULL, completed_jobs = 0, failed_jobs = 0, updated_at = {now} \
         WHERE id IN {in $1} AND finished_at IS NOT NULL";
    Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .execute(conn)
}

/// Returns up to `limit` batches of Windlass after the id `after` that are not marked as over and have no job left,
/// although they were enqueued some time ago; and the last id that was read, if there may be more.
pub(crate) fn stalled(
    conn: &mut Conn<'_>,
    after: i64,
    limit: usize,
) -> QueryResult<(Vec<i64>, Option<i64>)> {
    let text = format!(
        "SELECT b.id, NOT {IS_OPEN} AS is_over FROM solid_queue_batches b WHERE b.id > $1 AND b.finished_at IS NULL \
         AND b.enqueued_at < {{later $2}} AND {IS_OURS} ORDER BY b.id LIMIT $3"
    );
    let seen: Vec<OldBatchRow> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(-STALLED_AFTER)
        .bind(limit as i64)
        .load(conn)?;
    let reached = seen.last().filter(|_| seen.len() == limit);
    let reached = reached.map(|batch| batch.id);
    let ended = seen.into_iter().filter(|batch| batch.is_over);
    Ok((ended.map(|batch| batch.id).collect(), reached))
}

/// The first open job of a batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct BatchFront {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) first: Option<i64>,
}

/// The most open jobs that a look at the front of a batch passes. Jobs that take long hide the ended ones behind them.
const FRONT: usize = 200;

/// Returns the first open job of batches, each from a job on. Postgres marks the index entries of ended jobs that such a
/// read passes, so that [`ended`] passes them cheaply.
pub(crate) fn fronts(conn: &mut Conn<'_>, from: &[(i64, i64)]) -> QueryResult<Vec<BatchFront>> {
    let text = format!(
        "SELECT b.id, (SELECT min(f.job_id) FROM (SELECT e.job_id FROM solid_queue_batch_executions e \
           WHERE e.batch_id = b.id AND e.job_id >= b.job ORDER BY e.job_id LIMIT {FRONT}) AS f) AS first \
         FROM (SELECT CAST(value ->> 0 AS bigint) AS id, CAST(value ->> 1 AS bigint) AS job FROM {{rows $1}}) AS b"
    );
    let rows = serde_json::to_string(from).unwrap_or_default();
    Statement::new(text).bind(rows).load(conn)
}

/// In microseconds: by then, the promotion that was requested has been made.
const STALLED_AFTER: i64 = 60_000_000;

#[derive(QueryableByName)]
struct OldBatchRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_over: bool,
}
