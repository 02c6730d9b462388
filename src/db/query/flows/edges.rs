//! What waits for what.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::undos;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

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
    /// Whether the child undoes a step.
    #[diesel(sql_type = Bool)]
    pub(crate) is_of_undo: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) outcome: Option<String>,
    /// The batch around the parent, if the child stands for that in it.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) outer_batch: Option<i64>,
}

/// Which edges.
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
        undos::is_of_undo("w")
    );
    Statement::new(text)
        .unkept()
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
    Statement::new(text).unkept().bind(id_list(jobs)).load(conn)
}
