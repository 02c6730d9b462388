//! What the executions of all states have in common: the job.

use diesel::QueryableByName;
use diesel::sql_types::BigInt;

/// The row of a statement that answers with jobs.
#[derive(QueryableByName)]
pub(super) struct Execution {
    #[diesel(sql_type = BigInt)]
    pub(super) job_id: i64,
}

pub(super) fn job_ids(rows: Vec<Execution>) -> Vec<i64> {
    rows.into_iter().map(|row| row.job_id).collect()
}
