//! Moves scheduled executions that are due to ready.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{Execution, cached, id_list, job_ids, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

/// Makes up to `batch` due jobs ready and returns how many. Any number of
/// dispatchers may do so at once: each takes other rows.
pub(crate) fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let text = conn.write(
            "SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {now} \
             ORDER BY scheduled_at, priority, job_id LIMIT $1 {lock skip}",
        );
        let due: Vec<Execution> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(batch as i64))
            .load(c))?;
        let jobs = job_ids(due);
        if jobs.is_empty() {
            return Ok(0);
        }
        let text =
            conn.write("DELETE FROM solid_queue_scheduled_executions WHERE job_id IN {in $1}");
        on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
            .execute(c))?;
        crate::db::transition::place::enter(conn, &jobs)?;
        Ok(jobs.len())
    })
}
