//! Finished jobs that are kept, and what workers have left to do.

use crate::db::conn::typed::with_conn;
use crate::db::{AsConn as _, Conn, Database, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::plain::tables::{
    solid_queue_claimed_executions as claimed, solid_queue_processes as processes,
    solid_queue_ready_executions as ready,
};
use crate::laboratory::sql::{execute, render};
use diesel::dsl::{exists, select};
use diesel::prelude::*;

/// Rows of one statement, so that no transaction becomes very large.
const CHUNK: u32 = 250_000;

/// Inserts finished jobs, which ended in the order of their ids, and collects statistics.
/// `progress` is called with the number of jobs so far.
pub(crate) fn add(database: &Database, count: u32, progress: &dyn Fn(u32)) -> Result<()> {
    let mut connection = database.connect()?;
    let mut done = 0;
    while done < count {
        let until = (done + CHUNK).min(count);
        let text = format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, created_at, \
               updated_at, finished_at, attempts) \
             SELECT 'default', 'windlass_bench_kept', '{{\"number\":' || n.i || '}}', 0, \
               {{ago 10.0 + ({count} - n.i) * 0.001}}, {{ago 5.0 + ({count} - n.i) * 0.001}}, \
               {{ago 5.0 + ({count} - n.i) * 0.001}}, 1 FROM {{numbers}}"
        );
        let mut conn = connection.as_conn();
        let text = render(&conn, (i64::from(done) + 1, i64::from(until)), &text);
        execute(&mut conn, &text).during("insert finished jobs")?;
        done = until;
        progress(done);
    }
    collect(&mut connection.as_conn()).during("collect statistics")
}

fn collect(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text = match conn {
        Conn::Postgres(_) => "VACUUM ANALYZE solid_queue_jobs",
        Conn::Sqlite(_) => "ANALYZE; PRAGMA wal_checkpoint(TRUNCATE);",
    };
    execute(conn, text)
}

/// Returns how many processes there are.
pub(crate) fn registered(connection: &mut DbConnection) -> Result<i64> {
    with_conn!(connection, |c| processes::table.count().get_result(c)).during("count processes")
}

/// Returns whether no job is ready or runs.
pub(crate) fn is_drained(connection: &mut DbConnection) -> Result<bool> {
    let left: bool = with_conn!(connection, |c| select(
        exists(ready::table.select(ready::id)).or(exists(claimed::table.select(claimed::id)))
    )
    .get_result(c))
    .during("look for jobs")?;
    Ok(!left)
}
