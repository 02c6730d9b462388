//! Moves scheduled executions that are due to ready.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::{Execution, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::conn::wakeup;
use crate::db::table::blocked::{self, RETURNING};
use crate::db::transition::place;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// Makes up to `batch` due jobs ready and returns how many. Any number of dispatchers may do so at
/// once: each takes different rows.
pub(crate) fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    match conn.dialect() {
        Dialect::Postgres => insert_or_look(conn, batch),
        Dialect::Sqlite => conn.transaction(|conn| {
            let text = "DELETE FROM solid_queue_scheduled_executions WHERE id IN \
                 (SELECT id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {now} \
                  ORDER BY scheduled_at, priority, job_id LIMIT $1) RETURNING job_id";
            let due: Vec<Execution> = Statement::new(text).bind(batch as i64).load(conn)?;
            let jobs = job_ids(due);
            if !jobs.is_empty() {
                place::make_runnable(conn, &jobs)?;
            }
            Ok(jobs.len())
        }),
    }
}

#[derive(QueryableByName)]
struct Dispatched {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Dispatches on Postgres. Only another program can insert a ready execution of a scheduled job, so
/// the insert looks for one only after it has met one: ON CONFLICT writes each row twice into the
/// log.
fn insert_or_look(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    // An error would end the caller's transaction.
    if !conn.is_in_transaction() {
        match in_one_statement(conn, batch, "") {
            Err(DatabaseError(UniqueViolation, _)) => {}
            done => return done,
        }
    }
    in_one_statement(conn, batch, "ON CONFLICT (job_id) DO NOTHING")
}

/// Dispatches in one statement.
fn in_one_statement(conn: &mut Conn<'_>, batch: usize, on_conflict: &str) -> QueryResult<usize> {
    let text = format!(
        "WITH picked AS MATERIALIZED (SELECT job_id FROM solid_queue_scheduled_executions \
           WHERE scheduled_at <= {{now}} ORDER BY scheduled_at, priority, job_id LIMIT $1 FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM solid_queue_scheduled_executions WHERE job_id = ANY (ARRAY(SELECT job_id FROM picked)) \
           RETURNING job_id), \
         due AS MATERIALIZED (SELECT {RETURNING} FROM solid_queue_jobs WHERE id = ANY (ARRAY(SELECT job_id FROM gone))), \
         {limited}, \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM due WHERE NOT {has_key} \
           ORDER BY id {on_conflict} RETURNING 1), \
         woken AS (SELECT CASE WHEN EXISTS (SELECT 1 FROM due) THEN {wake} END) \
         SELECT (SELECT count(*) FROM gone) AS count, (SELECT count(*) FROM woken) AS woken",
        limited = blocked::due_ctes("due WHERE", "wanted"),
        has_key = blocked::has_key("concurrency_key"),
        wake = wakeup::wake("(SELECT count(*) FROM ready) + (SELECT count(*) FROM wanted)"),
    );
    let moved: Dispatched = Statement::new(text).bind(batch as i64).get_result(conn)?;
    Ok(usize::try_from(moved.count).unwrap_or(0))
}
