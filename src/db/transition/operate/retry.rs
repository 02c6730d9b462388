//! Retries failed jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::state::JobState;
use crate::db::table::flows::edges;
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{attempts, executions, failed, jobs, results};
use crate::db::transition::flows;
use crate::db::transition::place::{make_runnable, place};
use crate::db::transition::unique::unblock;
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use std::time::Duration;

/// The result of a retry.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetriedJobs {
    /// Jobs that are ready again.
    pub(crate) ready: Vec<i64>,
    /// Jobs that may run at most once and have run already.
    pub(crate) risky: Vec<i64>,
    /// Jobs whose unique id another job holds by now.
    pub(crate) replaced: Vec<i64>,
}

/// What a retry does about jobs that may run at most once, and have run already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtMostOnce {
    Leave,
    Retry,
}

impl AtMostOnce {
    pub(crate) fn retry_if(allowed: bool) -> Self {
        if allowed {
            AtMostOnce::Retry
        } else {
            AtMostOnce::Leave
        }
    }
}

/// Makes failed jobs ready again, with their attempts reset. Jobs that may run at most once are
/// retried only with [`AtMostOnce::Retry`].
pub(crate) fn retry(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    at_most_once: AtMostOnce,
) -> QueryResult<RetriedJobs> {
    retry_by(conn, jobs, at_most_once, make_runnable)
}

/// When retried jobs are due: the first at `start`, later ones by how many were before.
pub(crate) struct RetrySpread<'a> {
    pub(crate) start: NaiveDateTime,
    pub(crate) before: u64,
    pub(crate) time_for: &'a dyn Fn(u64) -> Duration,
}

/// Makes failed jobs wait again as [`retry`] does, each until its time.
pub(crate) fn retry_spread(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    at_most_once: AtMostOnce,
    spread: &RetrySpread<'_>,
) -> QueryResult<RetriedJobs> {
    retry_by(conn, jobs, at_most_once, |conn, ready| {
        let times = (spread.before..).zip(ready).map(|(count, job)| {
            let at = spread.start.checked_add_signed(
                TimeDelta::from_std((spread.time_for)(count)).unwrap_or(TimeDelta::MAX),
            );
            (*job, timestamp(at.unwrap_or(spread.start)))
        });
        jobs::set_times(conn, &times.collect::<Vec<_>>())?;
        place(conn, ready)
    })
}

fn retry_by(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    at_most_once: AtMostOnce,
    place: impl FnOnce(&mut Conn<'_>, &[i64]) -> QueryResult<()>,
) -> QueryResult<RetriedJobs> {
    conn.transaction(|conn| {
        let mut ready = executions::lock(conn, JobState::Failed, jobs)?;
        let mut risky = Vec::new();
        if at_most_once == AtMostOnce::Leave {
            risky = failed::risky_jobs(conn, &ready)?;
            ready.retain(|job| !risky.contains(job));
        }
        let replaced = unblock::retake(conn, &ready)?;
        ready.retain(|job| !replaced.contains(job));
        let ready = executions::take(conn, &[JobState::Failed], &ready)?;
        if ready.is_empty() {
            return Ok(RetriedJobs { ready, risky, replaced });
        }
        flows::leave::rejoin(conn, &ready)?;
        place(conn, &ready)?;
        let text = "UPDATE solid_queue_jobs SET attempts = 0, crash_count = 0, updated_at = {now} WHERE id IN {in $1}";
        Statement::new(text).bind(id_list(&ready)).execute(conn)?;
        // The rows are locked now: no promotion is about to tell the failures to what waits for them.
        if edges::forget_failures(conn, &ready)? {
            let rest = ready.iter().copied().map(NewRequest::Retried);
            wanted_keys::request_later(conn, rest)?;
        }
        crate::db::transition::enqueue::undo::resume(conn, &ready)?;
        // They start to count again, and attempts are deleted by that count.
        attempts::keep_newest(conn, &ready)?;
        // The result of their earlier end is not valid any more.
        results::delete(conn, &ready)?;
        Ok(RetriedJobs { ready, risky, replaced })
    })
}
