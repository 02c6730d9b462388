//! `solid_queue_batch_executions`, the jobs of batches that have not ended, and `windlass_batch_failures`, those
//! that have ended without success.
//!
//! A trigger requests a promotion for the batch of each row that is deleted, so that the end of a job is noticed,
//! whichever program ends it.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

/// Lets a batch wait for jobs, which were inserted with its id.
pub(crate) fn insert_members(conn: &mut Conn<'_>, batch: i64, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) \
         SELECT id, batch_id, {now} FROM solid_queue_jobs WHERE id IN {in $1} AND batch_id = $2 ORDER BY id";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(batch)
        .execute(conn)
}

/// Takes jobs that have ended out of their batches.
pub(crate) fn leave(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_batch_executions WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}

/// The same in a statement on Postgres that ends claims.
pub(crate) const LEAVE: &str =
    "DELETE FROM solid_queue_batch_executions WHERE job_id = ANY (ARRAY(SELECT job_id FROM ended))";

/// Records that jobs of batches have ended without success. They have not left their batches yet. That is final for those
/// that have no failed execution: they are not retried.
pub(crate) fn fail(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO windlass_batch_failures (job_id, batch_id, is_final, created_at) \
         SELECT e.job_id, e.batch_id, NOT {HAS_FAILED}, {{now}} FROM solid_queue_batch_executions e \
         WHERE e.job_id IN {{in $1}} ORDER BY e.job_id ON CONFLICT (job_id) DO NOTHING"
    );
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}

/// Records that the failures of jobs stay, although these are retried: their batches are over, and no job waits for that.
pub(crate) fn keep_failures(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "UPDATE windlass_batch_failures SET is_final = true WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// The most failures of a batch that are looked at: if one of these may still be retried, so may the batch.
const FRONT: i64 = 100;

/// A failure of a job that is not retried any more.
#[derive(QueryableByName)]
struct EndedFailure {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    /// True if the job has finished after all.
    #[diesel(sql_type = Bool)]
    has_finished: bool,
}

/// Looks at the first failures of a batch that may be taken away by a retry, and decides about those of which the job has
/// ended. Another program has retried or deleted it. Returns whether there are any.
pub(crate) fn decide_failures(conn: &mut Conn<'_>, batch: i64) -> QueryResult<bool> {
    let text = format!(
        "SELECT first.job_id, (SELECT j.id FROM solid_queue_jobs j WHERE j.id = first.job_id LIMIT 1) IS NOT NULL \
           AND (SELECT a.id FROM windlass_attempts a WHERE a.job_id = first.job_id \
             AND a.outcome IN ('cancelled', 'discarded') LIMIT 1) IS NULL AS has_finished \
         FROM (SELECT f.job_id FROM windlass_batch_failures f WHERE f.batch_id = $1 AND NOT f.is_final \
           ORDER BY f.job_id LIMIT {FRONT}) AS first \
         WHERE coalesce((SELECT CASE WHEN j.finished_at IS NULL THEN 0 ELSE 1 END FROM solid_queue_jobs j \
           WHERE j.id = first.job_id LIMIT 1), 1) = 1"
    );
    let ended: Vec<EndedFailure> = Statement::new(text).uncached().bind(batch).load(conn)?;
    let (finished, lost): (Vec<_>, Vec<_>) = ended.iter().partition(|one| one.has_finished);
    let ids = |jobs: Vec<&EndedFailure>| jobs.iter().map(|one| one.job_id).collect::<Vec<_>>();
    keep_failures(conn, &ids(lost))?;
    forget_failures(conn, &ids(finished))?;
    Ok(!ended.is_empty())
}

fn forget_failures(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM windlass_batch_failures WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// A failed job, and its batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct FailedMember {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) batch_id: i64,
}

/// Returns those of the jobs that have failed in a batch.
pub(crate) fn failed(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<FailedMember>> {
    let text = "SELECT job_id, batch_id FROM windlass_batch_failures WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).load(conn)
}

/// Lets batches wait again for failed jobs that are retried.
pub(crate) fn return_to_batch(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) \
         SELECT job_id, batch_id, {now} FROM windlass_batch_failures WHERE job_id IN {in $1} ORDER BY job_id \
         ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)?;
    forget_failures(conn, jobs)
}

/// Marks jobs as finished that no worker performs.
pub(crate) fn finish_unrun(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text =
        "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now} WHERE id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// Conditions on a member `e`: its job is gone, or finished; and has failed. Each has a LIMIT, as the planner may
/// otherwise read all jobs at once.
const IS_FINISHED: &str = "coalesce((SELECT CASE WHEN j.finished_at IS NULL THEN 0 ELSE 1 END FROM solid_queue_jobs j \
     WHERE j.id = e.job_id LIMIT 1), 1) = 1";
const HAS_FAILED: &str = "(SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = e.job_id LIMIT 1) IS NOT NULL";

/// In microseconds: a younger member is not looked at.
const OVERDUE_AFTER: i64 = 60_000_000;

/// A stretch of the members of all batches.
#[derive(Debug, Default)]
pub(crate) struct MembersPage {
    /// Jobs that have ended, and are still in their batches.
    pub(crate) ended: Vec<i64>,
    /// The last job that was read, if there may be more.
    pub(crate) reached: Option<i64>,
}

#[derive(QueryableByName)]
struct MemberState {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Bool)]
    has_ended: bool,
}

/// Reads up to `limit` members after the job `after`.
pub(crate) fn page(conn: &mut Conn<'_>, after: i64, limit: usize) -> QueryResult<MembersPage> {
    let text = format!(
        "SELECT e.job_id, e.created_at < {{later $1}} AND ({IS_FINISHED} OR {HAS_FAILED}) AS has_ended \
         FROM solid_queue_batch_executions e WHERE e.job_id > $2 ORDER BY e.job_id LIMIT $3"
    );
    let seen: Vec<MemberState> = Statement::new(text)
        .uncached()
        .bind(-OVERDUE_AFTER)
        .bind(after)
        .bind(limit as i64)
        .load(conn)?;
    let reached = seen.last().filter(|_| seen.len() == limit);
    let reached = reached.map(|member| member.job_id);
    let ended = seen.into_iter().filter(|member| member.has_ended);
    Ok(MembersPage {
        ended: ended.map(|member| member.job_id).collect(),
        reached,
    })
}

/// Locks members, without those that other transactions have locked.
pub(crate) fn lock_free(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT job_id FROM solid_queue_batch_executions WHERE job_id IN {in $1} ORDER BY job_id + 0 {lock skip}";
    let rows: Vec<Execution> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(job_ids(rows))
}

/// A member whose job has ended.
#[derive(Debug, QueryableByName)]
pub(crate) struct EndedMember {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Bool)]
    pub(crate) has_failed: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) was_cancelled: bool,
}

/// Returns those of the members whose jobs have ended, and how.
pub(crate) fn ended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<EndedMember>> {
    let text = format!(
        "SELECT e.job_id, {HAS_FAILED} AS has_failed, coalesce((SELECT a.outcome FROM windlass_attempts a \
           WHERE a.job_id = e.job_id ORDER BY a.id DESC LIMIT 1), '') = 'cancelled' AS was_cancelled \
         FROM solid_queue_batch_executions e WHERE e.job_id IN {{in $1}} AND ({IS_FINISHED} OR {HAS_FAILED})"
    );
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}
