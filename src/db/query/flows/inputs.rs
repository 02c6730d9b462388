//! Reads the results of what a job waited for.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, MaybeLossy};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// What a job waited for, and its result.
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

/// How many results are read at once.
const PAGE: i64 = 100;

/// Returns a job with this name that `child` waited for, and its result.
pub(crate) fn named(conn: &mut Conn<'_>, child: i64, name: &str) -> QueryResult<Option<InputRow>> {
    let text = "SELECT coalesce(w.parent_job_id, 0) AS job_id, w.name, r.result, coalesce(r.error, '') AS error \
         FROM windlass_edges w LEFT JOIN windlass_results r ON r.job_id = w.parent_job_id \
         WHERE w.child_job_id = $1 AND w.name = $2 ORDER BY w.id LIMIT 1";
    Statement::new(text)
        .unkept()
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
        .unkept()
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
    Statement::new(text).unkept().bind(child).load(conn)
}

/// Returns some of the jobs of a batch after the id `after` that have stored a result.
pub(crate) fn of_batch(conn: &mut Conn<'_>, batch: i64, after: i64) -> QueryResult<Vec<InputRow>> {
    let text = "SELECT r.job_id, CAST(NULL AS varchar) AS name, r.result, '' AS error FROM windlass_results r \
         WHERE r.batch_id = $1 AND r.job_id > $2 AND r.result IS NOT NULL ORDER BY r.batch_id, r.job_id LIMIT $3";
    Statement::new(text)
        .unkept()
        .bind(batch)
        .bind(after)
        .bind(PAGE)
        .load(conn)
}
