//! Enqueues as Solid Queue does.

use crate::db::Conn;
use crate::laboratory::plain::statement::{PlainId, Prepared, render};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

/// Enqueues a job without arguments as Ruby does: the job and its ready execution in one transaction, which names
/// nothing but Solid Queue's own columns.
pub(crate) fn enqueue(conn: &mut Conn<'_>, class: &str) -> QueryResult<()> {
    let envelope = format!(
        "{{\"job_class\":\"{class}\",\"job_id\":\"b695d682-c0e8-420e-88a8-3198bc12371e\",\"arguments\":[],\"executions\":0}}"
    );
    conn.transaction(|conn| {
        let job = render(
            conn,
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, active_job_id, created_at, updated_at) \
             VALUES ('default', $1, $2, 0, 'b695d682-c0e8-420e-88a8-3198bc12371e', {now}, {now}) RETURNING id",
        );
        let ready = render(
            conn,
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
             VALUES ($1, 'default', 0, {now})",
        );
        let job = || {
            let job = diesel::sql_query(job.clone());
            Prepared(job.bind::<Text, _>(class).bind::<Text, _>(&envelope))
        };
        match conn {
            Conn::Postgres(conn) => {
                let row: PlainId = job().get_result(*conn)?;
                Prepared(diesel::sql_query(ready).bind::<BigInt, _>(row.id)).run(*conn)
            }
            Conn::Sqlite(conn) => {
                let row: PlainId = job().get_result(*conn)?;
                Prepared(diesel::sql_query(ready).bind::<BigInt, _>(row.id)).run(*conn)
            }
        }
    })
}
