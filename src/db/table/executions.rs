//! The tables of executions, where a statement is the same for each.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, IdRange, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::new_row::UniqueScope;
use crate::db::table::{ready, scheduled};
use diesel::prelude::*;
use std::collections::BTreeSet;

/// Locks the executions of jobs in one state, in order, and returns the jobs that have one. Waits
/// for transactions that are moving one of them.
pub(crate) fn lock(conn: &mut Conn<'_>, state: JobState, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT job_id FROM {} WHERE job_id IN {{in $1}} ORDER BY id + 0 {{lock}}",
        state.table()
    );
    Statement::new(text)
        .bind(id_list(jobs))
        .load(conn)
        .map(job_ids)
}

/// Does the same, but skips what other transactions have locked.
pub(crate) fn lock_free(
    conn: &mut Conn<'_>,
    state: JobState,
    jobs: &[i64],
) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT job_id FROM {} WHERE job_id IN {{in $1}} ORDER BY id + 0 {{lock skip}}",
        state.table()
    );
    Statement::new(text)
        .unkept()
        .bind(id_list(jobs))
        .load(conn)
        .map(job_ids)
}

/// Deletes the executions of jobs in any of `states`, and returns the jobs that had one.
pub(crate) fn take(
    conn: &mut Conn<'_>,
    states: &[JobState],
    jobs: &[i64],
) -> QueryResult<Vec<i64>> {
    let mut taken = Vec::new();
    for state in JobState::WITH_EXECUTION {
        if !states.contains(&state) {
            continue;
        }
        let found = lock(conn, state, jobs)?;
        if found.is_empty() {
            continue;
        }
        match state {
            JobState::Ready => ready::delete(conn, &found)?,
            JobState::Scheduled => scheduled::delete(conn, &found)?,
            _ => {
                let table = state.table();
                let text = format!("DELETE FROM {table} WHERE job_id IN {{in $1}}");
                Statement::new(text).bind(id_list(&found)).execute(conn)?;
            }
        }
        taken.extend(found);
    }
    taken.sort_unstable();
    // Another program may have given a job two executions.
    taken.dedup();
    Ok(taken)
}

// --- `windlass_unique_jobs`: which job holds a unique id ---

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
