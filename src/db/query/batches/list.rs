//! Lists of batches, the newest first, and single ones.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::batches::IS_OURS;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};

/// Which batches a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchesWanted {
    All,
    Open,
    Over,
    Failed,
}

impl BatchesWanted {
    /// Returns the condition of the index that finds them.
    fn condition(self) -> &'static str {
        match self {
            BatchesWanted::All => "true",
            BatchesWanted::Open => "finished_at IS NULL",
            BatchesWanted::Over => "finished_at IS NOT NULL",
            BatchesWanted::Failed => "failed_at IS NOT NULL",
        }
    }
}

/// A batch of a list.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct ListedBatch {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) metadata: Option<String>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_ours: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) total: i64,
    /// How many jobs have not ended, counted up to one more than the limit.
    #[diesel(sql_type = BigInt)]
    pub(crate) open: i64,
    /// How many have failed, counted likewise.
    #[diesel(sql_type = BigInt)]
    pub(crate) failures: i64,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) enqueued_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
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
        .unkept()
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
        .unkept()
        .bind(id_list(batches))
        .load(conn)
}

/// Returns a batch with counts up to `most`.
pub(crate) fn one(conn: &mut Conn<'_>, batch: i64, most: i64) -> QueryResult<Option<ListedBatch>> {
    Statement::new(select("solid_queue_batches b WHERE b.id = $1", most))
        .unkept()
        .bind(batch)
        .get_result(conn)
        .optional()
}
