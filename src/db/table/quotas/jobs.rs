//! The jobs of quotas that limit how many wait.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::Per;
use crate::db::table::quotas::slots;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeMap;

/// Whether the job of `q` waits.
pub(super) const WAITS: &str = "(EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id) \
     OR EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id) \
     OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id))";

/// A job, the quota that counts it, and the slot from which it has its place.
#[derive(Debug, QueryableByName)]
pub(crate) struct QuotaJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) quota: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) slot: i64,
}

/// Notes new jobs.
pub(crate) fn note(conn: &mut Conn<'_>, jobs: &[QuotaJob]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let rows: Vec<(i64, &str, i64)> = jobs
        .iter()
        .map(|job| (job.job_id, &*job.quota, job.slot))
        .collect();
    let text = "INSERT INTO windlass_quota_jobs (job_id, quota, slot) \
         SELECT CAST(value ->> 0 AS bigint), value ->> 1, CAST(value ->> 2 AS bigint) FROM {rows $1} WHERE true \
         ON CONFLICT (job_id) DO NOTHING";
    let rows = serde_json::to_string(&rows).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
}

/// Gives back the places of up to `batch` jobs that do not wait any more, of one quota or of all.
/// Returns how many. It waits for no transaction that enqueues.
pub(crate) fn free(conn: &mut Conn<'_>, quota: Option<&str>, batch: i64) -> QueryResult<usize> {
    let of_quota = quota.map_or("", |_| "AND q.quota = $2");
    let text = format!(
        "SELECT q.job_id, q.quota, q.slot FROM windlass_quota_jobs q \
         JOIN windlass_quota_slots s ON s.quota = q.quota AND s.per = '{}' AND s.slot = q.slot \
         WHERE NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id) {of_quota} ORDER BY q.job_id LIMIT $1 {{lock skip of q, s}}",
        Per::Waiting.name()
    );
    let statement = Statement::new(text).bind(batch).unkept();
    let statement = match quota {
        Some(quota) => statement.bind(quota),
        None => statement,
    };
    let jobs: Vec<QuotaJob> = statement.load(conn)?;
    if jobs.is_empty() {
        return Ok(0);
    }
    let mut places: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for job in &jobs {
        *places.entry((&job.quota, job.slot)).or_default() += 1;
    }
    let places = places.into_iter();
    let places: Vec<_> = places
        .map(|((quota, slot), jobs)| (quota, slot, jobs))
        .collect();
    slots::give_back(conn, Per::Waiting, &places)?;
    let ids: Vec<i64> = jobs.iter().map(|job| job.job_id).collect();
    Statement::new("DELETE FROM windlass_quota_jobs WHERE job_id IN {in $1}")
        .bind(id_list(&ids))
        .unkept()
        .changes(conn)
}
