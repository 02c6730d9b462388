//! The edges between jobs and batches, and the results that are passed on.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::parents;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

// --- The edges of a flow ---

/// A job that waits for another, or for a batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct EdgeRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) child_job_id: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) parent_job_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) parent_batch_id: Option<i64>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) name: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) runs_on: String,
    #[diesel(sql_type = Text)]
    pub(crate) otherwise: String,
    /// True if the child undoes a step.
    #[diesel(sql_type = Bool)]
    pub(crate) is_of_undo: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) outcome: Option<String>,
    /// The batch around the parent, if the child stands for that in it.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) outer_batch: Option<i64>,
}

/// The edges to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgesOf {
    /// Those of jobs that wait.
    Children,
    /// Those of jobs that others wait for.
    ParentJobs,
    /// Those of batches that jobs wait for.
    ParentBatches,
}

/// Returns the edges of jobs or batches, at most `limit`.
pub(crate) fn edges(
    conn: &mut Conn<'_>,
    which: EdgesOf,
    ids: &[i64],
    limit: usize,
) -> QueryResult<Vec<EdgeRow>> {
    let column = match which {
        EdgesOf::Children => "child_job_id",
        EdgesOf::ParentJobs => "parent_job_id",
        EdgesOf::ParentBatches => "parent_batch_id",
    };
    let text = format!(
        "SELECT w.child_job_id, w.parent_job_id, w.parent_batch_id, w.name, w.runs_on, w.otherwise, w.outcome, {} AS is_of_undo, \
           (SELECT j.batch_id FROM solid_queue_jobs j WHERE j.id = w.child_job_id AND w.otherwise = 'nest') AS outer_batch \
         FROM windlass_edges w WHERE w.{column} IN {{in $1}} ORDER BY w.id + 0 LIMIT $2",
        parents::is_of_undo("w")
    );
    Statement::new(text)
        .uncached()
        .bind(id_list(ids))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .load(conn)
}

/// A job of a batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct MembershipRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) batch_id: i64,
}

/// Returns to which batches the jobs belong.
pub(crate) fn batches_of(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<MembershipRow>> {
    let text = "SELECT id AS job_id, batch_id FROM solid_queue_jobs WHERE id IN {in $1} AND batch_id IS NOT NULL";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}

// --- Reads the results of what a job waited for ---

/// A parent of a job, and its result.
#[derive(Debug, QueryableByName)]
pub(crate) struct InputRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) name: Option<String>,
    /// As JSON.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) result: Option<String>,
    /// Why there is none, if that is stored.
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) error: String,
}

/// The most results that are read at once.
const PAGE: i64 = 100;

/// Returns a job with this name that `child` waited for, and its result.
pub(crate) fn named(conn: &mut Conn<'_>, child: i64, name: &str) -> QueryResult<Option<InputRow>> {
    let text = "SELECT coalesce(w.parent_job_id, 0) AS job_id, w.name, r.result, coalesce(r.error, '') AS error \
         FROM windlass_edges w LEFT JOIN windlass_results r ON r.job_id = w.parent_job_id \
         WHERE w.child_job_id = $1 AND w.name = $2 ORDER BY w.id LIMIT 1";
    Statement::new(text)
        .uncached()
        .bind(child)
        .bind(name)
        .get_result(conn)
        .optional()
}

/// Returns some of the jobs after the id `after` that `child` waited for, with their results.
pub(crate) fn of_jobs(conn: &mut Conn<'_>, child: i64, after: i64) -> QueryResult<Vec<InputRow>> {
    let text = "SELECT w.parent_job_id AS job_id, w.name, r.result, '' AS error \
         FROM windlass_edges w JOIN windlass_results r ON r.job_id = w.parent_job_id \
         WHERE w.child_job_id = $1 AND w.parent_job_id > $2 AND r.result IS NOT NULL ORDER BY w.parent_job_id LIMIT $3";
    Statement::new(text)
        .uncached()
        .bind(child)
        .bind(after)
        .bind(PAGE)
        .load(conn)
}

/// A batch that a job waited for.
#[derive(Debug, QueryableByName)]
pub(crate) struct ParentBatch {
    #[diesel(sql_type = BigInt)]
    pub(crate) batch_id: i64,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) name: Option<String>,
}

/// Returns the batches that `child` waited for.
pub(crate) fn batches(conn: &mut Conn<'_>, child: i64) -> QueryResult<Vec<ParentBatch>> {
    let text = "SELECT w.parent_batch_id AS batch_id, w.name FROM windlass_edges w \
         WHERE w.child_job_id = $1 AND w.parent_batch_id IS NOT NULL ORDER BY w.parent_batch_id";
    Statement::new(text).uncached().bind(child).load(conn)
}

/// Returns some of the jobs of a batch after the id `after` that have stored a result.
pub(crate) fn of_batch(conn: &mut Conn<'_>, batch: i64, after: i64) -> QueryResult<Vec<InputRow>> {
    let text = "SELECT r.job_id, CAST(NULL AS varchar) AS name, r.result, '' AS error FROM windlass_results r \
         WHERE r.batch_id = $1 AND r.job_id > $2 AND r.result IS NOT NULL ORDER BY r.batch_id, r.job_id LIMIT $3";
    Statement::new(text)
        .uncached()
        .bind(batch)
        .bind(after)
        .bind(PAGE)
        .load(conn)
}
