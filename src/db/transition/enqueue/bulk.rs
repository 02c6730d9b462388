//! Inserts plain jobs in bulk: in one statement, whatever their number.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::param::Param;
use crate::db::conn::sql::Id;
use crate::db::conn::statement::Statement;
use crate::db::conn::wakeup;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::NewRow;
use crate::db::transition::enqueue::insert::ready;
use diesel::prelude::*;
use std::sync::LazyLock;

/// A statement and the columns that it takes.
type BulkInsert = LazyLock<(JobColumns, String)>;

/// Inserts jobs without key and limit, at most a [`CHUNK`](super::insert::CHUNK), and returns their
/// ids in order. SQLite needs a transaction of the caller; Postgres does it in one statement.
pub(crate) fn insert(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    match conn.dialect() {
        Dialect::Postgres if are_alike(rows) => insert_alike(conn, rows),
        Dialect::Postgres => insert_arrays(conn, rows),
        Dialect::Sqlite => insert_json(conn, rows),
    }
}

/// Inserts on SQLite: all rows are one JSON text, which is many times faster than one statement
/// each. The caller's transaction holds the write lock, so the ids from the first to the last are
/// those of the rows, in order.
fn insert_json(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    static JSON: BulkInsert = LazyLock::new(|| {
        let columns = JobColumns::plain();
        let text = format!(
            "INSERT INTO solid_queue_jobs ({}) SELECT {} FROM json_each($1) ORDER BY key RETURNING id",
            columns.names(),
            columns.values(|_, index| format!("value ->> {index}")),
        );
        (columns, text)
    });
    let (columns, text) = &*JSON;
    let values: Vec<_> = rows.iter().map(|row| columns.params(row)).collect();
    let values = serde_json::to_string(&values)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let ids = sorted(Statement::new(text).bind(values).load(conn)?);
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(ids);
    };
    for text in [
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
         SELECT id, queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs \
         WHERE id BETWEEN $1 AND $2 AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id",
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs \
         WHERE id BETWEEN $1 AND $2 AND scheduled_at > created_at ORDER BY id",
    ] {
        Statement::new(text).bind(first).bind(last).execute(conn)?;
    }
    Ok(ids)
}

fn sorted(rows: Vec<Id>) -> Vec<i64> {
    let mut ids: Vec<i64> = rows.into_iter().map(|row| row.id).collect();
    ids.sort_unstable();
    ids
}

/// Returns whether the jobs are due at once and differ only in their arguments, as in most bulk
/// enqueues.
fn are_alike(rows: &[NewRow]) -> bool {
    type Numbers = (i32, Option<i32>, Option<i32>, bool);
    fn common(row: &NewRow) -> ([&str; 2], Option<&str>, Numbers) {
        (
            [&row.queue_name, &row.class_name],
            row.policy.as_deref(),
            (
                row.priority,
                row.max_attempts,
                row.max_crashes,
                row.at_most_once,
            ),
        )
    }
    let Some(first) = rows.first() else {
        return false;
    };
    let first = common(first);
    rows.iter().all(|row| {
        row.at.is_none()
            && row.delay.is_none()
            && row.active_job_id.is_none()
            && common(row) == first
    })
}

/// Inserts such jobs on Postgres: only the arguments are passed as an array, which saves a fifth of
/// the server's time. `unnest` keeps the array's order, and the ids follow it.
fn insert_alike(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    static ALIKE: BulkInsert = LazyLock::new(|| {
        let columns = JobColumns::plain_due();
        let text = format!(
            "WITH job AS (INSERT INTO solid_queue_jobs ({}) SELECT {} FROM unnest({}) AS arguments RETURNING id), \
             ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
               SELECT id, {}, {{now}} FROM job) \
             SELECT id, {} AS notified FROM job",
            columns.names(),
            columns.values(|name, _| match name {
                "arguments" => name.to_owned(),
                _ => columns.parameter(name),
            }),
            columns.parameter("arguments"),
            ready(&columns),
            wakeup::wake("(SELECT count(*) FROM job)"),
        );
        (columns, text)
    });
    let (columns, text) = &*ALIKE;
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let mut statement = Statement::new(text);
    for (name, param) in columns.named_params(first) {
        statement = statement.bind(match name {
            "arguments" => Param::array(rows.iter().map(|row| (&row.arguments).into())),
            _ => param,
        });
    }
    Ok(sorted(statement.load(conn)?))
}

/// Inserts on Postgres: the columns are passed as arrays, which is twice as fast as `VALUES` and
/// always the same statement. Ids are assigned in the order of the sorted select, so the sorted ids
/// are those of the rows in order.
fn insert_arrays(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    static ARRAYS: BulkInsert = LazyLock::new(|| {
        let columns = JobColumns::plain();
        let text = format!(
            "WITH job AS (INSERT INTO solid_queue_jobs ({}) SELECT {} \
               FROM unnest({}) WITH ORDINALITY AS input ({}, ord) ORDER BY ord \
               RETURNING id, queue_name, priority, class_name, at_most_once, crash_count, max_crashes, scheduled_at), \
             ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
               SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM job \
               WHERE scheduled_at IS NULL OR scheduled_at <= {{now}} RETURNING 1), \
             later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
               SELECT id, queue_name, priority, scheduled_at, {{now}} FROM job WHERE scheduled_at > {{now}}), \
             woken AS (SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN {} END) \
             SELECT id, (SELECT count(*) FROM woken) AS woken FROM job ORDER BY id",
            columns.names(),
            columns.values(|name, _| name.to_owned()),
            columns.placeholders(),
            columns.inputs(),
            wakeup::wake("(SELECT count(*) FROM ready)"),
        );
        (columns, text)
    });
    let (columns, text) = &*ARRAYS;
    let rows: Vec<&NewRow> = rows.iter().collect();
    let ids = columns
        .bind_arrays(Statement::new(text), &rows)
        .load(conn)?;
    Ok(sorted(ids))
}
