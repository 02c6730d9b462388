//! The tables of executions, where a statement is the same for each.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::table::{blocked, ready, scheduled};
use diesel::prelude::*;

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
        .uncached()
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
            JobState::Blocked => blocked::take(conn, &found)?,
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

pub(crate) const WAITING: [&str; 3] = [READY, "solid_queue_scheduled_executions", BLOCKED];

pub(crate) const READY: &str = "solid_queue_ready_executions";

pub(crate) const BLOCKED: &str = "solid_queue_blocked_executions";
