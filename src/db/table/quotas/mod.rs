//! `windlass_quota_counts` and `windlass_quota_jobs`: what was enqueued under quotas.
//!
//! On Postgres, each connection counts in rows of its own, and what others have not committed is
//! read from their advisory locks: no enqueue waits for the transaction of another. On SQLite, the
//! write lock is taken first, so that there are no others.

mod sqlite;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::param::InputRows;
use crate::db::conn::sql::{Lossy, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::new_quota::{NewQuota, QuotaUse};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::time::Duration;

/// Whether the job of `q` waits.
const WAITS: &str = "(EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id) \
     OR EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id) \
     OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id))";

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Admits up to `wanted` jobs and counts them, in the transaction that is open.
pub(crate) fn admit(conn: &mut Conn<'_>, quota: &NewQuota, wanted: i64) -> QueryResult<QuotaUse> {
    if conn.dialect() == Dialect::Sqlite {
        return sqlite::admit(conn, quota, wanted);
    }
    let limits = &quota.limits;
    Statement::new("SELECT * FROM windlass_admit_quota($1, $2, $3, $4, $5, $6)")
        .bind(&quota.name)
        .bind(wanted)
        .bind(limits.waiting)
        .bind(limits.per_minute)
        .bind(limits.per_day)
        .bind(limits.to_column())
        .get_result(conn)
}

/// Notes new jobs of quotas that limit how many wait: their ids, and the names of the quotas.
pub(crate) fn note(conn: &mut Conn<'_>, jobs: &[(i64, &str)]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let input = InputRows {
        names: ["job_id", "quota"],
        rows: jobs
            .iter()
            .map(|(job, quota)| [(*job).into(), (*quota).into()])
            .collect(),
    };
    let text = format!(
        "INSERT INTO windlass_quota_jobs (job_id, quota) SELECT input.job_id, input.quota FROM {} WHERE true \
         ON CONFLICT (job_id) DO NOTHING",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).unkept().execute(conn)
}

/// A quota that was used lately.
#[derive(Debug, QueryableByName)]
pub(crate) struct UsedQuota {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) limits: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub(crate) waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_minute: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_day: i64,
}

/// Returns the quotas that were used in the last days, and how much of each is used.
pub(crate) fn all(conn: &mut Conn<'_>) -> QueryResult<Vec<UsedQuota>> {
    let used = |per: &str, since: &str| {
        format!(
            "CAST(coalesce((SELECT sum(c.jobs) FROM windlass_quota_counts c WHERE c.quota = names.quota \
             AND c.per = '{per}' AND c.starts_at > {{later {since}}} AND c.starts_at <= {{now}}), 0) AS bigint)"
        )
    };
    let text = format!(
        "SELECT names.quota AS name, (SELECT c.limits FROM windlass_quota_counts c WHERE c.quota = names.quota \
           ORDER BY c.starts_at DESC, c.per, c.slot LIMIT 1) AS limits, \
         (SELECT count(*) FROM windlass_quota_jobs q WHERE q.quota = names.quota AND {WAITS}) AS waiting, \
         {} AS a_minute, {} AS a_day \
         FROM (SELECT quota FROM windlass_quota_counts UNION SELECT quota FROM windlass_quota_jobs) AS names \
         ORDER BY names.quota",
        used("minute", "$1"),
        used("day", "$2"),
    );
    Statement::new(text)
        .bind(-micros(MINUTE))
        .bind(-micros(DAY))
        .unkept()
        .load(conn)
}

/// Deletes the counts of windows that are long over, and up to `batch` notes of jobs that have
/// ended. Returns how many rows. It waits for no transaction that enqueues.
pub(crate) fn clear(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_quota_counts WHERE (per = 'minute' AND starts_at <= {later $1}) \
         OR starts_at <= {later $2}";
    let windows = Statement::new(text)
        .bind(-micros(60 * MINUTE))
        .bind(-micros(7 * DAY))
        .unkept()
        .changes(conn)?;
    let text = "DELETE FROM windlass_quota_jobs WHERE job_id IN (SELECT q.job_id FROM windlass_quota_jobs q \
         WHERE NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = q.job_id AND j.finished_at IS NULL) \
         ORDER BY q.job_id LIMIT $1 {lock skip of q})";
    let jobs = Statement::new(text)
        .bind(batch as i64)
        .unkept()
        .changes(conn)?;
    Ok(windows + jobs)
}
