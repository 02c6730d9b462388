//! Moves scheduled executions that are due to ready.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;

/// Makes up to `batch` due jobs ready and returns how many. Any number of dispatchers may do so at
/// once: each takes different rows.
pub(crate) fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let text = "SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {now} \
             ORDER BY scheduled_at, priority, job_id LIMIT $1 {lock skip}";
        let due: Vec<Execution> = Statement::new(text).bind(batch as i64).load(conn)?;
        let jobs = job_ids(due);
        if jobs.is_empty() {
            return Ok(0);
        }
        let text =
            "DELETE FROM solid_queue_scheduled_executions WHERE job_id IN {in $1}";
        Statement::new(text).bind(id_list(&jobs)).execute(conn)?;
        crate::db::transition::place::make_runnable(conn, &jobs)?;
        Ok(jobs.len())
    })
}
