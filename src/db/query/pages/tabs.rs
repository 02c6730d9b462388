//! How many jobs each state has, counted up to a limit.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// The highest number that is counted.
pub(crate) const COUNTED: i64 = 10_000;

/// The number of jobs in each state; `COUNTED + 1` is more than are counted.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct StateCounts {
    #[diesel(sql_type = BigInt)]
    pub(crate) all_jobs: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) ready: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) scheduled: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) blocked: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) claimed: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) failed: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) cancelled: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) discarded: i64,
}

impl StateCounts {
    /// Whether any state has more jobs than are counted.
    pub(crate) fn is_more(&self) -> bool {
        let counts = [
            self.all_jobs,
            self.ready,
            self.scheduled,
            self.blocked,
            self.claimed,
            self.failed,
            self.cancelled,
            self.discarded,
        ];
        counts.iter().any(|count| *count > COUNTED)
    }
}

/// Counts the jobs of each state. Finished ones are not counted: without an index, a count could
/// have to pass all others first.
pub(crate) fn counts(conn: &mut Conn<'_>) -> QueryResult<StateCounts> {
    let most = COUNTED + 1;
    // From the newest on: where the oldest were, there may be many rows that were deleted lately.
    let count = |(id, of): (&str, &str)| {
        format!(
            "(SELECT count(*) FROM (SELECT {id} FROM {of} {id} > 0 ORDER BY {id} DESC LIMIT {most}) AS counted)"
        )
    };
    let ended = |outcome: &str| {
        format!(
            "windlass_attempts WHERE outcome IN ('cancelled', 'discarded') AND outcome = '{outcome}' AND"
        )
    };
    let [
        all,
        ready,
        scheduled,
        blocked,
        claimed,
        failed,
        cancelled,
        discarded,
    ] = [
        ("id", "solid_queue_jobs WHERE"),
        ("job_id", "solid_queue_ready_executions WHERE"),
        ("job_id", "solid_queue_scheduled_executions WHERE"),
        ("job_id", "solid_queue_blocked_executions WHERE"),
        ("job_id", "solid_queue_claimed_executions WHERE"),
        ("job_id", "solid_queue_failed_executions WHERE"),
        ("id", &ended("cancelled")),
        ("id", &ended("discarded")),
    ]
    .map(count);
    // A large table is not counted: Postgres would pass each job that was deleted lately.
    let all = match conn.dialect() {
        Dialect::Sqlite => all,
        Dialect::Postgres => format!(
            "(SELECT CASE WHEN (SELECT reltuples FROM pg_class WHERE oid = CAST('solid_queue_jobs' AS regclass)) > 10 * {most} \
             THEN {most} ELSE {all} END)"
        ),
    };
    let text = format!(
        "SELECT {all} AS all_jobs, {ready} AS ready, {scheduled} AS scheduled, {blocked} AS blocked, {claimed} AS claimed, \
         {failed} AS failed, {cancelled} AS cancelled, {discarded} AS discarded"
    );
    Statement::new(text).unkept().get_result(conn)
}
