//! Lets jobs run again whose events have come, or whose waits have timed out.

use crate::db::conn::connection::Conn;
use crate::db::table::blocked;
use crate::db::table::flows::events;
use crate::db::table::flows::waits::{self, LateWait};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::transition::place;
use crate::mutant;
use diesel::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many jobs that wait for events a promotion takes at once.
const AT_ONCE: usize = 500;

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct WokenJobs {
    /// Jobs that wait no longer.
    pub(crate) woken: Vec<i64>,
    /// How many were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
    /// Whether more jobs wait for the same events than were taken.
    pub(crate) has_rest: bool,
}

/// Lets those jobs run whose wait is over, for a promotion. More jobs than this takes at once are requested again.
pub(crate) fn wake(
    conn: &mut Conn<'_>,
    named: &BTreeSet<i64>,
    emitted: &BTreeSet<String>,
) -> QueryResult<WokenJobs> {
    let mut jobs = named.clone();
    let mut again = Vec::new();
    let mut left_over = 0;
    if !emitted.is_empty() && !mutant::is("event_wakes_none") {
        let events = events::existing(conn, emitted)?;
        let share = (AT_ONCE / events.len().max(1)).max(1);
        for event in events {
            let mut waiting = waits::of_event(conn, &event, share)?;
            if waiting.len() == share {
                // Those that others have locked hold up none behind them.
                waiting = waits::lock_of_event(conn, &event, share)?;
                left_over += usize::from(waiting.len() < share);
                again.push(NewRequest::Event(event));
            }
            jobs.extend(waiting);
        }
    }
    let jobs: Vec<i64> = jobs.into_iter().collect();
    let Looked { woken, busy } = wake_jobs(conn, &jobs)?;
    let has_rest = !again.is_empty() && !woken.is_empty();
    left_over += busy.len();
    again.extend(busy.into_iter().map(NewRequest::Wait));
    wanted_keys::request_later(conn, again)?;
    Ok(WokenJobs {
        woken,
        left_over,
        has_rest,
    })
}

/// What became of jobs that may wait no longer.
struct Looked {
    woken: Vec<i64>,
    /// Those that wait, and that another transaction has locked.
    busy: Vec<i64>,
}

/// Lets those of the jobs run whose wait is over.
///
/// The executions are locked first, and the waits read after that: a job may have been woken meanwhile, and wait for
/// something else.
fn wake_jobs(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Looked> {
    if jobs.is_empty() {
        let (woken, busy) = (Vec::new(), Vec::new());
        return Ok(Looked { woken, busy });
    }
    let locked = waits::lock_free(conn, jobs)?;
    let mut woken = Vec::new();
    if !locked.is_empty() {
        woken = waits::record_over(conn, &locked)?;
    }
    if !woken.is_empty() {
        waits::delete(conn, &woken)?;
        blocked::delete(conn, &woken)?;
        place::make_runnable(conn, &woken)?;
    }
    let skipped = jobs.iter().filter(|job| !locked.contains(job));
    let skipped: Vec<i64> = skipped.copied().collect();
    let busy = match skipped.is_empty() {
        true => Vec::new(),
        false => waits::waiting(conn, &skipped)?,
    };
    Ok(Looked { woken, busy })
}

/// The result of a look for waits that have timed out.
#[derive(Debug, Default)]
pub(crate) struct TimedOut {
    /// How many are over.
    pub(crate) woken: usize,
    /// How long until the next time-out. Zero if some are left.
    pub(crate) next: Option<Duration>,
}

/// Lets up to `batch` jobs run whose waits have timed out, and deletes waits of jobs that another program has moved.
pub(crate) fn time_out(conn: &mut Conn<'_>, batch: usize) -> QueryResult<TimedOut> {
    // Without the write lock: mostly there is none.
    let next = waits::next_timeout(conn)?;
    if next != Some(Duration::ZERO) {
        return Ok(TimedOut { woken: 0, next });
    }
    let woken = conn.transaction(|conn| {
        let late = waits::late(conn, batch)?;
        let jobs: Vec<i64> = late.iter().map(|wait| wait.job_id).collect();
        let Looked { woken, busy } = wake_jobs(conn, &jobs)?;
        let is_stray =
            |wait: &&LateWait| !woken.contains(&wait.job_id) && !busy.contains(&wait.job_id);
        let strays: Vec<LateWait> = late.iter().filter(is_stray).copied().collect();
        let gone = match strays.is_empty() {
            true => 0,
            false => waits::delete_strays(conn, &strays)?,
        };
        QueryResult::Ok(woken.len() + gone)
    })?;
    let next = waits::next_timeout(conn)?;
    Ok(TimedOut { woken, next })
}
