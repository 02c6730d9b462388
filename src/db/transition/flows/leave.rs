//! Takes ended jobs out of their batches, and retried ones back in.

use crate::db::conn::connection::Conn;
use crate::db::model::state::JobState;
use crate::db::table::executions;
use crate::db::table::flows::members::FailedMember;
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
    let (back, late): (Vec<_>, Vec<_>) = failed
        .iter()
        .partition(|job| awaiting.contains(&job.batch_id));
    let ids = |jobs: Vec<&FailedMember>| jobs.iter().map(|job| job.job_id).collect::<Vec<_>>();
    if !late.is_empty() {
        members::keep_failures(conn, &ids(late))?;
    }
    members::return_to_batch(conn, &ids(back))?;
    batches::reopen(conn, &awaiting)
}

/// What a sweep came to.
#[derive(Debug)]
pub(crate) struct SweptMembers {
    /// The last job that was read, if there may be more.
    pub(crate) reached: Option<i64>,
    /// How many jobs have left their batches.
    pub(crate) left: usize,
}

/// Takes those jobs out of their batches that were ended by a program that does not do so: a version of Windlass
/// before batches, or statements by hand. Reads up to `limit` members after the job `after`.
pub(crate) fn sweep(conn: &mut Conn<'_>, after: i64, limit: usize) -> QueryResult<SweptMembers> {
    let page = members::page(conn, after, limit)?;
    let left = match page.ended.is_empty() {
        true => 0,
        false => take_out(conn, &page.ended)?,
    };
    Ok(SweptMembers {
        reached: page.reached,
        left,
    })
}

/// Takes jobs out of their batches that seem to have ended, and returns how many have. A retry has locked the failed
/// execution of its job before it reads whether the job has left its batch.
fn take_out(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let locked = members::lock_free(conn, jobs)?;
        let failed = executions::lock_free(conn, JobState::Failed, &locked)?;
        // Once more, by a statement that sees what was committed before the locks were granted.
        let mut ended = members::ended(conn, &locked)?;
        ended.retain(|job| !job.has_failed || failed.contains(&job.job_id));
        let unsuccessful = ended
            .iter()
            .filter(|job| job.has_failed || job.was_cancelled);
        let unsuccessful: Vec<i64> = unsuccessful.map(|job| job.job_id).collect();
        let ended: Vec<i64> = ended.iter().map(|job| job.job_id).collect();
        leave(conn, &ended, &unsuccessful)?;
        Ok(ended.len())
    })
}
