//! The ready jobs that `doctor` compares with the workers: the first of each queue.

use crate::read::sql::doctor::{FIRST, Inconsistent};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::{Id, Lossy};
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::model::extras::Extras;
use windlass::internal::db::model::new_row::WAITS_FOR_EVENT;
use windlass::internal::db::table::jobs::is_of_ruby;

/// The most queues that are read.
const QUEUES: u32 = 500;

/// The number of next jobs of each queue that are read. Workers leave out the classes that they do not have, so that
/// these soon come first.
const FIRST_OF_QUEUE: u32 = 10;

/// A ready job that comes before the others of its queue.
#[derive(Debug, QueryableByName)]
pub(crate) struct OldReadyJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    /// True if its class is a Ruby class.
    #[diesel(sql_type = Bool)]
    pub(crate) of_ruby: bool,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
    /// Seconds since it became ready.
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

impl OldReadyJob {
    /// Returns the version of its arguments.
    pub(crate) fn arguments_version(&self) -> u32 {
        Extras::of_policy(self.policy.as_deref()).arguments_version()
    }
}

/// Returns those of the first 10 jobs of each of up to 500 queues that have been ready for `seconds`, except on paused
/// queues and of paused classes.
pub(crate) fn old_ready(conn: &mut Conn<'_>, seconds: f64) -> QueryResult<Vec<OldReadyJob>> {
    let ready = "solid_queue_ready_executions";
    let first = format!(
        "FROM {ready} r WHERE r.queue_name = walk.queue_name ORDER BY r.priority, r.job_id LIMIT {FIRST_OF_QUEUE}"
    );
    let heads = match conn.dialect() {
        Dialect::Postgres => {
            format!("walk CROSS JOIN LATERAL (SELECT r.job_id, r.created_at {first}) AS head")
        }
        // SQLite keeps the order of a CROSS JOIN.
        Dialect::Sqlite => format!(
            "walk CROSS JOIN {ready} head ON head.id IN (SELECT id FROM (SELECT r.id {first}))"
        ),
    };
    let text = format!(
        "WITH RECURSIVE walk(queue_name, place) AS (SELECT min(queue_name), 1 FROM {ready} UNION ALL \
           SELECT (SELECT min(r.queue_name) FROM {ready} r WHERE r.queue_name > walk.queue_name), place + 1 \
           FROM walk WHERE walk.queue_name IS NOT NULL AND place < {QUEUES}) \
         SELECT j.id AS job_id, walk.queue_name, j.class_name, {} AS of_ruby, j.policy, {} AS seconds \
         FROM {heads} JOIN solid_queue_jobs j ON j.id = head.job_id \
         WHERE walk.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) \
         AND j.class_name NOT IN (SELECT class_name FROM windlass_class_pauses) \
         AND head.created_at <= {{later $1}} ORDER BY walk.queue_name, head.created_at, j.id",
        is_of_ruby("j"),
        age(conn, "head.created_at"),
    );
    let micros = (seconds * -1_000_000.0) as i64;
    Statement::new(text).uncached().bind(micros).load(conn)
}

// --- The rules of `doctor` about jobs that wait for events, each checked for a bounded number ---

/// The most jobs or waits that a check reads.
pub(crate) const READ: u32 = 10_000;

/// For how long a time-out has passed that a check reports, in microseconds.
const SETTLED: i64 = 300_000_000;

/// A rule about waits for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitRule {
    /// A job that is blocked for an event has a wait.
    HasWait,
    /// A job with a wait is blocked for an event.
    IsBlocked,
    /// A wait whose time has passed is over.
    IsInTime,
}

impl WaitRule {
    pub(crate) const ALL: [WaitRule; 3] =
        [WaitRule::HasWait, WaitRule::IsBlocked, WaitRule::IsInTime];

    /// Returns a SELECT of the jobs that break it, as `id`. Waits and executions come and go in one transaction, and each
    /// is one statement.
    fn query(self) -> String {
        let execution = |job: &str| {
            format!(
                "(SELECT x.id FROM solid_queue_blocked_executions x WHERE x.job_id = {job} \
                 AND x.concurrency_key || '' = '{WAITS_FOR_EVENT}')"
            )
        };
        match self {
            WaitRule::HasWait => format!(
                "SELECT x.job_id AS id FROM (SELECT job_id FROM solid_queue_blocked_executions \
                   WHERE concurrency_key = '{WAITS_FOR_EVENT}' ORDER BY priority, job_id LIMIT {READ}) AS x \
                 WHERE (SELECT w.job_id FROM windlass_waits w WHERE w.job_id = x.job_id) IS NULL"
            ),
            WaitRule::IsBlocked => format!(
                "SELECT w.job_id AS id FROM (SELECT job_id FROM windlass_waits WHERE job_id > 0 ORDER BY job_id LIMIT {READ}) AS w \
                 WHERE {} IS NULL",
                execution("w.job_id")
            ),
            WaitRule::IsInTime => format!(
                "SELECT w.job_id AS id FROM (SELECT job_id FROM windlass_waits WHERE timeout_at < {{later $1}} \
                   ORDER BY timeout_at LIMIT {READ}) AS w WHERE {} IS NOT NULL",
                execution("w.job_id")
            ),
        }
    }
}

/// Finds the jobs that break a rule.
pub(crate) fn broken(conn: &mut Conn<'_>, rule: WaitRule) -> QueryResult<Inconsistent> {
    let text = format!(
        "SELECT id FROM ({}) AS broken ORDER BY id LIMIT {READ}",
        rule.query()
    );
    let mut statement = Statement::new(text).uncached();
    if rule == WaitRule::IsInTime {
        statement = statement.bind(-SETTLED);
    }
    let rows: Vec<Id> = statement.load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}
