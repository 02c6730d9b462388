//! Deletes rows that have an expiry of their own.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::transition::clear::{ClearedPage, count_one_by_one};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

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

/// The additional time for which an expired result that is still an input is kept, in microseconds.
const INPUTS_FOR: i64 = 3_600_000_000;

/// Returns a condition: an unfinished job may still read the row of the table, if it is a result.
fn is_input(table: &str) -> String {
    if table != RESULTS {
        return "false".to_owned();
    }
    let waits = |parent: &str| {
        format!(
            "(SELECT w.id FROM windlass_edges w JOIN solid_queue_jobs c ON c.id = w.child_job_id \
             WHERE {parent} AND c.finished_at IS NULL LIMIT 1) IS NOT NULL"
        )
    };
    format!(
        "({} OR {table}.batch_id IS NOT NULL AND {})",
        waits(&format!("w.parent_job_id = {table}.job_id")),
        waits(&format!("w.parent_batch_id = {table}.batch_id"))
    )
}

#[derive(QueryableByName)]
struct ExpiredRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_input: bool,
}

/// Keeps results longer.
fn prolong(conn: &mut Conn<'_>, inputs: &[i64]) -> QueryResult<()> {
    let text = "UPDATE windlass_results SET expires_at = {later $1} WHERE job_id IN (SELECT job_id FROM windlass_results \
         WHERE job_id IN {in $2} ORDER BY job_id {lock skip})";
    Statement::new(text)
        .uncached()
        .bind(INPUTS_FOR)
        .bind(id_list(inputs))
        .execute(conn)
}

/// Deletes up to `chunk` expired rows of one of [`EXPIRING`]. If `reached` is `Some`, more may be
/// left: call it again, with any id.
pub(crate) fn delete(
    conn: &mut Conn<'_>,
    table: ExpiringTable,
    chunk: usize,
) -> QueryResult<ClearedPage> {
    let ExpiringTable { name: table, key } = table;
    let is_input = is_input(table);
    let text = format!(
        "SELECT {key} AS id, {is_input} AS is_input FROM {table} WHERE expires_at <= {{now}} ORDER BY expires_at LIMIT $1"
    );
    let seen: Vec<ExpiredRow> = Statement::new(text).bind(chunk as i64).load(conn)?;
    let ids = |inputs: bool| -> Vec<i64> {
        let rows = seen.iter().filter(|row| row.is_input == inputs);
        rows.map(|row| row.id).collect()
    };
    let (inputs, due) = (ids(true), ids(false));
    if !inputs.is_empty() {
        prolong(conn, &inputs)?;
    }
    let page = |cleared, left, has_more: bool| ClearedPage {
        reached: has_more.then_some(0),
        cleared,
        left,
    };
    let is_full = seen.len() == chunk;
    if due.is_empty() {
        return Ok(page(0, None, is_full));
    }
    // Checked again under the lock: the row may have been extended.
    let text = format!(
        "DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {key} IN {{in $1}} \
         AND expires_at <= {{now}} ORDER BY {key} {{lock skip}}) AND expires_at <= {{now}}"
    );
    let delete_these = |conn: &mut Conn<'_>, ids: &[i64]| {
        Statement::new(&text)
            .bind(id_list(ids))
            .uncached()
            .changes(conn)
    };
    // One statement in most cases.
    let (cleared, left) = match delete_these(conn, &due) {
        Err(error) if Refusal::of(&error) != Refusal::Trouble => {
            count_one_by_one(conn, &due, delete_these)?
        }
        deleted => (deleted?, None),
    };
    let has_moved = cleared > 0 || !inputs.is_empty();
    Ok(page(cleared, left, is_full && has_moved))
}

// --- Deletes rows whose owner does not exist any more, as when another program deleted it, or ---

/// Rows that belong to jobs, or to batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnedRows {
    table: &'static str,
    /// The column with the owner's id.
    column: &'static str,
    /// The table of the owners.
    owners: &'static str,
}

const fn of_jobs(table: &'static str) -> OwnedRows {
    OwnedRows {
        table,
        column: "job_id",
        owners: "solid_queue_jobs",
    }
}

const PUBLIC_TOKENS: &str = "windlass_public_tokens";

/// All such rows. A public token is kept as long as the result of its job.
pub(crate) const OWNED: [OwnedRows; 9] = [
    of_jobs("windlass_expiries"),
    of_jobs("windlass_attempts"),
    of_jobs("windlass_job_logs"),
    of_jobs("windlass_steps"),
    of_jobs("windlass_unique_jobs"),
    of_jobs("windlass_waits"),
    of_jobs(PUBLIC_TOKENS),
    OwnedRows {
        column: "child_job_id",
        ..of_jobs("windlass_edges")
    },
    OwnedRows {
        table: "windlass_batch_failures",
        column: "batch_id",
        owners: "solid_queue_batches",
    },
];

#[derive(QueryableByName)]
struct OwnerRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_gone: bool,
}

/// Reads the rows of `chunk` owners after the id `after`, and deletes those of owners that do not exist.
pub(crate) fn delete_orphans(
    conn: &mut Conn<'_>,
    rows: OwnedRows,
    after: i64,
    chunk: usize,
) -> QueryResult<ClearedPage> {
    let OwnedRows {
        table,
        column,
        owners,
    } = rows;
    let has_result = match table {
        PUBLIC_TOKENS => "EXISTS (SELECT 1 FROM windlass_results r WHERE r.job_id = seen.id)",
        _ => "false",
    };
    let text = format!(
        "SELECT seen.id, NOT ({has_result} OR EXISTS (SELECT 1 FROM {owners} o WHERE o.id = seen.id)) AS is_gone \
         FROM (SELECT DISTINCT {column} AS id FROM {table} WHERE {column} > $1 ORDER BY {column} LIMIT $2) AS seen \
         ORDER BY seen.id"
    );
    let seen: Vec<OwnerRow> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(chunk as i64)
        .load(conn)?;
    let gone = seen.iter().filter(|owner| owner.is_gone);
    let gone: Vec<i64> = gone.map(|owner| owner.id).collect();
    let text = format!("DELETE FROM {table} WHERE {column} IN {{in $1}}");
    let (cleared, left) = count_one_by_one(conn, &gone, |conn, gone| {
        if table == "windlass_unique_jobs" {
            return crate::db::transition::unique::forget(conn, gone);
        }
        Statement::new(&text)
            .bind(id_list(gone))
            .uncached()
            .changes(conn)
    })?;
    Ok(ClearedPage {
        reached: seen
            .last()
            .filter(|_| seen.len() == chunk)
            .map(|owner| owner.id),
        cleared,
        left,
    })
}
