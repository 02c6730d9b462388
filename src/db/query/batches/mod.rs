//! Reads batches.

pub mod walk;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, Lossy, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::WAITS_FOR_PARENTS;
use crate::db::query::explain::MOST;
use crate::db::table::flows::batches::IS_OURS;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};

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

/// Returns the batch that all of these jobs belong to, if it is one with the name and the metadata of `like`, and has no job with
/// the idempotency key `another`.
#[doc(hidden)]
pub fn alike(
    conn: &mut Conn<'_>,
    like: i64,
    jobs: &[i64],
    another: &str,
) -> QueryResult<Option<i64>> {
    let text = "SELECT b.id FROM solid_queue_batches b JOIN solid_queue_batches l ON l.id = $1 \
         WHERE b.id = (SELECT min(j.batch_id) FROM solid_queue_jobs j WHERE j.id IN {in $2}) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id IN {in $2} AND (j.batch_id IS NULL OR j.batch_id <> b.id)) \
         AND coalesce(b.description, '') = coalesce(l.description, '') AND coalesce(b.metadata, '') = coalesce(l.metadata, '') \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.idempotency_key = $3 AND j.batch_id = b.id)";
    let row: Option<Id> = Statement::new(text)
        .uncached()
        .bind(like)
        .bind(id_list(jobs))
        .bind(another)
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Reads a batch, and counts its jobs.
pub(crate) fn status(conn: &mut Conn<'_>, batch: i64) -> QueryResult<Option<BatchRow>> {
    let text = "SELECT coalesce(b.description, '') AS name, b.metadata, CAST(b.total_jobs AS bigint) AS total, \
           (SELECT count(*) FROM solid_queue_batch_executions e WHERE e.batch_id = b.id) AS open, \
           (SELECT count(*) FROM windlass_batch_failures f WHERE f.batch_id = b.id) AS failures, \
           {moment b.enqueued_at} AS enqueued_at, {moment b.finished_at} AS finished_at \
         FROM solid_queue_batches b WHERE b.id = $1";
    Statement::new(text)
        .uncached()
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
        .uncached()
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
pub(crate) fn awaited_batch(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<AwaitedBatch>> {
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
        .uncached()
        .bind(job)
        .get_result(conn)
        .optional()
}

// --- Lists of batches, the newest first, and single ones ---

/// The batches that a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchesWanted {
    All,
    Open,
    Ended,
    Failed,
}

impl BatchesWanted {
    /// Returns the condition of the index that finds them.
    fn condition(self) -> &'static str {
        match self {
            BatchesWanted::All => "true",
            BatchesWanted::Open => "finished_at IS NULL",
            BatchesWanted::Ended => "finished_at IS NOT NULL",
            BatchesWanted::Failed => "failed_at IS NOT NULL",
        }
    }
}

/// A batch of a list.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct ListedBatch {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub metadata: Option<String>,
    #[diesel(sql_type = Bool)]
    pub is_ours: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) total: i64,
    /// The number of jobs that have not ended, counted up to one more than the limit.
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
    /// The number of failed jobs, counted likewise.
    #[diesel(sql_type = BigInt)]
    pub(crate) failures: i64,
    #[diesel(sql_type = Timestamp)]
    pub created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub enqueued_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub finished_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) failed_at: Option<NaiveDateTime>,
}

/// Returns a SELECT of the batches `b` with their counts, up to `most` and one. Failures are those at the end, as
/// `windlass_batch_failures` keeps the rows of retried jobs of a batch that is over.
fn select(from: &str, most: i64) -> String {
    let counted = |table: &str| {
        let limit = most.saturating_add(1);
        // The order is that of the index: beside one large batch, Postgres would otherwise read the table for each.
        format!(
            "(SELECT count(*) FROM (SELECT 1 AS one FROM {table} c WHERE c.batch_id = b.id \
               ORDER BY c.job_id LIMIT {limit}) AS counted)"
        )
    };
    format!(
        "SELECT b.id, coalesce(b.description, '') AS name, b.metadata, coalesce({IS_OURS}, false) AS is_ours, \
           CAST(b.total_jobs AS bigint) AS total, {} AS open, \
           CASE WHEN b.finished_at IS NULL THEN {} ELSE CAST(b.failed_jobs AS bigint) END AS failures, \
           {{moment b.created_at}} AS created_at, {{moment b.enqueued_at}} AS enqueued_at, \
           {{moment b.finished_at}} AS finished_at, {{moment b.failed_at}} AS failed_at \
         FROM {from}",
        counted("solid_queue_batch_executions"),
        counted("windlass_batch_failures"),
    )
}

