//! Inserts plain jobs in bulk that differ in more than [`alike`](super::alike) allows.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::listening;
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::NewRow;
use diesel::prelude::*;
use std::sync::LazyLock;

/// Inserts jobs without key and limit, at most a [`CHUNK`](super::insert::CHUNK), and returns their
/// ids in order. SQLite needs a transaction of the caller; Postgres does it in one statement.
pub(crate) fn insert_plain(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    match conn.dialect() {
        Dialect::Postgres => insert_arrays(conn, rows),
        Dialect::Sqlite => insert_json(conn, rows),
    }
}

/// Inserts on SQLite: all rows are one JSON text, which is many times faster than one statement
/// each. The caller's transaction holds the write lock, so the ids from the first to the last are
/// those of the rows, in order.
fn insert_json(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    static JSON: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
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

/// Inserts on Postgres: the columns are passed as arrays, which is twice as fast as `VALUES` and
/// always the same statement. Ids are assigned in the order of the sorted select, so the sorted ids
/// are those of the rows in order.
fn insert_arrays(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    static ARRAYS: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
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
            listening::wake("(SELECT count(*) FROM ready)"),
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
