//! Reads batches.

pub(crate) mod list;
pub(crate) mod walk;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, MaybeLossy};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::WAITS_FOR_PARENTS;
use crate::db::query::explain::MOST;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};

/// A batch of Windlass, or of Ruby.
#[derive(Debug, QueryableByName)]
pub(crate) struct BatchRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) metadata: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub(crate) total: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) failures: i64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) enqueued_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
}

/// Reads a batch, and counts its jobs.
pub(crate) fn status(conn: &mut Conn<'_>, batch: i64) -> QueryResult<Option<BatchRow>> {
    let text = "SELECT coalesce(b.description, '') AS name, b.metadata, CAST(b.total_jobs AS bigint) AS total, \
           (SELECT count(*) FROM solid_queue_batch_executions e WHERE e.batch_id = b.id) AS open, \
           (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id) AS failures, \
           {moment b.enqueued_at} AS enqueued_at, {moment b.finished_at} AS finished_at \
         FROM solid_queue_batches b WHERE b.id = $1";
    Statement::new(text)
        .unkept()
        .bind(batch)
        .get_result(conn)
        .optional()
}

/// The jobs that a job waits for.
#[derive(Debug, QueryableByName)]
pub(crate) struct AwaitedJobs {
    #[diesel(sql_type = BigInt)]
    pub(crate) total: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
    /// The oldest of those that have not ended.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) oldest: Option<i64>,
    /// The oldest of those whose retry it waits for.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) failed: Option<i64>,
}

/// Returns the jobs that a blocked job waits for, if it waits for some.
pub(crate) fn awaited_jobs(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<AwaitedJobs>> {
    let text = format!(
        "SELECT count(*) AS total, count(*) - count(w.outcome) AS open, \
           min(CASE WHEN w.outcome IS NULL THEN w.parent_job_id END) AS oldest, \
           min(CASE WHEN w.outcome = 'failed' AND w.otherwise = 'wait' THEN w.parent_job_id END) AS failed \
         FROM windlass_edges w JOIN solid_queue_blocked_executions x ON x.job_id = w.child_job_id \
           AND x.concurrency_key = '{WAITS_FOR_PARENTS}' \
         WHERE w.child_job_id = $1 AND w.parent_job_id IS NOT NULL HAVING count(*) > 0"
    );
    Statement::new(text)
        .unkept()
        .bind(job)
        .get_result(conn)
        .optional()
}

/// The batch that a job waits for.
#[derive(Debug, QueryableByName)]
pub(crate) struct AwaitedBatch {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) total: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) oldest: Option<i64>,
}

/// Returns the batch that a blocked job waits for, if it waits for one. The order is that of the index, as in
/// [`list`]: beside a large batch, Postgres would otherwise read the table.
pub(crate) fn awaited(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<AwaitedBatch>> {
    let text = format!(
        "SELECT b.id, coalesce(b.description, '') AS name, CAST(b.total_jobs AS bigint) AS total, \
           (SELECT count(*) FROM (SELECT 1 AS one FROM solid_queue_batch_executions e WHERE e.batch_id = b.id \
             ORDER BY e.job_id LIMIT {}) AS counted) AS open, \
           (SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id ORDER BY e.job_id LIMIT 1) AS oldest \
         FROM windlass_edges w JOIN solid_queue_batches b ON b.id = w.parent_batch_id \
         JOIN solid_queue_blocked_executions x ON x.job_id = w.child_job_id AND x.concurrency_key = '{WAITS_FOR_PARENTS}' \
         WHERE w.child_job_id = $1 ORDER BY w.outcome IS NOT NULL, w.id LIMIT 1",
        MOST + 1
    );
    Statement::new(text)
        .unkept()
        .bind(job)
        .get_result(conn)
        .optional()
}
