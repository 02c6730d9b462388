//! Queues whose threads are shared from now on, or no more; weights; and jobs that come to such a queue otherwise than by an
//! enqueue.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::gate_line::{GateLine, ShareOf};
use crate::db::model::new_row::ORDERED;
use crate::db::table::shares::fair_among;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use std::collections::BTreeSet;

#[derive(QueryableByName)]
struct OldReady {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    job: Option<i64>,
}

/// Has ready jobs of tenants wait for their share, as the threads of their queue were not shared when they became ready: of
/// the `most` ready executions up to the id `from`, the newest first. Returns the jobs, which the caller blocks, and the id
/// from which to go on.
pub(crate) fn take_old(
    conn: &mut Conn<'_>,
    queue: &str,
    from: i64,
    most: i64,
) -> QueryResult<(Vec<i64>, Option<i64>)> {
    let text = "SELECT r.id, CASE WHEN r.queue_name = $1 AND r.concurrency_key IS NULL THEN (SELECT j.id FROM solid_queue_jobs j \
           WHERE j.id = r.job_id AND j.tenant <> '' AND j.gate IS NULL AND j.concurrency_key IS NULL) END AS job \
         FROM solid_queue_ready_executions r WHERE r.id <= $2 ORDER BY r.id DESC LIMIT $3 + 0 {lock skip of r}";
    let old: Vec<OldReady> = Statement::new(text)
        .uncached()
        .bind(queue)
        .bind(from)
        .bind(most)
        .load(conn)?;
    let next = old.last().filter(|_| old.len() as i64 >= most);
    let next = next.map(|row| row.id - 1);
    let jobs: Vec<i64> = old.into_iter().filter_map(|row| row.job).collect();
    if jobs.is_empty() {
        return Ok((jobs, next));
    }
    let text = "DELETE FROM solid_queue_ready_executions WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(&jobs)).execute(conn)?;
    let character = match conn.dialect() {
        Dialect::Postgres => "chr",
        Dialect::Sqlite => "char",
    };
    let text = format!(
        "UPDATE solid_queue_jobs SET gate = {character}(29) || queue_name || {character}(28) || tenant WHERE id IN {{in $1}}"
    );
    Statement::new(text).bind(id_list(&jobs)).execute(conn)?;
    Ok((jobs, next))
}

/// Ends the shares of a queue for which nothing waits any more.
pub(crate) fn end(conn: &mut Conn<'_>, queue: &str) -> QueryResult<()> {
    let text = "DELETE FROM windlass_fair_queues WHERE queue_name = $1 AND is_ending";
    Statement::new(text).bind(queue).uncached().execute(conn)
}

/// The last id of ready executions.
const LAST_READY: &str = "(SELECT max(r.id) FROM solid_queue_ready_executions r)";

/// Shares the threads of a queue from now on, by the time that jobs run or by their number. Returns `false` if they are
/// shared so already.
pub(crate) fn begin(conn: &mut Conn<'_>, queue: &str, by_time: bool) -> QueryResult<bool> {
    let text = format!(
        "INSERT INTO windlass_fair_queues (queue_name, by_time, starting_from, due_at, created_at) VALUES ($1, $2, {LAST_READY}, 0, {{now}}) \
         ON CONFLICT (queue_name) DO UPDATE SET by_time = excluded.by_time, is_ending = false, mean = 0, due_at = 0, recent = NULL, \
         starting_from = CASE WHEN windlass_fair_queues.is_ending THEN excluded.starting_from ELSE windlass_fair_queues.starting_from END \
         WHERE windlass_fair_queues.is_ending OR windlass_fair_queues.by_time <> excluded.by_time"
    );
    let changed = Statement::new(text)
        .bind(queue)
        .bind(by_time)
        .uncached()
        .changes(conn)?;
    Ok(changed > 0)
}

/// Shares the threads of a queue no more. Returns `false` if they are not shared.
pub(crate) fn begin_end(conn: &mut Conn<'_>, queue: &str) -> QueryResult<bool> {
    let text = "UPDATE windlass_fair_queues SET is_ending = true, starting_from = NULL, due_at = 0 WHERE queue_name = $1 AND NOT is_ending";
    Ok(Statement::new(text).bind(queue).uncached().changes(conn)? > 0)
}

/// Sets the weight of a tenant, or clears it with `None`. Returns whether it has changed.
pub(crate) fn set_weight(
    conn: &mut Conn<'_>,
    queue: &str,
    tenant: &str,
    weight: Option<i32>,
) -> QueryResult<bool> {
    let statement = match weight {
        Some(weight) => Statement::new(
            "INSERT INTO windlass_tenants (queue_name, tenant, weight, created_at) VALUES ($1, $2, $3, {now}) \
             ON CONFLICT (queue_name, tenant) DO UPDATE SET weight = excluded.weight WHERE windlass_tenants.weight <> excluded.weight",
        )
        .bind(queue)
        .bind(tenant)
        .bind(weight),
        None => Statement::new("DELETE FROM windlass_tenants WHERE queue_name = $1 AND tenant = $2")
            .bind(queue)
            .bind(tenant),
    };
    Ok(statement.uncached().changes(conn)? > 0)
}

#[derive(QueryableByName)]
struct MovedJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    tenant: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    gate: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    concurrency_key: Option<String>,
    #[diesel(sql_type = Bool)]
    is_ordered: bool,
}

/// Has jobs of tenants that were moved to another queue wait for a share of that, if its threads are shared.
pub(crate) fn requeue(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<()> {
    let text = format!(
        "SELECT id, tenant, gate, concurrency_key, coalesce(concurrency_conflict = '{ORDERED}', false) AS is_ordered \
         FROM solid_queue_jobs WHERE id IN {{in $1}} AND tenant IS NOT NULL"
    );
    let moved: Vec<MovedJob> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    if moved.is_empty() {
        return Ok(());
    }
    let is_fair = !fair_among(conn, &BTreeSet::from([queue]))?.is_empty();
    let lines = moved.into_iter().filter(|job| !job.is_ordered).map(|job| {
        let mut line = GateLine::of(job.gate.as_deref().unwrap_or_default());
        line.limit = line.limit.or(job.concurrency_key);
        let tenant = job.tenant.filter(|_| is_fair);
        line.share = tenant.map(|tenant| ShareOf {
            queue: queue.to_owned(),
            tenant,
        });
        let has_line = line.share.is_some() || !line.rates.is_empty();
        (job.id, has_line.then(|| line.name()))
    });
    let lines: Vec<(i64, Option<String>)> = lines.collect();
    let text = "UPDATE solid_queue_jobs SET gate = (SELECT value ->> 1 FROM {rows $1} WHERE CAST(value ->> 0 AS bigint) = solid_queue_jobs.id) \
         WHERE id IN {in $2}";
    let ids: Vec<i64> = lines.iter().map(|(id, _)| *id).collect();
    Statement::new(text)
        .bind(serde_json::to_string(&lines).unwrap_or_default())
        .bind(id_list(&ids))
        .execute(conn)
}
