//! Moves waiting jobs to another queue.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::state::JobState;
use crate::db::table::{blocked, executions, ready, scheduled};
use diesel::prelude::*;

/// Gives waiting jobs another queue, and returns those that had a different one. They keep their
/// time, their priority and their slot.
///
/// Their executions are replaced by new ones: a claim or a dispatch that has started may have read
/// the old row of the job already, and does not find the execution that it has seen any more.
pub(crate) fn requeue(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let mut found = Vec::new();
        for state in JobState::WAITING {
            found.extend(executions::lock(conn, state, jobs)?);
        }
        found.sort_unstable();
        found.dedup();
        let found = others(conn, &found, queue)?;
        if found.is_empty() {
            return Ok(found);
        }
        let later = scheduled::take_rows(conn, &found)?;
        let waiting = blocked::take_for_queue(conn, &found, queue)?;
        let now = ready::take_rows(conn, &found)?;
        set_queue(conn, &found, queue)?;
        scheduled::put_rows(conn, &later, queue)?;
        if !waiting.is_empty() {
            blocked::insert(conn, &waiting)?;
        }
        ready::put_rows(conn, &now, queue)?;
        Ok(found)
    })
}

/// Locks the rows of jobs, and returns those of another queue.
fn others(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<Vec<i64>> {
    let text = "SELECT id AS job_id FROM solid_queue_jobs WHERE id IN {in $1} AND queue_name <> $2 \
         ORDER BY id {lock}";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(queue)
        .load::<Execution>(conn)
        .map(job_ids)
}

fn set_queue(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<()> {
    let text =
        "UPDATE solid_queue_jobs SET queue_name = $1, updated_at = {now} WHERE id IN {in $2}";
    Statement::new(text)
        .bind(queue)
        .bind(id_list(jobs))
        .execute(conn)
}
