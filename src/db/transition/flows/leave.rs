//! Takes ended jobs out of their batches, and retried ones back in.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::{batches, members};
use diesel::prelude::*;
use std::collections::BTreeSet;

/// Takes jobs that have ended out of their batches. `unsuccessful` are those of them that have failed, or were
/// cancelled.
pub(crate) fn leave(conn: &mut Conn<'_>, jobs: &[i64], unsuccessful: &[i64]) -> QueryResult<()> {
    if !unsuccessful.is_empty() {
        members::fail(conn, unsuccessful)?;
    }
    if jobs.is_empty() {
        return Ok(());
    }
    members::leave(conn, jobs)
}

/// Lets batches wait again for failed jobs that are retried in this transaction. One that is over stays so, unless a
/// job waits for its success.
pub(crate) fn rejoin(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let failed = members::failed(conn, jobs)?;
    if failed.is_empty() {
        return Ok(());
    }
    let named: BTreeSet<i64> = failed.iter().map(|job| job.batch_id).collect();
    let named: Vec<i64> = named.into_iter().collect();
    batches::keep_open(conn, &named)?;
    // A statement of its own: a batch may have ended before the lock was granted.
    let awaiting = batches::awaiting_retries(conn, &named)?;
    let back = failed.iter().filter(|job| awaiting.contains(&job.batch_id));
    let back: Vec<i64> = back.map(|job| job.job_id).collect();
    members::return_to_batch(conn, &back)?;
    batches::reopen(conn, &awaiting)
}
