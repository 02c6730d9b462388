//! The things that a text in the search box names.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use windlass::Conn;
use windlass::internal::db::conn::dialect::Id;
use windlass::internal::db::conn::statement::{Param, Statement};

/// The things that have the text as their name. A unique id and an idempotency key stand for the
/// newest job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub(crate) struct NamedThings {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) of_unique_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) of_idempotency_key: Option<i64>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_class: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) is_queue: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) is_task: bool,
}

/// Looks for what a text names. Classes and queues without a worker or an execution are found among
/// the newest 10,000 jobs.
pub(crate) fn named(conn: &mut Conn<'_>, text: &str) -> QueryResult<NamedThings> {
    let newest = "FROM (SELECT class_name, queue_name FROM solid_queue_jobs ORDER BY id DESC LIMIT 10000) AS newest";
    let statement = format!(
        "SELECT coalesce((SELECT max(job_id) FROM windlass_unique_jobs WHERE unique_id = $1), \
           (SELECT max(known.id) FROM (SELECT id FROM solid_queue_jobs WHERE unique_id = $1 LIMIT 10000) AS known), \
           (SELECT max(job_id) FROM windlass_results WHERE unique_id = $1 AND expires_at > {{now}})) AS of_unique_id, \
         (SELECT max(id) FROM solid_queue_jobs WHERE idempotency_key = $1) AS of_idempotency_key, \
         EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = $1) \
           OR EXISTS (SELECT 1 {newest} WHERE class_name = $1) AS is_class, \
         EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE queue_name = $1) \
           OR EXISTS (SELECT 1 FROM solid_queue_pauses WHERE queue_name = $1) \
           OR EXISTS (SELECT 1 FROM windlass_classes WHERE queue_name = $1) \
           OR EXISTS (SELECT 1 {newest} WHERE queue_name = $1) AS is_queue, \
         EXISTS (SELECT 1 FROM solid_queue_recurring_tasks WHERE key = $1) AS is_task"
    );
    Statement::new(statement)
        .uncached()
        .bind(text)
        .get_result(conn)
}

/// Returns whether anything is stored of a job: its row, or its result.
pub(crate) fn is_job(conn: &mut Conn<'_>, job: i64) -> QueryResult<bool> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id = $1 UNION ALL \
         SELECT job_id FROM windlass_results WHERE job_id = $1 AND expires_at > {now}";
    let found: Vec<Id> = Statement::new(text).uncached().bind(job).load(conn)?;
    Ok(!found.is_empty())
}

/// Returns the jobs with a unique id; `None` if there are more than `most`.
pub(crate) fn with_unique_id(
    conn: &mut Conn<'_>,
    unique_id: &str,
    most: usize,
) -> QueryResult<Option<Vec<i64>>> {
    few(conn, "unique_id", unique_id.into(), most)
}

/// Returns the jobs of a batch; `None` if there are more than `most`.
pub(crate) fn of_batch(
    conn: &mut Conn<'_>,
    batch: i64,
    most: usize,
) -> QueryResult<Option<Vec<i64>>> {
    few(conn, "batch_id", batch.into(), most)
}

fn few(
    conn: &mut Conn<'_>,
    column: &str,
    value: Param<'_>,
    most: usize,
) -> QueryResult<Option<Vec<i64>>> {
    let text = format!("SELECT id FROM solid_queue_jobs WHERE {column} = $1 LIMIT $2");
    let found: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(value)
        .bind(i64::try_from(most.saturating_add(1)).unwrap_or(i64::MAX))
        .load(conn)?;
    let ids: Vec<i64> = found.into_iter().map(|row| row.id).collect();
    Ok((ids.len() <= most).then_some(ids))
}

/// A class that a worker performs, and its default queue.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct KnownClass {
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
}

/// Returns the classes that workers perform, at most 500.
pub(crate) fn known_classes(conn: &mut Conn<'_>) -> QueryResult<Vec<KnownClass>> {
    let text = "SELECT class_name, queue_name FROM windlass_classes ORDER BY class_name LIMIT 500";
    Statement::new(text).uncached().load(conn)
}
