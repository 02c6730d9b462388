//! `solid_queue_failed_executions`: why jobs failed.

use crate::db::conn::connection::Conn;
use crate::db::conn::param::InputRows;
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
    let row = |failed: &FailedJob<'_>| [failed.job_id.into(), failed.failure.to_json().into()];
    let input = InputRows {
        names: ["job_id", "error"],
        rows: failures.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT j.id, input.error, {{now}} FROM {} CROSS JOIN solid_queue_jobs j \
         WHERE j.id = input.job_id ORDER BY j.id + 0 \
         ON CONFLICT (job_id) DO UPDATE SET error = excluded.error, created_at = excluded.created_at",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}
