//! Finds jobs that wait although what they waited for has ended, as after a program has replaced the tables and their
//! triggers.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::Cursor;
use crate::db::model::wait_keys::WAITS_FOR_PARENTS;
use crate::db::table::flows::{batches, members};
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable};
use std::collections::BTreeSet;

/// In microseconds: by then, the promotions that were requested have been made.
const OVERDUE_AFTER: i64 = 60_000_000;

#[derive(QueryableByName)]
struct WaitingChild {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
}

#[derive(QueryableByName)]
struct Overdue {
    #[diesel(sql_type = Nullable<BigInt>)]
    child: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_job: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_batch: Option<i64>,
}

impl Overdue {
    fn request(&self) -> Option<NewRequest> {
        let job = self.parent_job.map(NewRequest::Ended);
        let batch = self.parent_batch.map(NewRequest::Batch);
        job.or(batch).or(self.child.map(NewRequest::Child))
    }
}

/// Reads `batch` jobs that wait for parents, after a cursor in their order, and requests a promotion where it is overdue.
/// Returns the last one if there may be more.
pub(crate) fn request_overdue(
    conn: &mut Conn<'_>,
    beyond: Cursor,
    batch: usize,
) -> QueryResult<Option<Cursor>> {
    let text = "SELECT b.job_id, b.priority FROM solid_queue_blocked_executions b \
         WHERE b.concurrency_key = $1 AND (b.priority, b.job_id) > ($2, $3) ORDER BY b.priority, b.job_id LIMIT $4";
    let seen: Vec<WaitingChild> = Statement::new(text)
        .unkept()
        .bind(WAITS_FOR_PARENTS)
        .bind(beyond.priority)
        .bind(beyond.job_id)
        .bind(batch as i64)
        .load(conn)?;
    let jobs: Vec<i64> = seen.iter().map(|job| job.job_id).collect();
    if !jobs.is_empty() {
        let overdue = overdue(conn, &jobs)?;
        let requests: BTreeSet<NewRequest> = overdue.iter().filter_map(Overdue::request).collect();
        wanted_keys::request(conn, requests)?;
        for batch in batches::failed_parents(conn, &jobs)? {
            decide(conn, batch)?;
        }
    }
    let last = seen.last().filter(|_| seen.len() == batch);
    Ok(last.map(|last| Cursor {
        priority: last.priority,
        job_id: last.job_id,
    }))
}

/// Requests a promotion for a batch that has failed, if it is decided whether a retry can bring it to success. Another
/// program may have retried a job of it, or deleted one where the triggers were missing. One transaction: without the
/// request, nothing would tell later that a failure is gone.
fn decide(conn: &mut Conn<'_>, batch: i64) -> QueryResult<()> {
    conn.transaction(|conn| {
        let is_settled = members::settle_failures(conn, batch)?;
        if is_settled || !batches::without_retry(conn, &[batch])?.is_empty() {
            wanted_keys::request(conn, [NewRequest::Batch(batch)])?;
        }
        Ok(())
    })
}

/// How many edges of the jobs are looked at: all that a hundred of them can have.
const MOST: i64 = 100_000;

fn overdue(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<Overdue>> {
    let text = "WITH chosen AS MATERIALIZED (SELECT w.* FROM windlass_edges w WHERE w.child_job_id IN {in $1} \
           AND w.created_at < {later $2} ORDER BY w.child_job_id, w.parent_job_id LIMIT $3) \
         SELECT CAST(NULL AS bigint) AS child, w.parent_job_id AS parent_job, CAST(NULL AS bigint) AS parent_batch FROM chosen w \
         LEFT JOIN solid_queue_jobs j ON j.id = w.parent_job_id WHERE w.parent_job_id IS NOT NULL \
         AND (w.outcome IS NULL OR w.outcome = 'failed' AND w.otherwise = 'wait') AND (j.id IS NULL OR j.finished_at IS NOT NULL \
           OR w.outcome IS NULL AND (SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = j.id LIMIT 1) IS NOT NULL) \
         UNION ALL SELECT NULL, NULL, w.parent_batch_id FROM chosen w JOIN solid_queue_batches b ON b.id = w.parent_batch_id \
         WHERE w.outcome IS NULL AND b.finished_at IS NOT NULL \
         UNION ALL SELECT w.child_job_id, NULL, NULL FROM chosen w GROUP BY w.child_job_id \
         HAVING max(CASE WHEN w.runs_on = 'success' AND w.otherwise <> 'wait' AND w.outcome = 'failed' THEN 1 ELSE 0 END) = 1 \
           OR count(w.outcome) = count(*) AND max(CASE WHEN w.otherwise = 'wait' AND w.outcome = 'failed' THEN 1 ELSE 0 END) = 0";
    Statement::new(text)
        .unkept()
        .bind(id_list(jobs))
        .bind(-OVERDUE_AFTER)
        .bind(MOST)
        .load(conn)
}
