//! Shared queues and their tenants, as operators see them.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::gate_line::GateLine;
use crate::db::model::share::RecentUse;
use crate::db::table::rates::{STEPS, micros_now};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Serialize;
use std::collections::BTreeMap;

/// The measure by which the threads of a queue are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareBy {
    /// The number of jobs.
    Jobs,
    /// The time that jobs run, as it is measured.
    Time,
}

impl ShareBy {
    fn of_column(by_time: bool) -> Self {
        match by_time {
            true => ShareBy::Time,
            false => ShareBy::Jobs,
        }
    }
}

/// A queue whose threads are shared between tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairQueue {
    /// Its name.
    pub queue: String,
    /// The measure.
    pub by: ShareBy,
    /// The lines in which jobs wait for a share, up to 1,000: mostly one for each tenant.
    pub waiting: i64,
    /// The jobs that may be ready at once by a share.
    pub places: i64,
}

#[derive(QueryableByName)]
struct FairQueueStatusRow {
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Bool)]
    by_time: bool,
    #[diesel(sql_type = BigInt)]
    places: i64,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

/// Returns the shared queues, by name.
pub(crate) fn list_queues(conn: &mut Conn<'_>) -> QueryResult<Vec<FairQueue>> {
    let text = "SELECT q.queue_name, q.by_time, q.places, (SELECT count(*) FROM (SELECT 1 FROM windlass_lines l \
           WHERE l.gate_kind = 'share' AND l.gate_key = q.queue_name LIMIT 1000) AS few) AS waiting \
         FROM windlass_fair_queues q WHERE NOT q.is_ending ORDER BY q.queue_name";
    let rows: Vec<FairQueueStatusRow> = Statement::new(text).uncached().load(conn)?;
    let queues = rows.into_iter().map(|row| FairQueue {
        queue: row.queue_name,
        by: ShareBy::of_column(row.by_time),
        waiting: row.waiting,
        places: row.places,
    });
    Ok(queues.collect())
}

#[derive(QueryableByName)]
struct WaitingJobs {
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

/// Returns how many jobs of each shared queue wait for a share, up to 10,001 of each of 100 queues.
pub fn waiting_jobs(conn: &mut Conn<'_>) -> QueryResult<Vec<(String, u64)>> {
    let text = "SELECT q.queue_name, (SELECT count(*) FROM (SELECT 1 FROM windlass_lines l \
           CROSS JOIN solid_queue_blocked_executions b WHERE l.gate_kind = 'share' AND l.gate_key = q.queue_name AND b.gate = l.line \
           LIMIT 10001) AS few) AS waiting \
         FROM windlass_fair_queues q ORDER BY q.queue_name LIMIT 100";
    let rows: Vec<WaitingJobs> = Statement::new(text).uncached().load(conn)?;
    let counts = rows
        .into_iter()
        .map(|row| (row.queue_name, u64::try_from(row.waiting).unwrap_or(0)));
    Ok(counts.collect())
}

/// Returns up to `most` queues of which nothing runs and nothing has started for longer than these seconds, though jobs wait for
/// a share and the queue is not paused: each with one of its ready jobs.
pub fn standing_for(
    conn: &mut Conn<'_>,
    seconds: i64,
    most: i64,
) -> QueryResult<Vec<(String, Option<i64>)>> {
    let text = format!(
        "SELECT q.queue_name, q.promised FROM windlass_fair_queues q WHERE q.moved_at < {} - {STEPS} - $1 \
         AND EXISTS (SELECT 1 FROM windlass_lines l WHERE l.gate_kind = 'share' AND l.gate_key = q.queue_name) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_pauses p WHERE p.queue_name = q.queue_name) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.queue_name || '' = q.queue_name \
           AND j.id IN (SELECT job_id FROM solid_queue_claimed_executions WHERE job_id > 0 LIMIT 1000)) ORDER BY q.queue_name LIMIT $2",
        micros_now(conn)
    );
    let rows: Vec<StandingQueue> = Statement::new(text)
        .uncached()
        .bind(seconds.saturating_mul(1_000_000))
        .bind(most)
        .load(conn)?;
    let queues = rows.into_iter().map(|row| {
        let ready = row
            .promised
            .as_deref()
            .map(serde_json::from_str::<Vec<Vec<i64>>>);
        let ready = ready.and_then(|lists| lists.ok()?.first()?.first().copied());
        (row.queue_name, ready)
    });
    Ok(queues.collect())
}

#[derive(QueryableByName)]
struct StandingQueue {
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    promised: Option<String>,
}

/// A tenant of a shared queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TenantStatus {
    /// Its name.
    pub tenant: String,
    /// Its weight.
    pub weight: i64,
    /// Its jobs that wait for their share, up to 1,000 for each line.
    pub waiting: i64,
    /// Its jobs that run.
    pub running: i64,
    /// The part that it has used lately of what all tenants have used, from 0 to 1. A use counts half after a minute.
    pub share: f64,
}

