//! `solid_queue_batch_executions`, the jobs of batches that have not ended, and `windlass_batch_failures`, those
//! that have ended without success.
//!
//! A trigger requests a promotion for the batch of each row that is deleted, so that the end of a job is noticed,
//! whichever program ends it.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::id_list;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// Lets a batch wait for jobs, which were inserted with its id.
pub(crate) fn insert(conn: &mut Conn<'_>, batch: i64, jobs: &[i64]) -> QueryResult<()> {
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

/// Records that jobs of batches have ended without success. They have not left their batches yet.
pub(crate) fn fail(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO windlass_batch_failures (job_id, batch_id, created_at) \
         SELECT job_id, batch_id, {now} FROM solid_queue_batch_executions WHERE job_id IN {in $1} ORDER BY job_id \
         ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
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
        .unkept()
        .bind(id_list(jobs))
        .execute(conn)?;
    let text = "DELETE FROM windlass_batch_failures WHERE job_id IN {in $1}";
    Statement::new(text)
        .unkept()
        .bind(id_list(jobs))
        .execute(conn)
}

/// Marks jobs as finished that no worker performs.
pub(crate) fn finish_unrun(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text =
        "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now} WHERE id IN {in $1}";
    Statement::new(text)
        .unkept()
        .bind(id_list(jobs))
        .execute(conn)
}
