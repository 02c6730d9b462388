//! `windlass_expiries`: by when jobs must have started.
//!
//! A row is deleted when its job starts, so a job that has one has not started: unless a program of
//! a version that does not know this table has started it, which the counts and the last claim in
//! the job's row show. A job of another version, or one inserted by hand, has no row.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::NewExpiry;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Timestamp};
use std::collections::BTreeMap;

/// The latest expiry: a later one could be written, but not read by every database.
pub(crate) const LATEST: &str = "9999-12-30 00:00:00.000000";

/// The due time of a row's job. As a value of its own, it is looked up by the job's id in any plan.
const DUE: &str =
    "(SELECT j.scheduled_at FROM solid_queue_jobs j WHERE j.id = CAST(value ->> 0 AS bigint))";

/// Stores the expiries of jobs that have just been inserted or replaced. Relative ones count from
/// when the job is due.
pub(crate) fn store_expiries(
    conn: &mut Conn<'_>,
    new: &BTreeMap<i64, NewExpiry>,
) -> QueryResult<()> {
    if new.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = new
        .iter()
        .map(|(job, expiry)| match expiry {
            NewExpiry::At(time) => (job, Some(timestamp(*time)), 0),
            NewExpiry::In(time) => (job, None, micros(*time)),
        })
        .collect();
    let rows = serde_json::to_string(&rows)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let expires_at = match conn.dialect() {
        Dialect::Postgres => format!(
            "least(coalesce(CAST(value ->> 1 AS timestamp), greatest(coalesce({DUE}, {{now}}), {{now}}) \
             + CAST(value ->> 2 AS bigint) * interval '1 microsecond'), timestamp '{LATEST}')"
        ),
        // A time that SQLite cannot write is NULL.
        Dialect::Sqlite => format!(
            "min(coalesce(value ->> 1, strftime('%Y-%m-%d %H:%M:%f000', max(coalesce({DUE}, {{now}}), {{now}}), \
             ((value ->> 2) / 1000000.0) || ' seconds'), '{LATEST}'), '{LATEST}')"
        ),
    };
    let text = format!(
        "INSERT INTO windlass_expiries (job_id, expires_at) \
         SELECT CAST(value ->> 0 AS bigint), {expires_at} FROM {{rows $1}} WHERE true ORDER BY 1 \
         ON CONFLICT (job_id) DO UPDATE SET expires_at = excluded.expires_at, released_claim_id = NULL"
    );
    Statement::new(text).uncached().bind(&rows).execute(conn)
}

/// Deletes the expiries of jobs, which have started or ended.
pub(crate) fn remove(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_expiries WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// Deletes the expiries of rescheduled jobs that would expire before they are due.
pub(crate) fn remove_overtaken(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM windlass_expiries WHERE job_id IN {in $1} \
         AND expires_at <= (SELECT j.scheduled_at FROM solid_queue_jobs j WHERE j.id = windlass_expiries.job_id)";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// Notes that the last claims of jobs, which their row names, were released before a thread had
/// started them. Jobs that had started have no expiry any more.
pub(crate) fn note_released(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "UPDATE windlass_expiries SET released_claim_id = \
           (SELECT j.last_claim_id FROM solid_queue_jobs j WHERE j.id = windlass_expiries.job_id) \
         WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .execute(conn)
}

/// An expiry and its job.
#[derive(Debug, QueryableByName)]
pub(crate) struct ExpiryOfJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// True if its time has come.
    #[diesel(sql_type = Bool)]
    pub(crate) is_due: bool,
    /// True if it has no effect: the job has started once, or ended.
    #[diesel(sql_type = Bool)]
    pub(crate) is_over: bool,
}

/// The condition that the job `j` of the expiry `e` has started once.
const HAS_STARTED: &str = "(j.attempts > 0 OR j.crash_count > 0 \
     OR (j.last_claim_id IS NOT NULL AND j.last_claim_id <> coalesce(e.released_claim_id, 0)))";

/// Returns the expiry of a claimed job, if it has one.
pub(crate) fn of_claimed(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<ExpiryOfJob>> {
    let text = format!(
        "SELECT e.job_id, e.expires_at <= {{now}} AS is_due, {HAS_STARTED} AS is_over \
         FROM windlass_expiries e JOIN solid_queue_jobs j ON j.id = e.job_id WHERE e.job_id = $1"
    );
    Statement::new(text)
        .uncached()
        .bind(job)
        .get_result(conn)
        .optional()
}

/// Returns the next expiries of jobs that no process holds, the earliest first.
pub(crate) fn next(conn: &mut Conn<'_>, most: usize) -> QueryResult<Vec<ExpiryOfJob>> {
    // A count instead of NOT EXISTS, and `+ 0` below: a join could read all of the other table.
    let text = "SELECT e.job_id, e.expires_at <= {now} AS is_due, false AS is_over FROM windlass_expiries e \
         WHERE e.expires_at > {time '0001-01-01 00:00:00.000000'} \
         AND (SELECT count(*) FROM solid_queue_claimed_executions c WHERE c.job_id = e.job_id) = 0 \
         ORDER BY e.expires_at LIMIT $1";
    Statement::new(text).uncached().bind(most as i64).load(conn)
}

/// Returns those of the expiries that are still due, and whether they have any effect.
pub(crate) fn due(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<ExpiryOfJob>> {
    let text = format!(
        "SELECT e.job_id, true AS is_due, j.id IS NULL OR j.finished_at IS NOT NULL OR {HAS_STARTED} \
           OR EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = e.job_id) AS is_over \
         FROM windlass_expiries e LEFT JOIN solid_queue_jobs j ON j.id = e.job_id + 0 \
         WHERE e.job_id IN {{in $1}} AND e.expires_at <= {{now}}"
    );
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}

#[derive(QueryableByName)]
struct ExpiresAt {
    #[diesel(sql_type = Nullable<Timestamp>)]
    expires_at: Option<NaiveDateTime>,
}

/// Returns by when a job must have started, if it must and has not.
pub(crate) fn of_job(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<NaiveDateTime>> {
    let text = format!(
        "SELECT {{moment e.expires_at}} AS expires_at FROM windlass_expiries e JOIN solid_queue_jobs j ON j.id = e.job_id \
         WHERE e.job_id = $1 AND NOT {HAS_STARTED}"
    );
    let found: Option<ExpiresAt> = Statement::new(text)
        .uncached()
        .bind(job)
        .get_result(conn)
        .optional()?;
    Ok(found.and_then(|row| row.expires_at))
}
