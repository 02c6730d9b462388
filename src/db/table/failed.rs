//! `solid_queue_failed_executions`: why jobs failed.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, id_list};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::extras::StoredPolicy;
use crate::db::model::outcome::{JobFailure, is_unknown};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamp};

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
pub(crate) fn insert_failed(conn: &mut Conn<'_>, failures: &[FailedJob<'_>]) -> QueryResult<()> {
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
    /// Returns whether another run may do again what an earlier one has done.
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

/// A failure, with the class of its job.
#[derive(Debug, QueryableByName)]
pub(crate) struct FailureRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) error: Option<String>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) at: NaiveDateTime,
}

/// Returns the newest failures without a fingerprint: another program has stored them.
pub(crate) fn without_fingerprint(
    conn: &mut Conn<'_>,
    limit: usize,
) -> QueryResult<Vec<FailureRow>> {
    // In the order of the index, in which NULL comes last.
    let text = "SELECT f.id, f.job_id, j.class_name, f.error, coalesce({moment f.created_at}, {now}) AS at \
         FROM solid_queue_failed_executions f JOIN solid_queue_jobs j ON j.id = f.job_id \
         WHERE f.fingerprint IS NULL ORDER BY f.fingerprint DESC, f.id DESC LIMIT $1";
    Statement::new(text)
        .bind(limit as i64)
        .uncached()
        .load(conn)
}

/// Stores the fingerprints of failures that have none, by their ids. Returns how many there were.
pub(crate) fn set_fingerprints(
    conn: &mut Conn<'_>,
    fingerprints: &[(i64, &str)],
) -> QueryResult<usize> {
    let input = InputRows {
        names: ["id", "fingerprint"],
        rows: fingerprints
            .iter()
            .map(|(id, text)| [(*id).into(), (*text).into()])
            .collect(),
    };
    let text = format!(
        "UPDATE solid_queue_failed_executions SET fingerprint = input.fingerprint FROM {} \
         WHERE solid_queue_failed_executions.id = input.id \
         AND coalesce(solid_queue_failed_executions.fingerprint, '') = ''",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).changes(conn)
}