/// The most tenants of a list.
const MOST: i64 = 100;

/// The most claims that are looked at.
const MOST_CLAIMS: i64 = 1_000;

#[derive(QueryableByName)]
struct WaitingInLine {
    #[diesel(sql_type = Text)]
    line: String,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

#[derive(QueryableByName)]
struct RunningJobs {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = BigInt)]
    running: i64,
}

#[derive(QueryableByName)]
struct TenantWeight {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Integer)]
    weight: i32,
}

#[derive(QueryableByName)]
struct RecentRow {
    #[diesel(sql_type = Nullable<Text>)]
    recent: Option<String>,
}

/// The tenants of a list, by name.
#[derive(Default)]
struct Tenants(BTreeMap<String, TenantStatus>);

impl Tenants {
    fn of(&mut self, tenant: &str) -> &mut TenantStatus {
        self.0
            .entry(tenant.to_owned())
            .or_insert_with(|| TenantStatus {
                tenant: tenant.to_owned(),
                weight: 1,
                waiting: 0,
                running: 0,
                share: 0.0,
            })
    }
}

/// Returns tenants of a queue: those that have used most lately, the first of those that wait, those with running jobs, and
/// those with a weight. Those with the largest share come first.
pub(crate) fn list_tenants(conn: &mut Conn<'_>, queue: &str) -> QueryResult<Vec<TenantStatus>> {
    let mut tenants = Tenants::default();
    let text = "SELECT recent FROM windlass_fair_queues WHERE queue_name = $1 AND NOT is_ending";
    let recent: Vec<RecentRow> = Statement::new(text).uncached().bind(queue).load(conn)?;
    for row in recent {
        for (tenant, part) in RecentUse::of_column(row.recent.as_deref()).parts() {
            tenants.of(tenant).share = part;
        }
    }
    let text = "SELECT l.line, (SELECT count(*) FROM (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.gate = l.line LIMIT 1000) AS few) \
           AS waiting FROM (SELECT line FROM windlass_lines WHERE gate_kind = 'share' AND gate_key = $1 \
           ORDER BY priority, pass, job_id LIMIT $2) AS l";
    let waiting = Statement::new(text).uncached().bind(queue).bind(MOST);
    for row in waiting.load::<WaitingInLine>(conn)? {
        if let Some(share) = GateLine::of(&row.line).share {
            tenants.of(&share.tenant).waiting += row.waiting;
        }
    }
    let text = "SELECT j.tenant, count(*) AS running FROM solid_queue_jobs j WHERE j.queue_name || '' = $1 AND j.tenant IS NOT NULL \
         AND j.id IN (SELECT job_id FROM solid_queue_claimed_executions WHERE job_id > 0 LIMIT $2) GROUP BY j.tenant";
    let running = Statement::new(text)
        .uncached()
        .bind(queue)
        .bind(MOST_CLAIMS);
    for row in running.load::<RunningJobs>(conn)? {
        tenants.of(&row.tenant).running = row.running;
    }
    let text = "SELECT tenant, weight FROM windlass_tenants WHERE queue_name = $1 ORDER BY tenant LIMIT $2";
    let weights = Statement::new(text).uncached().bind(queue).bind(MOST);
    for row in weights.load::<TenantWeight>(conn)? {
        tenants.of(&row.tenant).weight = row.weight.into();
    }
    let mut tenants: Vec<TenantStatus> = tenants.0.into_values().collect();
    tenants.sort_by(|one, other| {
        let (first, second) = (
            other.share.total_cmp(&one.share),
            other.running.cmp(&one.running),
        );
        first.then(second).then(other.waiting.cmp(&one.waiting))
    });
    tenants.truncate(usize::try_from(MOST).unwrap_or(usize::MAX));
    Ok(tenants)
}