/// Returns up to `limit` batches with ids below `before`, the newest first, with counts up to `most`.
pub(crate) fn page(
    conn: &mut Conn<'_>,
    wanted: BatchesWanted,
    before: i64,
    limit: usize,
    most: i64,
) -> QueryResult<Vec<ListedBatch>> {
    let page = format!(
        "(SELECT id FROM solid_queue_batches WHERE id < $1 AND {} ORDER BY id DESC LIMIT $2) AS page \
         JOIN solid_queue_batches b ON b.id = page.id ORDER BY page.id DESC",
        wanted.condition()
    );
    Statement::new(select(&page, most))
        .uncached()
        .bind(before)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .load(conn)
}

/// Returns these batches with counts up to `most`, as far as there are rows.
pub(crate) fn some(
    conn: &mut Conn<'_>,
    batches: &[i64],
    most: i64,
) -> QueryResult<Vec<ListedBatch>> {
    Statement::new(select("solid_queue_batches b WHERE b.id IN {in $1}", most))
        .uncached()
        .bind(id_list(batches))
        .load(conn)
}

/// Returns a batch with counts up to `most`.
pub fn one(conn: &mut Conn<'_>, batch: i64, most: i64) -> QueryResult<Option<ListedBatch>> {
    Statement::new(select("solid_queue_batches b WHERE b.id = $1", most))
        .uncached()
        .bind(batch)
        .get_result(conn)
        .optional()
}

// --- The details of one batch: the jobs that follow, and the batches around and in it ---

/// A job that follows a batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct FollowingJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) runs_on: String,
    #[diesel(sql_type = Text)]
    pub(crate) otherwise: String,
    /// The outcome of the batch. `None` while it is not over.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) outcome: Option<String>,
    /// The batch around this one, if the job stands for this one in it.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) outer_batch: Option<i64>,
}

/// Returns the jobs that follow a batch, at most `limit`, in the order in which they were enqueued.
pub(crate) fn following(
    conn: &mut Conn<'_>,
    batch: i64,
    limit: usize,
) -> QueryResult<Vec<FollowingJob>> {
    let text = "SELECT w.child_job_id AS job_id, w.runs_on, w.otherwise, w.outcome, \
           (SELECT j.batch_id FROM solid_queue_jobs j WHERE j.id = w.child_job_id AND w.otherwise = 'nest') AS outer_batch \
         FROM windlass_edges w WHERE w.parent_batch_id = $1 ORDER BY w.id + 0 LIMIT $2";
    Statement::new(text)
        .uncached()
        .bind(batch)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .load(conn)
}

/// Among how many edges the batches in a batch are looked for.
const NEAR: u32 = 1_000;

/// A batch with those in it.
#[derive(Debug, QueryableByName)]
struct InnerRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    /// Their ids, with commas between them.
    #[diesel(sql_type = Nullable<Text>)]
    inner_ids: Option<String>,
}

/// Returns the batches in each of these batches, at most `limit` of each: pairs of the outer and the inner one. The
/// transaction that inserted a batch has inserted them after it, so they are near it; the others of its jobs are not read.
pub(crate) fn inner(
    conn: &mut Conn<'_>,
    batches: &[i64],
    limit: usize,
) -> QueryResult<Vec<(i64, i64)>> {
    let list = match conn.dialect() {
        Dialect::Postgres => "string_agg(CAST(found.id AS text), ',')",
        Dialect::Sqlite => "group_concat(found.id)",
    };
    let text = format!(
        "SELECT b.id, (SELECT {list} FROM (SELECT near.parent_batch_id AS id FROM \
           (SELECT w.parent_batch_id, w.child_job_id, w.otherwise FROM windlass_edges w \
              WHERE w.parent_batch_id > b.id ORDER BY w.parent_batch_id LIMIT {NEAR}) AS near \
           WHERE (SELECT j.batch_id FROM solid_queue_jobs j WHERE j.id = near.child_job_id AND near.otherwise = 'nest') = b.id \
           ORDER BY near.parent_batch_id LIMIT $2) AS found) AS inner_ids \
         FROM solid_queue_batches b WHERE b.id IN {{in $1}}"
    );
    let rows: Vec<InnerRow> = Statement::new(text)
        .uncached()
        .bind(id_list(batches))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .load(conn)?;
    let mut pairs = Vec::new();
    for row in rows {
        let inner = row.inner_ids.unwrap_or_default();
        let ids = inner.split(',').filter_map(|id| id.parse().ok());
        pairs.extend(ids.map(|inner| (row.id, inner)));
    }
    pairs.sort_unstable();
    Ok(pairs)
}
