//! `windlass_edges` of jobs that wait for others in the middle of their work.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::extras::Parent;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};

#[derive(QueryableByName)]
struct ParentIds {
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_job_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_batch_id: Option<i64>,
}

#[derive(QueryableByName)]
struct FailedParents {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Has a job wait also for those of the parents with which it is connected, and returns them. One that was retried, or
/// opened again, since its end was noted is waited for once more.
pub(crate) fn renew(
    conn: &mut Conn<'_>,
    child: i64,
    jobs: &[i64],
    batches: &[i64],
) -> QueryResult<Vec<Parent>> {
    let text = "UPDATE windlass_edges SET runs_on = 'finish', otherwise = 'join', \
           outcome = CASE WHEN (SELECT j.id FROM solid_queue_jobs j WHERE j.id = parent_job_id AND j.finished_at IS NULL \
               AND (SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = j.id LIMIT 1) IS NULL) IS NOT NULL \
             OR (SELECT b.id FROM solid_queue_batches b WHERE b.id = parent_batch_id AND b.finished_at IS NULL) IS NOT NULL \
             THEN NULL ELSE outcome END \
         WHERE child_job_id = $1 AND (parent_job_id IN {in $2} OR parent_batch_id IN {in $3}) RETURNING parent_job_id, parent_batch_id";
    let rows: Vec<ParentIds> = Statement::new(text)
        .unkept()
        .bind(child)
        .bind(id_list(jobs))
        .bind(id_list(batches))
        .load(conn)?;
    let parent = |row: &ParentIds| {
        let job = row.parent_job_id.map(Parent::Job);
        job.or(row.parent_batch_id.map(Parent::Batch))
    };
    Ok(rows.iter().filter_map(parent).collect())
}

/// Returns how many of the parents of a job have ended without success.
pub(crate) fn failed(
    conn: &mut Conn<'_>,
    child: i64,
    jobs: &[i64],
    batches: &[i64],
) -> QueryResult<i64> {
    let text = "SELECT count(*) AS n FROM windlass_edges WHERE child_job_id = $1 AND outcome = 'failed' \
         AND (parent_job_id IN {in $2} OR parent_batch_id IN {in $3})";
    let count: FailedParents = Statement::new(text)
        .unkept()
        .bind(child)
        .bind(id_list(jobs))
        .bind(id_list(batches))
        .get_result(conn)?;
    Ok(count.n)
}

/// Returns the first of the jobs that waits for this one itself.
pub(crate) fn waits_for(conn: &mut Conn<'_>, job: i64, jobs: &[i64]) -> QueryResult<Option<i64>> {
    let text = "SELECT w.child_job_id AS id FROM windlass_edges w WHERE w.parent_job_id = $1 AND w.child_job_id IN {in $2} \
         ORDER BY w.child_job_id LIMIT 1";
    let row: Option<Id> = Statement::new(text)
        .unkept()
        .bind(job)
        .bind(id_list(jobs))
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Deletes the edges of a waiting job to those that it waits for, or has waited for, in the middle of its work.
pub(crate) fn delete(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = "DELETE FROM windlass_edges WHERE child_job_id = $1 AND otherwise = 'join'";
    Statement::new(text).unkept().bind(job).execute(conn)
}
