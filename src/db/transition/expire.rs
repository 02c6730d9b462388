//! Discards jobs that have not started in time.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{AttemptOutcome, ResultOutcome, expired};
use crate::db::table::expiries::{self, ExpiryOfJob};
use crate::db::transition::operate::{self, WAITING};
use crate::db::transition::promote::Discarded;
use diesel::prelude::*;

/// The result of a look for jobs that have expired.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) discarded: Vec<Discarded>,
    /// Whether more may have expired.
    pub(crate) is_full: bool,
    /// Whether any job has an expiry.
    pub(crate) is_any: bool,
}

/// Discards up to `batch` waiting jobs that have expired. Those that another transaction has locked
/// are left to the next look.
pub(crate) fn expire(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Expired> {
    let next = expiries::next(conn, batch)?;
    let due = next.iter().filter(|expiry| expiry.is_due);
    let due: Vec<i64> = due.map(|expiry| expiry.job_id).collect();
    let (mut discarded, mut done) = (Vec::new(), 0);
    if !due.is_empty() {
        (discarded, done) = conn.transaction(|conn| discard(conn, &due))?;
    }
    Ok(Expired {
        // Without progress, the rest is locked.
        is_full: due.len() == batch && done > 0,
        is_any: !next.is_empty(),
        discarded,
    })
}

/// Discards those of the jobs that still wait and have expired, and deletes the expiries of those
/// that have started or ended. Returns the jobs, and how many expiries are gone.
///
/// The executions are locked first: a job that a process claims meanwhile is left to it.
fn discard(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<(Vec<Discarded>, usize)> {
    let mut held = Vec::new();
    for state in WAITING {
        held.extend(operate::lock_free(conn, state, jobs)?);
    }
    let (over, rest): (Vec<ExpiryOfJob>, Vec<_>) = expiries::due(conn, jobs)?
        .into_iter()
        .partition(|expiry| expiry.is_over);
    let of = |expiries: Vec<ExpiryOfJob>| expiries.into_iter().map(|one| one.job_id);
    let mut waiting: Vec<i64> = of(rest).filter(|job| held.contains(job)).collect();
    waiting.sort_unstable();
    let waiting = operate::take_execution(conn, &WAITING, &waiting)?;
    let mut gone: Vec<i64> = of(over).collect();
    gone.extend(&waiting);
    expiries::remove(conn, &gone)?;
    if waiting.is_empty() {
        return Ok((Vec::new(), gone.len()));
    }
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    operate::end_waiting(conn, &waiting, attempt, result, &expired())?;
    let text = "SELECT id, class_name FROM solid_queue_jobs WHERE id IN {in $1}";
    let discarded = Statement::new(text)
        .unkept()
        .bind(id_list(&waiting))
        .load(conn)?;
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
