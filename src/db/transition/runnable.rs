//! Makes a job wait again: ready, scheduled or blocked.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::table::blocked::{has_gate, insert_blocked};
use diesel::prelude::*;

/// Makes jobs without an execution ready or scheduled, by their time.
pub(crate) fn make_ready_or_scheduled(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, scheduled_at, {now} FROM solid_queue_jobs \
         WHERE id IN {in $1} AND scheduled_at > {now} ORDER BY id \
         ON CONFLICT (job_id) DO UPDATE SET scheduled_at = excluded.scheduled_at RETURNING job_id";
    let later: Vec<Execution> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let later = job_ids(later);
    let now: Vec<i64> = jobs
        .iter()
        .filter(|job| !later.contains(job))
        .copied()
        .collect();
    if now.is_empty() {
        return Ok(());
    }
    make_runnable(conn, &now)
}

/// Makes jobs without an execution ready, and wakes sleeping workers. Those with a limit or a
/// rate are blocked, and promoted soon after if they may run.
pub(crate) fn make_runnable(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    // An execution that exists already, inserted by another program, does not fail the rest.
    let text = format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
         SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $1}} AND NOT {} ORDER BY id ON CONFLICT (job_id) DO NOTHING",
        has_gate("")
    );
    let ready = Statement::new(text).bind(id_list(jobs)).changes(conn)?;
    if ready < jobs.len() {
        insert_blocked(conn, jobs)?;
    }
    crate::db::conn::listening::notify(conn, jobs.len())
}
