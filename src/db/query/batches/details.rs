//! What belongs to one batch: the jobs that follow, and the batches around and in it.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

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
        .unkept()
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
        .unkept()
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
