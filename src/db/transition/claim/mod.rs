//! Claims ready executions.

pub(crate) mod next;
pub(crate) mod passed;
pub(crate) mod postgres;
mod sqlite;
mod sqlite_paused;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::claim::{ClaimQueues, ClaimRequest, Claimed, Claims, PausedScan};
use crate::db::table::ready::NOTHING;
use diesel::prelude::*;

/// Moves up to `max_jobs` ready executions to a registered process's claimed ones, the most important
/// and oldest first.
pub(crate) fn claim(conn: &mut Conn<'_>, request: &ClaimRequest<'_>) -> QueryResult<Claims> {
    claim_by(conn, request, None)
}

/// The same while classes are paused.
pub(crate) fn claim_past_paused(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: PausedScan,
) -> QueryResult<Claims> {
    claim_by(conn, request, Some(scan))
}

fn claim_by(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: Option<PausedScan>,
) -> QueryResult<Claims> {
    loop {
        let rows = match (conn.dialect(), scan) {
            (Dialect::Postgres, _) => Some(postgres::insert_or_skip(conn, request, scan)?),
            (Dialect::Sqlite, None) => sqlite::step_by_step(conn, request)?,
            (Dialect::Sqlite, Some(scan)) => sqlite_paused::step_by_step(conn, request, scan)?,
        };
        let Some(rows) = rows else {
            return Ok(Claims::Unregistered);
        };
        let Some(first) = rows.first() else {
            return Ok(Claims::Unregistered);
        };
        let (is_wanted, has_blocked) = (first.is_wanted, first.has_blocked);
        let (mut held, rest): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .filter(|row| row.claim_id != NOTHING)
            .partition(|row| row.job_id != NOTHING);
        held.sort_by_cached_key(|row| (queue_index(request.queues, row), row.priority, row.job_id));
        let orphans: Vec<i64> = rest.iter().map(|row| row.claim_id).collect();
        if !orphans.is_empty() {
            crate::db::table::claimed::drop_orphans(conn, request.process_id, &orphans)?;
        }
        // If there were only these, jobs may come after them.
        let has_more = has_blocked || !orphans.is_empty();
        if !held.is_empty() || !has_more {
            return Ok(Claims::Held {
                jobs: held,
                is_wanted,
            });
        }
    }
}

/// Returns the index of the queue, among those to claim from, that a job came from.
fn queue_index(queues: &ClaimQueues, row: &Claimed) -> usize {
    let ClaimQueues::Named(names) = queues else {
        return 0;
    };
    let found = names.iter().position(|name| *name == row.queue_name);
    found.unwrap_or(names.len())
}
