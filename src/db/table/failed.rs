//! `solid_queue_failed_executions`: why jobs failed.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::JobFailure;
use diesel::prelude::*;

/// A job that has failed permanently.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedJob<'f> {
    pub(crate) job_id: i64,
    pub(crate) failure: &'f JobFailure,
}

/// Records why jobs failed.
///
/// If a failed execution exists, it is left over from earlier, and the newer reason replaces its
/// own. A job that was deleted meanwhile gets none.
pub(crate) fn insert(conn: &mut Conn<'_>, failures: &[FailedJob<'_>]) -> QueryResult<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT j.id, value ->> 1, {now} FROM {rows $1} CROSS JOIN solid_queue_jobs j \
         WHERE j.id = CAST(value ->> 0 AS bigint) ORDER BY j.id + 0 \
         ON CONFLICT (job_id) DO UPDATE SET error = excluded.error, created_at = excluded.created_at";
    let rows: Vec<(i64, String)> = failures
        .iter()
        .map(|failed| (failed.job_id, failed.failure.to_json()))
        .collect();
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    Statement::new(text).bind(&rows).execute(conn)
}
