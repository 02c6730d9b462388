//! Inserting many plain jobs: in one statement, whatever their number.

use crate::db::conn::connection::Conn;
#[cfg(feature = "sqlite")]
use crate::db::conn::connection::on;
use crate::db::conn::sql::{Id, cached, sql, timestamp};
use crate::db::model::new_row::NewRow;
#[cfg(feature = "postgres")]
use crate::db::transition::enqueue::insert::COLUMNS;
use diesel::prelude::*;
#[cfg(feature = "postgres")]
use diesel::sql_types::{Array, Bool, Integer, Nullable};
use diesel::sql_types::{BigInt, Text};

/// Inserts jobs that have no key and no limit, at most a [`CHUNK`](super::jobs::CHUNK),
/// and returns their ids in order. SQLite needs a transaction of the caller;
/// Postgres does it in one statement.
pub(crate) fn insert(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) if are_alike(rows) => insert_alike(conn, rows),
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => insert_arrays(conn, rows),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => insert_json(conn, rows),
    }
}

/// SQLite: all rows as one JSON text, which is many times faster than one
/// after the other. The caller's transaction holds the write lock, so that
/// the ids from the first to the last are those of the rows, in order.
#[cfg(feature = "sqlite")]
fn insert_json(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    let values: Vec<_> = rows
        .iter()
        .map(|row| {
            let texts = (
                &row.queue_name,
                &row.class_name,
                &row.arguments,
                row.priority,
            );
            let limits = (row.max_attempts, row.max_crashes, row.at_most_once);
            let time = (row.at.map(timestamp), row.delay);
            (texts, limits, time, &row.active_job_id, &row.policy)
        })
        .map(|((a, b, c, d), (e, f, g), (h, i), j, k)| (a, b, c, d, e, f, g, h, i, j, k))
        .collect();
    let values = serde_json::to_string(&values)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let text = conn.write(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, \
           at_most_once, scheduled_at, active_job_id, policy, created_at, updated_at) \
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, \
           coalesce({time value ->> 7}, {later value ->> 8}), value ->> 9, value ->> 10, {now}, {now} \
         FROM json_each($1) ORDER BY key RETURNING id",
    );
    let ids: Vec<Id> = on!(conn, |c| cached(sql(text).bind::<Text, _>(&values)).load(c))?;
    let mut ids: Vec<i64> = ids.into_iter().map(|row| row.id).collect();
    ids.sort_unstable();
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
        let text = conn.write(text);
        on!(conn, |c| cached(
            sql(text).bind::<BigInt, _>(first).bind::<BigInt, _>(last)
        )
        .execute(c))?;
    }
    Ok(ids)
}

/// The connection of those who bind arrays, which only Postgres has.
#[cfg(feature = "postgres")]
fn postgres<'c>(conn: &'c mut Conn<'_>) -> QueryResult<&'c mut PgConnection> {
    match conn {
        Conn::Postgres(conn) => Ok(conn),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Err(diesel::result::Error::NotFound),
    }
}

/// Whether the jobs are due at once and differ in their arguments only, as
/// those of most lots do.
#[cfg(feature = "postgres")]
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

/// Such jobs on Postgres: only the arguments go as an array, which takes a
/// fifth off the server's time. `unnest` keeps the array's order, and the
/// identities follow it.
#[cfg(feature = "postgres")]
fn insert_alike(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    let text = conn.write(&format!(
        "WITH job AS (INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, \
             max_crashes, at_most_once, policy, created_at, updated_at) \
           SELECT $1, $2, arguments, $4, $5, $6, $7, $8, {{now}}, {{now}} FROM unnest($3) AS arguments RETURNING id), \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, $1, $4, $2, $7 OR coalesce($6 = 0, false), {{now}} FROM job) \
         SELECT id, {wake} AS notified FROM job",
        wake = crate::db::conn::wakeup::wake("(SELECT count(*) FROM job)"),
    ));
    let first = &rows[0];
    let arguments: Vec<&String> = rows.iter().map(|row| &row.arguments).collect();
    let query = sql(text)
        .bind::<Text, _>(&first.queue_name)
        .bind::<Text, _>(&first.class_name)
        .bind::<Array<Text>, _>(arguments)
        .bind::<Integer, _>(first.priority)
        .bind::<Nullable<Integer>, _>(first.max_attempts)
        .bind::<Nullable<Integer>, _>(first.max_crashes)
        .bind::<Bool, _>(first.at_most_once)
        .bind::<Nullable<Text>, _>(&first.policy);
    let ids: Vec<Id> = cached(query).load(postgres(conn)?)?;
    let mut ids: Vec<i64> = ids.into_iter().map(|row| row.id).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Postgres: the columns go as arrays, which is twice as fast as `VALUES`
/// and always the same statement. Identities are given out in the order of
/// the sorted select, so the sorted ids are those of the rows in order.
#[cfg(feature = "postgres")]
fn insert_arrays(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    let text = conn.write(&format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({COLUMNS}) \
           SELECT queue_name, class_name, arguments, priority, active_job_id, \
             coalesce({{time scheduled_at}}, {{later delay}}), NULL, max_attempts, max_crashes, at_most_once, policy, \
             NULL, NULL, NULL, NULL, {{now}}, {{now}} \
           FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) WITH ORDINALITY AS input \
             (queue_name, class_name, arguments, priority, active_job_id, scheduled_at, delay, max_attempts, max_crashes, \
              at_most_once, policy, ord) \
           ORDER BY ord \
           RETURNING id, queue_name, priority, class_name, at_most_once, crash_count, max_crashes, scheduled_at), \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM job \
           WHERE scheduled_at IS NULL OR scheduled_at <= {{now}} RETURNING 1), \
         later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM job WHERE scheduled_at > {{now}}), \
         woken AS (SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN {wake} END) \
         SELECT id, (SELECT count(*) FROM woken) AS woken FROM job ORDER BY id",
        wake = crate::db::conn::wakeup::wake("(SELECT count(*) FROM ready)"),
    ));
    fn column<'r, T>(rows: &'r [NewRow], value: impl Fn(&'r NewRow) -> T) -> Vec<T> {
        rows.iter().map(value).collect()
    }
    let query = sql(text)
        .bind::<Array<Text>, _>(column(rows, |row| &row.queue_name))
        .bind::<Array<Text>, _>(column(rows, |row| &row.class_name))
        .bind::<Array<Text>, _>(column(rows, |row| &row.arguments))
        .bind::<Array<Integer>, _>(column(rows, |row| row.priority))
        .bind::<Array<Nullable<Text>>, _>(column(rows, |row| row.active_job_id.as_ref()))
        .bind::<Array<Nullable<Text>>, _>(column(rows, |row| row.at.map(timestamp)))
        .bind::<Array<Nullable<BigInt>>, _>(column(rows, |row| row.delay))
        .bind::<Array<Nullable<Integer>>, _>(column(rows, |row| row.max_attempts))
        .bind::<Array<Nullable<Integer>>, _>(column(rows, |row| row.max_crashes))
        .bind::<Array<Bool>, _>(column(rows, |row| row.at_most_once))
        .bind::<Array<Nullable<Text>>, _>(column(rows, |row| row.policy.as_ref()));
    let ids: Vec<Id> = cached(query).load(postgres(conn)?)?;
    Ok(ids.into_iter().map(|row| row.id).collect())
}
