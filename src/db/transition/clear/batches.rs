//! Deletes batches that are over.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Id, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::batches::IS_OURS;
use crate::db::transition::clear::{ClearedPage, count_one_by_one};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::time::Duration;

/// The tables whose rows belong to batches, and their columns. No foreign key deletes the rows: it would keep a Rails app
/// from dropping its tables.
pub(crate) const TABLES_OF_BATCHES: [(&str, &str); 2] = [
    ("windlass_batch_failures", "batch_id"),
    ("windlass_edges", "parent_batch_id"),
];

/// Deletes up to `batch` batches of Windlass after the id `after` that were over so long ago and have no jobs any more,
/// with their edges.
pub(crate) fn over(
    conn: &mut Conn<'_>,
    age: Duration,
    after: i64,
    batch: usize,
) -> QueryResult<ClearedPage> {
    let text = format!(
        "SELECT b.id FROM solid_queue_batches b WHERE b.id > $1 AND b.finished_at <= {{later $2}} AND {IS_OURS} \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.batch_id = b.id) \
         AND NOT EXISTS (SELECT 1 FROM windlass_edges w JOIN solid_queue_jobs j ON j.id = w.child_job_id \
           WHERE w.parent_batch_id = b.id AND j.finished_at IS NULL) ORDER BY b.id LIMIT $3"
    );
    let due: Vec<Id> = Statement::new(text)
        .unkept()
        .bind(after)
        .bind(-micros(age))
        .bind(batch as i64)
        .load(conn)?;
    let due: Vec<i64> = due.into_iter().map(|row| row.id).collect();
    let (cleared, left) = count_one_by_one(conn, &due, |conn, due| {
        delete_from(conn, "solid_queue_batches", "id", due)
    })?;
    Ok(ClearedPage {
        reached: due.last().copied().filter(|_| due.len() == batch),
        cleared,
        left,
    })
}

/// Reads the rows of `batch` batches after the id `after` in one of [`TABLES_OF_BATCHES`], and deletes those of batches
/// that do not exist.
pub(crate) fn orphans(
    conn: &mut Conn<'_>,
    (table, column): (&'static str, &'static str),
    after: i64,
    batch: usize,
) -> QueryResult<ClearedPage> {
    let text = format!(
        "SELECT seen.id, NOT EXISTS (SELECT 1 FROM solid_queue_batches b WHERE b.id = seen.id) AS is_orphan \
         FROM (SELECT DISTINCT {column} AS id FROM {table} WHERE {column} > $1 ORDER BY {column} LIMIT $2) AS seen ORDER BY seen.id"
    );
    let seen: Vec<BatchOfRows> = Statement::new(text)
        .unkept()
        .bind(after)
        .bind(batch as i64)
        .load(conn)?;
    let due: Vec<i64> = seen
        .iter()
        .filter(|row| row.is_orphan)
        .map(|row| row.id)
        .collect();
    let (cleared, left) = count_one_by_one(conn, &due, |conn, due| {
        delete_from(conn, table, column, due)
    })?;
    Ok(ClearedPage {
        reached: seen
            .last()
            .filter(|_| seen.len() == batch)
            .map(|row| row.id),
        cleared,
        left,
    })
}

#[derive(QueryableByName)]
struct BatchOfRows {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_orphan: bool,
}

fn delete_from(
    conn: &mut Conn<'_>,
    table: &str,
    column: &str,
    batches: &[i64],
) -> QueryResult<usize> {
    let text = format!("DELETE FROM {table} WHERE {column} IN {{in $1}}");
    Statement::new(text)
        .unkept()
        .bind(id_list(batches))
        .changes(conn)
}
