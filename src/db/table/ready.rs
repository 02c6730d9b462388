//! `solid_queue_ready_executions`: claiming.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, Lossy, id_list};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::table::claimed::semaphore_of;
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

/// No row has the id 0: it stands for the missing row of an outer join.
pub(crate) const NOTHING: i64 = 0;

/// Makes jobs ready, and wakes sleeping workers.
///
/// Jobs with a limit must hold a slot already; see [`super::blocked`] for all others. Few of those with a
/// line are claimed ahead, as a claim notes them as started. An execution
/// that exists already, inserted by another program, does not fail the rest.
pub(crate) fn insert_ready(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at, concurrency_key) \
         SELECT id, queue_name, priority, class_name, (gate IS NOT NULL OR {cautious}), {now}, \
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
    let newest: Id = Statement::new(text).uncached().get_result(conn)?;
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

/// The slot that a deleted ready execution held.
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

// --- The names of the queues with ready executions, found by a loose index scan: one probe per ---

#[derive(QueryableByName)]
struct QueueName {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
}

pub(crate) const WALK: &str = "WITH RECURSIVE walk(queue_name) AS ( \
       SELECT min(queue_name) FROM solid_queue_ready_executions \
       UNION ALL \
       SELECT (SELECT min(r.queue_name) FROM solid_queue_ready_executions r WHERE r.queue_name > walk.queue_name) \
       FROM walk WHERE walk.queue_name IS NOT NULL)";

/// Returns the names of the queues with ready executions that start with `prefix`, in order: one
/// index probe per name, whatever the number of executions.
///
/// It reads all names: in most collations of Postgres, those with one prefix are not adjacent.
pub(crate) fn queue_names(conn: &mut Conn<'_>, prefix: &str) -> QueryResult<Vec<String>> {
    let text = format!("{WALK} SELECT queue_name FROM walk WHERE queue_name IS NOT NULL");
    let names: Vec<QueueName> = Statement::new(text).load(conn)?;
    Ok(names
        .into_iter()
        .map(|row| row.queue_name)
        .filter(|name| name.starts_with(prefix))
        .collect())
}

#[derive(QueryableByName)]
struct PausesAreCrowded {
    #[diesel(sql_type = Bool)]
    crowded: bool,
}

/// Returns whether so many executions wait in paused queues that a scan for the most important one
/// of all queues must not read them one by one.
pub(crate) fn are_pauses_crowded(conn: &mut Conn<'_>) -> QueryResult<bool> {
    // Pause by pause: a join that starts with the ready executions reads all of them, even if
    // nothing is paused.
    let waiting = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT 1 FROM solid_queue_pauses p CROSS JOIN LATERAL ( \
               SELECT 1 FROM solid_queue_ready_executions r WHERE r.queue_name = p.queue_name LIMIT 1000) AS r"
        }
        // SQLite keeps the order of a CROSS JOIN.
        Dialect::Sqlite => {
            "SELECT 1 FROM solid_queue_pauses p \
             CROSS JOIN solid_queue_ready_executions r WHERE r.queue_name = p.queue_name"
        }
    };
    let text = format!("SELECT count(*) >= 1000 AS crowded FROM ({waiting} LIMIT 1000) AS waiting");
    Statement::new(text)
        .get_result::<PausesAreCrowded>(conn)
        .map(|row| row.crowded)
}

/// Returns the queues that are not paused, ordered by the priority, then the age, of their first
/// execution.
pub(crate) fn foremost(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let first = |column: &str| {
        format!(
            "(SELECT r.{column} FROM solid_queue_ready_executions r WHERE r.queue_name = walk.queue_name \
             ORDER BY r.priority, r.job_id LIMIT 1)"
        )
    };
    let text = format!(
        "{WALK}, heads AS (SELECT queue_name, {} AS priority, {} AS job_id FROM walk \
           WHERE queue_name IS NOT NULL AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses)) \
         SELECT queue_name FROM heads WHERE job_id IS NOT NULL ORDER BY priority, job_id",
        first("priority"),
        first("job_id"),
    );
    let names: Vec<QueueName> = Statement::new(text).load(conn)?;
    Ok(names.into_iter().map(|row| row.queue_name).collect())
}
