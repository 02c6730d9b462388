//! `solid_queue_failed_executions`: why jobs failed.

use crate::db::conn::connection::Conn;
use crate::db::conn::param::InputRows;
use crate::db::conn::sql::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{JobFailure, StoredPolicy, is_unknown};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// A job that has failed permanently.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedJob<'f> {
    pub(crate) job_id: i64,
    pub(crate) class_name: &'f str,
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
    let row = |failed: &FailedJob<'_>| {
        [
            failed.job_id.into(),
            failed.failure.to_json().into(),
            failed.failure.fingerprint(failed.class_name).into(),
        ]
    };
    let input = InputRows {
        names: ["job_id", "error", "fingerprint"],
        rows: failures.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, fingerprint, created_at) \
         SELECT j.id, input.error, input.fingerprint, {{now}} FROM {} CROSS JOIN solid_queue_jobs j \
         WHERE j.id = input.job_id ORDER BY j.id + 0 \
         ON CONFLICT (job_id) DO UPDATE SET error = excluded.error, fingerprint = excluded.fingerprint, \
           created_at = excluded.created_at",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

#[derive(QueryableByName)]
struct FailedOnce {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
}

impl FailedOnce {
    /// Whether another run may do again what an earlier one has done.
    fn is_risky(&self) -> bool {
        let policy: Option<StoredPolicy> = self
            .policy
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        let may_run_again = policy.is_some_and(|policy| policy.is_after_known_outcome());
        !may_run_again || is_unknown(self.error.as_deref().unwrap_or_default())
    }
}

/// Returns the failed jobs that may run at most once, at least after an unknown outcome like theirs.
pub(crate) fn risky_jobs(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT j.id, j.policy, f.error FROM solid_queue_jobs j \
         JOIN solid_queue_failed_executions f ON f.job_id = j.id \
         WHERE j.id IN {in $1} AND j.at_most_once ORDER BY j.id";
    let failed: Vec<FailedOnce> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let risky = failed.iter().filter(|job| job.is_risky());
    Ok(risky.map(|job| job.id).collect())
}
