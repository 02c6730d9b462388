//! The queries of `explain`: why a job does not run, as the conditions of dispatching and claiming,
//! one by one.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::{ORDERED, UNIQUE_SUCCESSOR, waits_for_others};
use crate::db::table::claimed::Note;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text, Timestamp};

/// The limit of a count.
pub(crate) const MOST: u32 = 10_000;

#[derive(QueryableByName)]
struct CountAhead {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Returns how many ready executions of its queue come before that of a job. `None` if it is not
/// ready.
pub(crate) fn ahead(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<u32>> {
    let text = format!(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM solid_queue_ready_executions o \
           WHERE o.queue_name = r.queue_name AND (o.priority, o.job_id) < (r.priority, r.job_id) LIMIT {MOST}) AS before) \
         AS count FROM solid_queue_ready_executions r WHERE r.job_id = $1"
    );
    let found: Option<CountAhead> = Statement::new(text).bind(job).get_result(conn).optional()?;
    Ok(found.map(|row| u32::try_from(row.count).unwrap_or(MOST)))
}

#[derive(QueryableByName)]
struct PausedSince {
    #[diesel(sql_type = Nullable<Timestamp>)]
    since: Option<NaiveDateTime>,
}

/// Returns when a queue was paused, if it is.
pub(crate) fn paused_since(conn: &mut Conn<'_>, queue: &str) -> QueryResult<Option<NaiveDateTime>> {
    let text = "SELECT coalesce({moment created_at}, {now}) AS since FROM solid_queue_pauses WHERE queue_name = $1";
    let found: Option<PausedSince> = Statement::new(text)
        .bind(queue)
        .get_result(conn)
        .optional()?;
    Ok(found.and_then(|row| row.since))
}

/// A process that may take jobs.
#[derive(Debug, QueryableByName)]
pub(crate) struct RegisteredProcess {
    /// Its own description, as JSON.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) metadata: Option<String>,
    /// Seconds since its last heartbeat.
    #[diesel(sql_type = Double)]
    pub(crate) heartbeat_seconds: f64,
    /// The number of jobs that it holds.
    #[diesel(sql_type = BigInt)]
    pub(crate) claimed: i64,
    /// True if it is stopping, and claims nothing more.
    #[diesel(sql_type = Bool)]
    pub(crate) draining: bool,
}

/// The rule for processes of Ruby: they are included only if they can run the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RubyProcesses {
    Include,
    Exclude,
}

/// Returns the registered processes of a kind. Those of Ruby count no heartbeats.
pub(crate) fn registered(
    conn: &mut Conn<'_>,
    kind: &str,
    ruby: RubyProcesses,
) -> QueryResult<Vec<RegisteredProcess>> {
    let beat = age(conn, "p.last_heartbeat_at");
    let text = format!(
        "SELECT p.metadata, coalesce({beat}, 0) AS heartbeat_seconds, \
         (SELECT count(*) FROM solid_queue_claimed_executions c WHERE c.process_id = p.id) AS claimed, p.draining \
         FROM solid_queue_processes p WHERE p.kind = $1 AND ($2 OR p.heartbeat_seq IS NOT NULL) ORDER BY p.id"
    );
    Statement::new(text)
        .bind(kind)
        .bind(ruby == RubyProcesses::Include)
        .load(conn)
}

/// A claim, and the process that holds it.
#[derive(Debug, QueryableByName)]
pub(crate) struct Holder {
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) since: Option<NaiveDateTime>,
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) cancel_requested_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    note: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) process_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) hostname: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) pid: Option<i32>,
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) heartbeat_seconds: Option<f64>,
}

impl Holder {
    /// Returns the process's notes about the run.
    pub(crate) fn note(&self) -> Note {
        Note::of_column(self.note.as_deref())
    }
}

