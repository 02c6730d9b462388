//! `solid_queue_ready_executions`: claiming.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, id_list};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::table::claimed::semaphore_of;
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

/// No row has the id 0: it stands for the missing row of an outer join.
pub(crate) const NOTHING: i64 = 0;

/// Makes jobs ready, and wakes sleeping workers.
///
/// Jobs with a limit must hold a slot already; see [`super::blocked`] for all others. An execution
/// that exists already, inserted by another program, does not fail the rest.
pub(crate) fn insert(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at, concurrency_key) \
         SELECT id, queue_name, priority, class_name, {cautious}, {now}, \
           CASE WHEN concurrency_slots IS NOT NULL THEN concurrency_key END \
         FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text).bind(id_list(jobs)).execute(conn)?;
    crate::db::conn::listening::notify(conn, jobs.len())
}

/// Returns an id that no execution exceeds so far. Ids are never given twice.
///
/// Postgres asks the sequence: the end of the index may have many deleted rows, which a long
/// transaction keeps from being vacuumed.
pub(crate) fn newest(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT coalesce(pg_sequence_last_value( \
               pg_get_serial_sequence('solid_queue_ready_executions', 'id')::regclass), \
               (SELECT max(id) FROM solid_queue_ready_executions), 0) AS id"
        }
        Dialect::Sqlite => {
            "SELECT coalesce((SELECT max(id) FROM solid_queue_ready_executions), 0) AS id"
        }
    };
    let newest: Id = Statement::new(text).unkept().get_result(conn)?;
    Ok(newest.id)
}

/// Has the next run of these jobs marked as started only when a thread is free for it.
pub(crate) fn mark_cautious(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "UPDATE solid_queue_ready_executions SET cautious = true WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}

/// Deletes the ready executions of jobs, which frees their slots.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let slots = take(conn, jobs)?;
    let keys = slots.iter().filter_map(|slot| slot.concurrency_key.clone());
    wanted_keys::request_promotion(conn, &keys.collect())?;
    let semaphores = slots.iter().filter_map(|slot| slot.semaphore_id);
    wanted_keys::request(conn, semaphores.map(|id| NewRequest::Semaphore(id, 1)))
}

/// What a deleted ready execution held.
#[derive(Debug, QueryableByName)]
pub(crate) struct TakenSlot {
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
    /// The semaphore of Ruby of which it held a slot.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) semaphore_id: Option<i64>,
}

/// Deletes the ready executions of jobs, and returns their slots, which the caller frees or uses.
pub(crate) fn take(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<TakenSlot>> {
    let text = format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id IN {{in $1}} \
         RETURNING concurrency_key, CASE WHEN class_name IS NULL THEN {} END AS semaphore_id",
        semaphore_of("solid_queue_ready_executions"),
    );
    Statement::new(text).bind(id_list(jobs)).load(conn)
}

/// A deleted ready execution. Values that another program may have stored are texts.
#[derive(Debug, QueryableByName)]
pub(crate) struct TakenRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Nullable<Text>)]
    class_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    cautious: Option<String>,
    #[diesel(sql_type = Text)]
    created_at: String,
    #[diesel(sql_type = Nullable<Text>)]
    concurrency_key: Option<String>,
}

/// Deletes the ready executions of jobs, which the caller inserts again.
pub(crate) fn take_rows(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<TakenRow>> {
    let text = "DELETE FROM solid_queue_ready_executions WHERE job_id IN {in $1} RETURNING job_id, priority, class_name, \
         CAST(cautious AS text) AS cautious, CAST(created_at AS text) AS created_at, concurrency_key";
    Statement::new(text).bind(id_list(jobs)).load(conn)
}

/// Inserts executions that were deleted, on another queue, and wakes sleeping workers.
pub(crate) fn put_rows(conn: &mut Conn<'_>, rows: &[TakenRow], queue: &str) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let row = |row: &'_ TakenRow| {
        [
            row.job_id.into(),
            i64::from(row.priority).into(),
            row.class_name.clone().into(),
            row.cautious.clone().into(),
            row.created_at.clone().into(),
            row.concurrency_key.clone().into(),
            queue.to_owned().into(),
        ]
    };
    let input = InputRows {
        names: [
            "job_id",
            "priority",
            "class_name",
            "cautious",
            "created_at",
            "concurrency_key",
            "queue_name",
        ],
        rows: rows.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at, concurrency_key) \
         SELECT input.job_id, input.queue_name, input.priority, input.class_name, \
           CASE WHEN input.cautious IS NOT NULL THEN input.cautious IN ('true', '1') END, \
           {{time input.created_at}}, input.concurrency_key FROM {} ORDER BY input.job_id",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)?;
    crate::db::conn::listening::notify(conn, rows.len())
}
