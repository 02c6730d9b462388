//! Deletes rows that have an expiry of their own.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Id, id_list};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::transition::clear::{ClearedPage, count_one_by_one};
use diesel::prelude::*;

/// A table whose rows have an expiry of their own, and its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiringTable {
    name: &'static str,
    key: &'static str,
}

/// The results and the waiters.
pub(crate) const EXPIRING: [ExpiringTable; 2] = [
    ExpiringTable {
        name: RESULTS,
        key: "job_id",
    },
    ExpiringTable {
        name: "windlass_waiters",
        key: "id",
    },
];

const RESULTS: &str = "windlass_results";

/// How much longer a result is kept, in microseconds, that has expired and is still an input.
const INPUTS_FOR: i64 = 3_600_000_000;

/// Keeps those of the results longer that unfinished jobs may still read, and returns the others.
fn spare_inputs(conn: &mut Conn<'_>, results: &[i64]) -> QueryResult<Vec<i64>> {
    let waits = |parent: &str| {
        format!(
            "(SELECT w.id FROM windlass_edges w JOIN solid_queue_jobs c ON c.id = w.child_job_id \
             WHERE {parent} AND c.finished_at IS NULL LIMIT 1) IS NOT NULL"
        )
    };
    let text = format!(
        "SELECT r.job_id AS id FROM windlass_results r WHERE r.job_id IN {{in $1}} AND ({} OR r.batch_id IS NOT NULL AND {})",
        waits("w.parent_job_id = r.job_id"),
        waits("w.parent_batch_id = r.batch_id")
    );
    let inputs: Vec<Id> = Statement::new(text)
        .unkept()
        .bind(id_list(results))
        .load(conn)?;
    let inputs: Vec<i64> = inputs.into_iter().map(|row| row.id).collect();
    if inputs.is_empty() {
        return Ok(results.to_vec());
    }
    let text = "UPDATE windlass_results SET expires_at = {later $1} WHERE job_id IN (SELECT job_id FROM windlass_results \
         WHERE job_id IN {in $2} ORDER BY job_id {lock skip})";
    Statement::new(text)
        .unkept()
        .bind(INPUTS_FOR)
        .bind(id_list(&inputs))
        .execute(conn)?;
    let due = results.iter().filter(|job| !inputs.contains(job));
    Ok(due.copied().collect())
}

/// Deletes up to `batch` expired rows of one of [`EXPIRING`]. If `reached` is `Some`, more may be
/// left: call it again, with any id.
pub(crate) fn delete(
    conn: &mut Conn<'_>,
    table: ExpiringTable,
    batch: usize,
) -> QueryResult<ClearedPage> {
    let ExpiringTable { name: table, key } = table;
    let text = format!(
        "SELECT {key} AS id FROM {table} WHERE expires_at <= {{now}} ORDER BY expires_at LIMIT $1"
    );
    let seen: Vec<Id> = Statement::new(text).bind(batch as i64).load(conn)?;
    let seen: Vec<i64> = seen.into_iter().map(|row| row.id).collect();
    let due = match table {
        RESULTS => spare_inputs(conn, &seen)?,
        _ => seen.clone(),
    };
    if due.is_empty() {
        return Ok(ClearedPage {
            reached: (seen.len() == batch).then_some(0),
            cleared: 0,
            left: None,
        });
    }
    // Checked again under the lock: the row may have been extended.
    let text = format!(
        "DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {key} IN {{in $1}} \
         AND expires_at <= {{now}} ORDER BY {key} {{lock skip}}) AND expires_at <= {{now}}"
    );
    let delete_these = |conn: &mut Conn<'_>, ids: &[i64]| {
        Statement::new(&text)
            .bind(id_list(ids))
            .unkept()
            .changes(conn)
    };
    // One statement in most cases.
    let (cleared, left) = match delete_these(conn, &due) {
        Err(error) if Refusal::of(&error) != Refusal::Trouble => {
            count_one_by_one(conn, &due, delete_these)?
        }
        deleted => (deleted?, None),
    };
    Ok(ClearedPage {
        reached: (seen.len() == batch && (cleared > 0 || due.len() < seen.len())).then_some(0),
        cleared,
        left,
    })
}
