//! Deletes rows whose owner does not exist any more, as when another program deleted it, or a worker that keeps no
//! finished jobs. No foreign key deletes them: it would cost every job, and keep a Rails app from dropping its tables.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::transition::clear::{ClearedPage, count_one_by_one};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

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
struct SeenOwner {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_gone: bool,
}

/// Reads the rows of `batch` owners after the id `after`, and deletes those of owners that do not exist.
pub(crate) fn delete_orphans(
    conn: &mut Conn<'_>,
    rows: OwnedRows,
    after: i64,
    batch: usize,
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
    let seen: Vec<SeenOwner> = Statement::new(text)
        .unkept()
        .bind(after)
        .bind(batch as i64)
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
            .unkept()
            .changes(conn)
    })?;
    Ok(ClearedPage {
        reached: seen
            .last()
            .filter(|_| seen.len() == batch)
            .map(|owner| owner.id),
        cleared,
        left,
    })
}