/// Returns the claim of a job. `None` if it is not claimed.
pub(crate) fn holder(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<Holder>> {
    let held = age(conn, "c.created_at");
    let beat = age(conn, "p.last_heartbeat_at");
    let text = format!(
        "SELECT {{moment c.created_at}} AS since, coalesce({held}, 0) AS seconds, \
         {{moment c.cancel_requested_at}} AS cancel_requested_at, c.note, \
         p.name AS process_name, p.hostname, p.pid, \
         CASE WHEN p.id IS NOT NULL THEN coalesce({beat}, 0) END AS heartbeat_seconds \
         FROM solid_queue_claimed_executions c LEFT JOIN solid_queue_processes p ON p.id = c.process_id \
         WHERE c.job_id = $1"
    );
    Statement::new(text).bind(job).get_result(conn).optional()
}

/// The reason why a job is blocked.
#[derive(Debug, QueryableByName)]
pub(crate) struct BlockedBy {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) concurrency_key: String,
    /// The job that has to end first, if it is known.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) after_job_id: Option<i64>,
    /// True if its key is ordered.
    #[diesel(sql_type = Bool)]
    pub(crate) is_ordered: bool,
    /// The time at which the other job's next run is due, if it keeps the slot until then.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) next_run_at: Option<NaiveDateTime>,
}

impl BlockedBy {
    /// Returns whether it waits for a slot, and not for one job.
    pub(crate) fn is_limited(&self) -> bool {
        !waits_for_others(&self.concurrency_key)
    }
}

/// Returns what blocks a job. `None` if it is not blocked.
pub(crate) fn blocked(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<BlockedBy>> {
    let text = format!(
        "SELECT b.concurrency_key, CASE WHEN b.concurrency_key = '{UNIQUE_SUCCESSOR}' THEN u.after_job_id ELSE coalesce(( \
           SELECT min(held.job_id) FROM ( \
             SELECT job_id FROM solid_queue_ready_executions r WHERE r.concurrency_key = b.concurrency_key UNION ALL \
             SELECT job_id FROM solid_queue_claimed_executions c WHERE c.concurrency_key = b.concurrency_key UNION ALL \
             SELECT job_id FROM solid_queue_scheduled_executions s WHERE s.concurrency_key = b.concurrency_key) AS held), ( \
           SELECT max(o.job_id) FROM solid_queue_blocked_executions o WHERE o.concurrency_key = b.concurrency_key \
             AND o.job_id < b.job_id AND j.concurrency_conflict = '{ORDERED}')) \
           END AS after_job_id, coalesce(j.concurrency_conflict = '{ORDERED}', false) AS is_ordered, \
         (SELECT {{moment min(s.scheduled_at)}} FROM solid_queue_scheduled_executions s \
           WHERE s.concurrency_key = b.concurrency_key) AS next_run_at \
         FROM solid_queue_blocked_executions b LEFT JOIN solid_queue_jobs j ON j.id = b.job_id \
         LEFT JOIN windlass_unique_jobs u ON u.job_id = b.job_id WHERE b.job_id = $1"
    );
    Statement::new(text).bind(job).get_result(conn).optional()
}

#[derive(QueryableByName)]
struct DueFor {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// Returns for how many seconds a scheduled job has been due, by the database's clock; negative if
/// it is not due yet.
pub(crate) fn due_for(conn: &mut Conn<'_>, job: i64) -> QueryResult<f64> {
    let since = conn.seconds("{moment scheduled_at}", "{now}");
    let text = format!(
        "SELECT {since} AS seconds FROM solid_queue_scheduled_executions WHERE job_id = $1"
    );
    let found: Option<DueFor> = Statement::new(text).bind(job).get_result(conn).optional()?;
    Ok(found.and_then(|row| row.seconds).unwrap_or_default())
}

/// The columns of a job about its delivery and its limits in time.
#[derive(Debug, QueryableByName)]
pub(crate) struct PolicyColumns {
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
}

/// Returns that of a job, if it exists.
pub(crate) fn limits(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<PolicyColumns>> {
    let text = "SELECT policy, max_attempts, at_most_once, coalesce({moment created_at}, {now}) AS created_at, \
         {moment scheduled_at} AS scheduled_at FROM solid_queue_jobs WHERE id = $1";
    Statement::new(text)
        .unkept()
        .bind(job)
        .get_result(conn)
        .optional()
}
