//! The queries of `explain`: why a job does not run, as the conditions of dispatching and claiming,
//! one by one.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text, Timestamp};

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
pub struct RegisteredProcess {
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
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RubyProcesses {
    Include,
    Exclude,
}

/// Returns the registered processes of a kind. Those of Ruby count no heartbeats.
pub fn registered(
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

/// The job before a blocked job of a concurrency key.
#[derive(Debug, QueryableByName)]
pub(crate) struct Predecessor {
    /// The oldest job that holds a slot of the key, or else the one before it in the line.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) job_id: Option<i64>,
    /// The time at which the next run of a job is due that keeps a slot until then.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) next_run_at: Option<NaiveDateTime>,
}

/// Returns what is before the job `behind` in the line of an ordered key, or what holds the slots of another key.
pub(crate) fn predecessor(
    conn: &mut Conn<'_>,
    key: &str,
    behind: Option<i64>,
) -> QueryResult<Predecessor> {
    let text = "SELECT coalesce((SELECT min(held.job_id) FROM ( \
           SELECT job_id FROM solid_queue_ready_executions r WHERE r.concurrency_key = $1 UNION ALL \
           SELECT job_id FROM solid_queue_claimed_executions c WHERE c.concurrency_key = $1 UNION ALL \
           SELECT job_id FROM solid_queue_scheduled_executions s WHERE s.concurrency_key = $1) AS held), ( \
         SELECT max(o.job_id) FROM solid_queue_blocked_executions o WHERE o.concurrency_key = $1 AND o.job_id < $2)) AS job_id, \
         (SELECT {moment min(s.scheduled_at)} FROM solid_queue_scheduled_executions s WHERE s.concurrency_key = $1) AS next_run_at";
    Statement::new(text).bind(key).bind(behind).get_result(conn)
}
