//! Unique ids after the end of a job: the job that waited for it becomes runnable, a failed job
//! takes its own back for a retry, and those of deleted jobs are freed.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::Cursor;
use crate::db::model::new_row::UniqueScope;
use crate::db::model::wait_keys::UNIQUE_SUCCESSOR;
use crate::db::transition::unique::resolve_conflict::{
    self, NewUniqueRow, holder, insert, lock, take_over,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Deserialize;

/// A condition: no job is left that the one of a blocked execution `b` waits for.
///
/// It counts, as the planner may read all jobs at once for a NOT EXISTS, and has `coalesce`, as it
/// may otherwise read, for each job, all that wait for another.
pub(crate) const IS_FREE: &str = "(SELECT count(*) FROM windlass_unique_jobs u JOIN solid_queue_jobs h ON h.id = coalesce(u.after_job_id, 0) \
     WHERE u.job_id = b.job_id AND h.finished_at IS NULL \
     AND (SELECT count(*) FROM solid_queue_failed_executions f WHERE f.job_id = h.id) = 0) = 0";

/// Makes jobs runnable that waited for one of these jobs to free a unique id.
pub(crate) fn unblock(conn: &mut Conn<'_>, ended: &[i64]) -> QueryResult<()> {
    let behind = "IN (SELECT job_id FROM windlass_unique_jobs WHERE after_job_id IN {in $2})";
    unblock_free(conn, behind, ended).map(drop)
}

/// Makes those of the jobs runnable that wait for none, and returns how many. `which` selects them
/// by the ids `$2`.
fn unblock_free(conn: &mut Conn<'_>, which: &str, ids: &[i64]) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let text = format!(
            "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.concurrency_key = $1 \
             AND {IS_FREE} AND b.job_id {which} ORDER BY b.job_id + 0 {{lock skip of b}}"
        );
        let free: Vec<Execution> = Statement::new(text)
            .bind(UNIQUE_SUCCESSOR)
            .bind(id_list(ids))
            .load(conn)?;
        let free = job_ids(free);
        if free.is_empty() {
            return Ok(0);
        }
        let text = "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1}";
        Statement::new(text).bind(id_list(&free)).execute(conn)?;
        crate::db::transition::place::place(conn, &free)?;
        Ok(free.len())
    })
}

#[derive(QueryableByName)]
struct WaitingForOther {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Bool)]
    is_free: bool,
}

/// How many jobs one transaction makes runnable.
const AT_ONCE: usize = 500;

/// One page of a scan of the jobs that wait for another.
#[derive(Debug)]
pub(crate) struct UnblockedPage {
    /// The last job that was read; `None` at the end of the scan.
    pub(crate) reached: Option<Cursor>,
    /// How many jobs wait no longer.
    #[allow(dead_code, reason = "read by internal tests")]
    pub(crate) unblocked: usize,
}

/// Reads `batch` jobs that wait for another, after a cursor in their order, and makes those
/// runnable whose wait is over. The end of the other job has not seen them, as they were not
/// committed yet.
pub(crate) fn sweep(
    conn: &mut Conn<'_>,
    beyond: Cursor,
    batch: usize,
) -> QueryResult<UnblockedPage> {
    let text = format!(
        "SELECT b.job_id, b.priority, {IS_FREE} AS is_free FROM solid_queue_blocked_executions b \
         WHERE b.concurrency_key = $1 AND (b.priority, b.job_id) > ($2, $3) \
         ORDER BY b.priority, b.job_id LIMIT $4"
    );
    let seen: Vec<WaitingForOther> = Statement::new(text)
        .bind(UNIQUE_SUCCESSOR)
        .bind(beyond.priority)
        .bind(beyond.job_id)
        .bind(batch as i64)
        .load(conn)?;
    let free: Vec<&WaitingForOther> = seen
        .iter()
        .filter(|job| job.is_free)
        .take(AT_ONCE)
        .collect();
    // The next stretch begins after the last one that this takes.
    let last = match free.len() < AT_ONCE {
        true => seen.last().filter(|_| seen.len() == batch),
        false => free.last().copied(),
    };
    let reached = last.map(|last| Cursor {
        priority: last.priority,
        job_id: last.job_id,
    });
    let free: Vec<i64> = free.into_iter().map(|job| job.job_id).collect();
    let unblocked = if free.is_empty() {
        0
    } else {
        unblock_free(conn, "IN {in $2}", &free)?
    };
    Ok(UnblockedPage { reached, unblocked })
}

#[derive(QueryableByName)]
struct FailedUniqueJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    unique_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

#[derive(Deserialize)]
struct ScopePolicy {
    unique_scope: Option<UniqueScope>,
}

/// Takes the unique ids back for failed jobs that run again, and returns the jobs whose unique id
/// another holds by now.
pub(crate) fn retake(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "WITH chosen AS MATERIALIZED (SELECT id, unique_id, policy FROM solid_queue_jobs WHERE id IN {in $1}) \
         SELECT id, unique_id, policy FROM chosen WHERE unique_id IS NOT NULL ORDER BY unique_id, id";
    let named: Vec<FailedUniqueJob> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let mut refused = Vec::new();
    let mut had = String::new();
    for job in named {
        // Of two jobs with the same one, only the first can have it.
        if job.unique_id == had || !retake_one(conn, &job)? {
            refused.push(job.id);
        } else {
            had = job.unique_id;
        }
    }
    Ok(refused)
}

fn retake_one(conn: &mut Conn<'_>, job: &FailedUniqueJob) -> QueryResult<bool> {
    let stored: Option<ScopePolicy> = job
        .policy
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let scope = stored
        .and_then(|policy| policy.unique_scope)
        .unwrap_or_default();
    let name = &job.unique_id;
    for _ in 0..resolve_conflict::ROUNDS {
        if !insert(conn, &[NewUniqueRow(name, job.id, scope.column())])?.is_empty() {
            return Ok(true);
        }
        let Some(hold) = lock(conn, name)? else {
            continue;
        };
        if holder(conn, &hold)?.is_some_and(|holder| holder.job_id != job.id) {
            return Ok(false);
        }
        take_over(conn, name, job.id, scope, None)?;
        return Ok(true);
    }
    Err(diesel::result::Error::NotFound)
}

/// Deletes the rows of jobs that are gone, except those that a result still holds and those that
/// another transaction has locked.
pub(crate) fn forget(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    // It counts, as the planner may read all jobs at once for a NOT EXISTS.
    let text = "DELETE FROM windlass_unique_jobs WHERE unique_id IN (SELECT unique_id FROM windlass_unique_jobs u \
         WHERE job_id IN {in $1} \
         AND (SELECT count(*) FROM windlass_results r WHERE r.job_id = u.job_id AND r.expires_at > {now}) = 0 \
         AND (SELECT count(*) FROM solid_queue_jobs h WHERE h.id = u.after_job_id AND h.finished_at IS NULL) = 0 \
         ORDER BY unique_id || '' {lock skip})";
    Statement::new(text)
        .bind(id_list(jobs))
        .unkept()
        .changes(conn)
}
