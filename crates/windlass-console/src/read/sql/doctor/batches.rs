//! The rules of `doctor` about batches, each checked for a bounded number of rows.

use crate::read::sql::doctor::{FIRST, Inconsistent};
use diesel::QueryResult;
use windlass::Conn;
use windlass::internal::db::conn::dialect::Id;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::model::new_row::WAITS_FOR_PARENTS;
use windlass::internal::db::table::flows::batches::{IS_OPEN, IS_OURS};
use windlass::internal::db::table::wanted_keys::{BATCH, CHILD, is_requested_sql};

/// The most rows that a check reads: the oldest batches that are not over, or jobs that wait for others.
pub(crate) const READ: u32 = 10_000;

/// The age from which a batch is reported by a check, in microseconds.
const SETTLED: i64 = 300_000_000;

/// A rule about batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchRule {
    /// A batch without a job that has not ended is marked as over, or that was requested.
    IsMarked,
    /// A job that follows a batch which is not over waits.
    Waits,
    /// A job that waits has something to wait for.
    HasParent,
    /// A job whose parents are over does not wait, or its promotion was requested.
    IsLetGo,
}

impl BatchRule {
    pub(crate) const ALL: [BatchRule; 4] = [
        BatchRule::IsMarked,
        BatchRule::Waits,
        BatchRule::HasParent,
        BatchRule::IsLetGo,
    ];

    /// Returns a SELECT of what breaks it, as `id`: of batches, or of jobs. Each is one statement, so that it sees the end
    /// of a job together with the request that this end makes.
    fn query(self) -> String {
        let open = format!(
            "(SELECT id FROM solid_queue_batches WHERE finished_at IS NULL ORDER BY id LIMIT {READ}) AS oldest \
             JOIN solid_queue_batches b ON b.id = oldest.id"
        );
        let waiting = format!(
            "(SELECT x.job_id FROM solid_queue_blocked_executions x WHERE x.concurrency_key = '{WAITS_FOR_PARENTS}' \
             ORDER BY x.priority, x.job_id LIMIT {READ}) AS x"
        );
        let lost = "coalesce((SELECT f.is_final FROM windlass_batch_failures f WHERE f.batch_id = w.parent_batch_id \
             AND f.is_final LIMIT 1), false)";
        let edge = "(SELECT w.id FROM windlass_edges w WHERE w.child_job_id = x.job_id LIMIT 1) IS NOT NULL";
        match self {
            BatchRule::IsMarked => format!(
                "SELECT b.id FROM {open} WHERE {IS_OURS} AND b.enqueued_at < {{later $1}} AND NOT {IS_OPEN} AND NOT {}",
                is_requested_sql(BATCH, "b.id")
            ),
            // The edges of each batch by their index.
            BatchRule::Waits => format!(
                "SELECT w.child_job_id AS id FROM {open} JOIN windlass_edges w ON w.parent_batch_id = b.id \
                 WHERE {IS_OURS} AND b.enqueued_at < {{later $1}} AND w.outcome IS NULL \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = w.child_job_id AND j.finished_at IS NULL) IS NOT NULL \
                 AND (SELECT x.id FROM solid_queue_blocked_executions x WHERE x.job_id = w.child_job_id \
                   AND x.concurrency_key || '' = '{WAITS_FOR_PARENTS}') IS NULL"
            ),
            BatchRule::HasParent => format!(
                "SELECT x.job_id AS id FROM {waiting} WHERE NOT {edge} \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = x.job_id AND j.created_at < {{later $1}}) IS NOT NULL"
            ),
            BatchRule::IsLetGo => format!(
                "SELECT x.job_id AS id FROM {waiting} WHERE {edge} \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = x.job_id AND j.created_at < {{later $1}}) IS NOT NULL \
                 AND (SELECT w.id FROM windlass_edges w WHERE w.child_job_id = x.job_id AND (w.outcome IS NULL \
                   OR w.otherwise = 'wait' AND (w.runs_on = 'success' AND w.outcome <> 'succeeded' AND NOT {lost} \
                     OR w.runs_on = 'failure' AND w.outcome <> 'failed')) LIMIT 1) IS NULL \
                 AND NOT {}",
                is_requested_sql(CHILD, "x.job_id")
            ),
        }
    }
}

/// Finds what breaks a rule: batches for [`BatchRule::IsMarked`], jobs for the others.
pub(crate) fn broken(conn: &mut Conn<'_>, rule: BatchRule) -> QueryResult<Inconsistent> {
    let text = format!(
        "SELECT id FROM ({}) AS broken ORDER BY id LIMIT {READ}",
        rule.query()
    );
    let rows: Vec<Id> = Statement::new(text).uncached().bind(-SETTLED).load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}
