//! Discards jobs that have not started in time.

use crate::db::conn::connection::Conn;
use crate::db::model::outcome::{AttemptOutcome, EXPIRED, ResultOutcome, expired};
use crate::db::model::state::JobState;
use crate::db::table::expiries::{self, ExpiryOfJob};
use crate::db::table::{executions, jobs};
use crate::db::transition::clear;
use crate::db::transition::flows::end_waiting::end_waiting;
use crate::db::transition::turn_away::Discarded;
use diesel::QueryResult;

/// The result of a look for jobs that have expired.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) discarded: Vec<Discarded>,
    /// Whether more may have expired.
    pub(crate) is_full: bool,
    /// Whether any job has an expiry.
    pub(crate) is_any: bool,
    /// Why some could not be discarded, if the database has refused it.
    pub(crate) left: Option<String>,
}

/// Discards up to `batch` waiting jobs that have expired. Those that another transaction has locked,
/// or that the database refuses to discard, are left to the next look, and hold up no others.
pub(crate) fn expire(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Expired> {
    let next = expiries::next(conn, batch)?;
    let due = next.iter().filter(|expiry| expiry.is_due);
    let due: Vec<i64> = due.map(|expiry| expiry.job_id).collect();
    let (parts, left) = clear::one_by_one(conn, &due, discard)?;
    let (discarded, done): (Vec<_>, Vec<usize>) = parts.into_iter().unzip();
    Ok(Expired {
        // Without progress, the rest is locked.
        is_full: due.len() == batch && done.iter().any(|done| *done > 0),
        is_any: !next.is_empty(),
        discarded: discarded.concat(),
        left,
    })
}

/// Discards those of the jobs that still wait and have expired, and deletes the expiries of those
/// that have started or ended. Returns the jobs, and how many expiries are gone.
///
/// The executions are locked first: a job that a process claims meanwhile is left to it. No lock is
/// waited for, since the caller has other work.
fn discard(conn: &mut Conn<'_>, due: &[i64]) -> QueryResult<(Vec<Discarded>, usize)> {
    let mut held = Vec::new();
    for state in JobState::WAITING {
        held.extend(executions::lock_free(conn, state, due)?);
    }
    let (over, rest): (Vec<ExpiryOfJob>, Vec<_>) = expiries::due(conn, due)?
        .into_iter()
        .partition(|expiry| expiry.is_over);
    let of = |expiries: Vec<ExpiryOfJob>| expiries.into_iter().map(|one| one.job_id);
    let mut waiting: Vec<i64> = of(rest).filter(|job| held.contains(job)).collect();
    waiting.sort_unstable();
    let waiting = jobs::lock_free(conn, &waiting)?;
    let waiting = executions::take(conn, &JobState::WAITING, &waiting)?;
    let mut gone: Vec<i64> = of(over).collect();
    gone.extend(&waiting);
    expiries::remove(conn, &gone)?;
    if waiting.is_empty() {
        return Ok((Vec::new(), gone.len()));
    }
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    let ended = end_waiting(conn, &waiting, attempt, result, &expired())?;
    let ended = ended.into_iter();
    let discarded = ended.map(|job| Discarded::of(job, EXPIRED)).collect();
    Ok((discarded, gone.len()))
}

/// Returns whether a claimed job, which a thread is about to start, has expired. If it has not, it
/// cannot any more.
pub(crate) fn has_expired(conn: &mut Conn<'_>, job: i64) -> QueryResult<bool> {
    let Some(expiry) = expiries::of_claimed(conn, job)? else {
        return Ok(false);
    };
    if expiry.is_due && !expiry.is_over {
        return Ok(true);
    }
    expiries::remove(conn, &[job])?;
    Ok(false)
}
