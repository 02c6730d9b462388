//! The rules of `doctor` about jobs that wait for events, each checked for a bounded number of rows.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::model::wait_keys::WAITS_FOR_EVENT;
use crate::db::query::doctor::{FIRST, Inconsistent};
use diesel::prelude::*;

/// How many jobs or waits a check reads.
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
    let mut statement = Statement::new(text).unkept();
    if rule == WaitRule::IsInTime {
        statement = statement.bind(-SETTLED);
    }
    let rows: Vec<Id> = statement.load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}
