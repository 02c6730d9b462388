//! Operations on jobs from outside: cancel, discard, retry, reschedule, change priority. Each takes
//! the execution first, and changes only the jobs whose execution it got: so a claimed job is never
//! touched, and nothing is done twice.

pub(crate) mod edit;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, job_ids, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::CountedEnd;
use crate::db::model::new_row::ORDERED;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::executions::{self, BLOCKED};
use crate::db::table::flows::{edges, parents, waits};
use crate::db::table::history::deltas;
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{attempts, expiries, failed, results};
use crate::db::transition::flows::leave::end_unstarted;
use crate::db::transition::runnable::{make_ready_or_scheduled, make_runnable};
use crate::db::transition::{flows, unique};
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use std::time::Duration;

/// The result of a cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct CancelledJobs {
    /// Jobs that waited, and have ended.
    pub(crate) ended: Vec<i64>,
    /// Jobs whose process was asked to end them.
    pub(crate) asked: Vec<i64>,
    /// Jobs claimed by a process of Ruby, which cannot be asked.
    pub(crate) in_ruby: Vec<i64>,
}

/// Cancels jobs: waiting ones at once, claimed ones when their process is notified.
pub(crate) fn cancel(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<CancelledJobs> {
    conn.transaction(|conn| {
        let mut in_ruby = executions::lock(conn, JobState::Claimed, jobs)?;
        let asked = if in_ruby.is_empty() {
            Vec::new()
        } else {
            ask_to_cancel(conn, &in_ruby)?
        };
        in_ruby.retain(|job| !asked.contains(job));
        let ended = executions::take(conn, &JobState::WAITING, jobs)?;
        if !ended.is_empty() {
            let failure = JobFailure::new("cancelled", "the job was cancelled while it waited");
            let jobs = end_unstarted(
                conn,
                &ended,
                AttemptOutcome::Cancelled,
                ResultOutcome::Cancelled,
                &failure,
            )?;
            expiries::remove(conn, &ended)?;
            count(conn, &jobs, CountedEnd::Cancelled)?;
        }
        Ok(CancelledJobs {
            ended,
            asked,
            in_ruby,
        })
    })
}

/// Asks the processes that hold these jobs to end them, and returns the jobs that can be ended.
/// Processes of Ruby, which count no heartbeats, cannot be asked.
fn ask_to_cancel(conn: &mut Conn<'_>, claimed: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "UPDATE solid_queue_claimed_executions SET cancel_requested_at = coalesce(cancel_requested_at, {now}) \
         WHERE job_id IN {in $1} AND NOT EXISTS (SELECT 1 FROM solid_queue_processes p \
           WHERE p.id = solid_queue_claimed_executions.process_id AND p.heartbeat_seq IS NULL) RETURNING job_id";
    Statement::new(text)
        .bind(id_list(claimed))
        .load(conn)
        .map(job_ids)
}

/// Adds jobs that an operator has ended to the history.
fn count(conn: &mut Conn<'_>, jobs: &[EndedJob], end: CountedEnd) -> QueryResult<()> {
    let mut counted = Contribution::default();
    for job in jobs {
        counted.tally(&job.queue_name, &job.class_name).add(end);
    }
    deltas::insert_with(conn, &counted)
}

/// Deletes jobs that wait or have failed, and returns them. The history counts those that waited: the
/// others were counted when they failed.
pub(crate) fn discard(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let waited = executions::take(conn, &JobState::WAITING, jobs)?;
        let mut taken = executions::take(conn, &[JobState::Failed], jobs)?;
        taken.retain(|job| !waited.contains(job));
        taken.extend(&waited);
        taken.sort_unstable();
        if !waited.is_empty() {
            waits::delete(conn, &waited)?;
            let ended = jobs::ended(conn, &waited)?;
            count(conn, &ended, CountedEnd::Discarded)?;
        }
        if !taken.is_empty() {
            results::delete(conn, &taken)?;
            parents::note_dropped(conn, &taken)?;
            expiries::remove(conn, &taken)?;
            crate::db::transition::clear::delete::delete(conn, &taken)?;
            unique::unblock(conn, &taken)?;
        }
        Ok(taken)
    })
}

/// The time at which a job has to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunTime {
    At(NaiveDateTime),
    /// Microseconds from the database's current time.
    In(i64),
}

