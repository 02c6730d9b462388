//! Looks which batches are over, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::batches::{self, EndedBatch};
use crate::db::table::flows::edges::{self, FAILED, Resolved, SUCCEEDED};
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct CompletedBatches {
    /// How many are over now, and jobs waited for them.
    pub(crate) followed: usize,
    /// Those that are not over.
    pub(crate) open: Vec<i64>,
    /// How many were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
}

/// Ends those of the requested batches of which no job is left, and requests a promotion of the jobs that waited for
/// them. `added` is how many jobs were added to each. It waits for no transaction that adds jobs.
pub(crate) fn complete(
    conn: &mut Conn<'_>,
    added: &BTreeMap<i64, i64>,
) -> QueryResult<CompletedBatches> {
    let mut completed = CompletedBatches::default();
    if added.is_empty() {
        return Ok(completed);
    }
    for (batch, jobs) in added.iter().filter(|(_, jobs)| **jobs > 0) {
        batches::add_to_total(conn, *batch, *jobs)?;
    }
    let named: Vec<i64> = added.keys().copied().collect();
    let ended = ids(&batches::ended(conn, &named)?);
    completed.open = named;
    completed.open.retain(|batch| !ended.contains(batch));
    if ended.is_empty() {
        return Ok(completed);
    }
    let locked = batches::lock_free(conn, &ended)?;
    // Once more, by a statement that sees the jobs added before the lock was granted.
    let over = batches::ended(conn, &locked)?;
    batches::finish(conn, &over)?;
    let (followed, unfinished) = follow(conn, &over)?;
    completed.followed = followed;
    let busy = ended.iter().filter(|batch| !locked.contains(batch));
    let busy: BTreeSet<i64> = busy.chain(&unfinished).copied().collect();
    completed.left_over = busy.len();
    wanted_keys::request_later(conn, busy.into_iter().map(NewRequest::Batch))?;
    Ok(completed)
}

/// Requests a promotion for batches that are over without that being noticed, as after a program has replaced the
/// tables and their triggers. Reads up to `limit` after the id `after`, and returns the last id if there may be more.
pub(crate) fn request_stalled(
    conn: &mut Conn<'_>,
    after: i64,
    limit: usize,
) -> QueryResult<Option<i64>> {
    let (stalled, reached) = batches::stalled(conn, after, limit)?;
    wanted_keys::request(conn, stalled.into_iter().map(NewRequest::Batch))?;
    Ok(reached)
}

fn ids(batches: &[EndedBatch]) -> Vec<i64> {
    batches.iter().map(|batch| batch.id).collect()
}

/// Requests a promotion of the jobs that waited for these batches. Returns how many these are, and the batches for which
/// more wait.
fn follow(conn: &mut Conn<'_>, over: &[EndedBatch]) -> QueryResult<(usize, Vec<i64>)> {
    let (failed, succeeded): (Vec<_>, Vec<_>) = over.iter().partition(|batch| batch.failures > 0);
    let of = |batches: Vec<&EndedBatch>| batches.into_iter().map(|batch| batch.id).collect();
    let (succeeded, failed): (Vec<i64>, Vec<i64>) = (of(succeeded), of(failed));
    let (mut children, mut unfinished) = (BTreeSet::new(), Vec::new());
    for (batches, outcome) in [(&succeeded, SUCCEEDED), (&failed, FAILED)] {
        let followers = edges::resolve(conn, Resolved::Batches, batches, outcome)?;
        children.extend(followers.jobs);
        if followers.has_more {
            unfinished.extend(batches);
        }
    }
    let lost = batches::without_retry(conn, &failed)?;
    let followers = edges::give_up(conn, Resolved::Batches, &lost)?;
    children.extend(followers.jobs);
    if followers.has_more {
        unfinished.extend(lost);
    }
    let count = children.len();
    wanted_keys::request_later(conn, children.into_iter().map(NewRequest::Child))?;
    Ok((count, unfinished))
}
