//! `windlass_unique_jobs`: which job holds a unique id.
//!
//! The row is the constraint and the lock; whether it is still valid follows from the state of its
//! job. So a claim or the end of a job does not have to free anything, and neither claims, ends nor
//! clearing ever wait for a transaction that enqueues. Only transactions that enqueue or retry jobs
//! wait for these rows, in the order of the unique ids, before they lock an execution of a waiting
//! job.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, IdRange, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::UniqueScope;
use diesel::prelude::*;
use std::collections::BTreeSet;

pub(crate) const WAITING: [&str; 3] = [READY, "solid_queue_scheduled_executions", BLOCKED];

pub(crate) const READY: &str = "solid_queue_ready_executions";

pub(crate) const BLOCKED: &str = "solid_queue_blocked_executions";

/// Takes the unique ids of new jobs of a range on SQLite, and deletes those jobs again whose unique
/// id has a row. Returns the ids of the others, or `None` if that is all of them.
pub(crate) fn take_free(
    conn: &mut Conn<'_>,
    jobs: IdRange,
    scope: UniqueScope,
) -> QueryResult<Option<BTreeSet<i64>>> {
    let text = "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
         SELECT unique_id, id, $1 FROM solid_queue_jobs WHERE id BETWEEN $2 + 1 AND $3 \
         ON CONFLICT (unique_id) DO NOTHING";
    let taken = Statement::new(text)
        .bind(scope.column())
        .bind(jobs.after)
        .bind(jobs.up_to)
        .changes(conn)?;
    if usize::try_from(jobs.up_to - jobs.after) == Ok(taken) {
        return Ok(None);
    }
    let text = "SELECT job_id FROM windlass_unique_jobs WHERE job_id BETWEEN $1 + 1 AND $2";
    let free: Vec<Execution> = Statement::new(text)
        .bind(jobs.after)
        .bind(jobs.up_to)
        .load(conn)?;
    let text = "DELETE FROM solid_queue_jobs WHERE id BETWEEN $1 + 1 AND $2 \
         AND id NOT IN (SELECT job_id FROM windlass_unique_jobs WHERE job_id BETWEEN $1 + 1 AND $2)";
    Statement::new(text)
        .bind(jobs.after)
        .bind(jobs.up_to)
        .execute(conn)?;
    Ok(Some(job_ids(free).into_iter().collect()))
}