/// Reschedules jobs that are ready or scheduled, and returns them. Blocked jobs have no time.
pub(crate) fn reschedule(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    when: RunTime,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let taken = executions::take(conn, &[JobState::Scheduled, JobState::Ready], jobs)?;
        if taken.is_empty() {
            return Ok(taken);
        }
        let (at, delay) = match when {
            RunTime::At(at) => (Some(timestamp(at)), None),
            RunTime::In(micros) => (None, Some(micros)),
        };
        let text = "UPDATE solid_queue_jobs SET scheduled_at = coalesce({time $1}, {later $2}), updated_at = {now} \
             WHERE id IN {in $3}";
        Statement::new(text)
                .bind(at)
                .bind(delay)
                .bind(id_list(&taken)).execute(conn)?;
        expiries::remove_overtaken(conn, &taken)?;
        make_ready_or_scheduled(conn, &taken)?;
        Ok(taken)
    })
}

/// Changes the priority of waiting jobs, and returns them.
pub(crate) fn change_priority(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    priority: i32,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let mut changed = Vec::new();
        for state in JobState::WAITING {
            let found = executions::lock(conn, state, jobs)?;
            changed.extend(found.iter().copied());
            set_priority(conn, state.table(), "job_id", &found, priority)?;
        }
        changed.sort_unstable();
        set_priority(conn, "solid_queue_jobs", "id", &changed, priority)?;
        Ok(changed)
    })
}

fn set_priority(
    conn: &mut Conn<'_>,
    table: &str,
    key: &str,
    jobs: &[i64],
    priority: i32,
) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    // A job of an ordered key keeps its place.
    let in_order = match table {
        BLOCKED => format!(
            " AND job_id NOT IN (SELECT id FROM solid_queue_jobs \
               WHERE id IN {{in $2}} AND concurrency_conflict = '{ORDERED}')"
        ),
        _ => String::new(),
    };
    let text = format!("UPDATE {table} SET priority = $1 WHERE {key} IN {{in $2}}{in_order}");
    Statement::new(text)
        .bind(priority)
        .bind(id_list(jobs))
        .execute(conn)
}

/// Returns those of the jobs that have not ended. They may be in a state that was not searched,
/// because they were moved meanwhile.
pub(crate) fn open(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT id AS job_id FROM solid_queue_jobs j WHERE id IN {in $1} AND finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id) ORDER BY id";
    Statement::new(text)
        .bind(id_list(jobs))
        .load(conn)
        .map(job_ids)
}

// --- Retries failed jobs ---

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

/// The policy of a retry for jobs that may run at most once, and have run already.
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

/// The due times of retried jobs: the first at `start`, later ones by the number of jobs before them.
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
        make_ready_or_scheduled(conn, ready)
    })
}

fn retry_by(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    at_most_once: AtMostOnce,
    reinsert: impl FnOnce(&mut Conn<'_>, &[i64]) -> QueryResult<()>,
) -> QueryResult<RetriedJobs> {
    conn.transaction(|conn| {
        let mut ready = executions::lock(conn, JobState::Failed, jobs)?;
        let mut risky = Vec::new();
        if at_most_once == AtMostOnce::Leave {
            risky = failed::risky_jobs(conn, &ready)?;
            ready.retain(|job| !risky.contains(job));
        }
        let replaced = unique::retake(conn, &ready)?;
        ready.retain(|job| !replaced.contains(job));
        let ready = executions::take(conn, &[JobState::Failed], &ready)?;
        if ready.is_empty() {
            return Ok(RetriedJobs { ready, risky, replaced });
        }
        flows::leave::rejoin(conn, &ready)?;
        reinsert(conn, &ready)?;
        let text = "UPDATE solid_queue_jobs SET attempts = 0, crash_count = 0, updated_at = {now} WHERE id IN {in $1}";
        Statement::new(text).bind(id_list(&ready)).execute(conn)?;
        // The rows are locked now: no promotion is about to tell the failures to what waits for them.
        if edges::forget_failures(conn, &ready)? {
            let rest = ready.iter().copied().map(NewRequest::Retried);
            wanted_keys::request_later(conn, rest)?;
        }
        crate::db::transition::enqueue::connect::resume(conn, &ready)?;
        // They start to count again, and attempts are deleted by that count.
        attempts::keep_newest(conn, &ready)?;
        // The result of their earlier end is not valid any more.
        results::delete(conn, &ready)?;
        Ok(RetriedJobs { ready, risky, replaced })
    })
}
