//! `windlass_quota_slots` and `windlass_quota_jobs`: what was enqueued under quotas.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Lossy, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::{NewQuota, Per};
use crate::db::table::recurring_tasks;
use crate::mutant;
use chrono::Timelike;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::BTreeMap;
use std::time::Duration;

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
    pub(crate) a_second: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_minute: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_day: i64,
}

/// Returns the quotas that were used in the last days, and how much of each is used.
pub(crate) fn list_quotas(conn: &mut Conn<'_>) -> QueryResult<Vec<UsedQuota>> {
    let used = |per: Per, since: &str| {
        format!(
            "CAST(coalesce((SELECT sum(s.jobs) FROM windlass_quota_slots s WHERE s.quota = names.quota \
             AND s.per = '{}' AND s.starts_at > {{later {since}}}), 0) AS bigint)",
            per.name()
        )
    };
    let text = format!(
        "SELECT names.quota AS name, (SELECT s.limits FROM windlass_quota_slots s WHERE s.quota = names.quota \
           ORDER BY s.starts_at DESC, s.jobs DESC LIMIT 1) AS limits, \
         (SELECT count(*) FROM windlass_quota_jobs q WHERE q.quota = names.quota AND {WAITS}) AS waiting, \
         {} AS a_minute, {} AS a_day, {} AS a_second \
         FROM (SELECT DISTINCT quota FROM windlass_quota_slots) AS names ORDER BY names.quota",
        used(Per::Minute, "$1"),
        used(Per::Day, "$2"),
        used(Per::Second, "$3"),
    );
    let age = |per: Per| -micros(per.window().unwrap_or(Duration::MAX));
    Statement::new(text)
        .bind(age(Per::Minute))
        .bind(age(Per::Day))
        .bind(age(Per::Second))
        .uncached()
        .load(conn)
}

// --- The jobs of quotas that limit how many wait ---

/// The condition that the job of `q` waits.
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

/// Gives back the places of up to `chunk` jobs that do not wait any more, of one quota or of all.
/// Returns how many. It waits for no transaction that enqueues.
pub(crate) fn free(conn: &mut Conn<'_>, quota: Option<&str>, chunk: i64) -> QueryResult<usize> {
    let of_quota = quota.map_or("", |_| "AND q.quota = $2");
    let text = format!(
        "SELECT q.job_id, q.quota, q.slot FROM windlass_quota_jobs q \
         JOIN windlass_quota_slots s ON s.quota = q.quota AND s.per = '{}' AND s.slot = q.slot \
         WHERE NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id) \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id) {of_quota} ORDER BY q.job_id LIMIT $1 {{lock skip of q, s}}",
        Per::Waiting.name()
    );
    let statement = Statement::new(text).bind(chunk).uncached();
    let statement = match quota {
        Some(quota) => statement.bind(quota),
        None => statement,
    };
    let jobs: Vec<QuotaJob> = statement.load(conn)?;
    if jobs.is_empty() {
        return Ok(0);
    }
    let mut counts: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for job in &jobs {
        *counts.entry((&job.quota, job.slot)).or_default() += 1;
    }
    let counts = counts.into_iter();
    let counts: Vec<_> = counts
        .map(|((quota, slot), jobs)| (quota, slot, jobs))
        .collect();
    give_back(conn, Per::Waiting, &counts)?;
    let ids: Vec<i64> = jobs.iter().map(|job| job.job_id).collect();
    Statement::new("DELETE FROM windlass_quota_jobs WHERE job_id IN {in $1}")
        .bind(id_list(&ids))
        .uncached()
        .changes(conn)
}

// --- The places of quotas: how many are taken ---

/// The slots of one limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaSlots<'q> {
    pub(crate) quota: &'q NewQuota,
    pub(crate) per: Per,
    pub(crate) limit: i64,
}

/// Places that were taken from slots: the slot, and how many.
pub(crate) type TakenBySlot = Vec<(i64, i64)>;

#[derive(QueryableByName)]
struct SlotNumber {
    #[diesel(sql_type = BigInt)]
    slot: i64,
}

#[derive(QueryableByName)]
struct SlotCount {
    #[diesel(sql_type = BigInt)]
    slots: i64,
}

pub(crate) const MOST_SLOTS: i64 = 1000;

impl QuotaSlots<'_> {
    /// Returns among how many slots they are shared out.
    fn count(self, conn: &Conn<'_>) -> i64 {
        match conn.dialect() {
            Dialect::Postgres => self.limit.clamp(1, MOST_SLOTS),
            Dialect::Sqlite => 1,
        }
    }

    /// Returns what the function of [`start`] takes for the current window.
    fn window(self, conn: &Conn<'_>) -> &'static str {
        match (conn.dialect(), self.per) {
            (Dialect::Postgres, Per::Second) => "second",
            (Dialect::Postgres, Per::Minute) => "minute",
            (Dialect::Postgres, _) => "day",
            (Dialect::Sqlite, Per::Second) => "%Y-%m-%d %H:%M:%S.000000",
            (Dialect::Sqlite, Per::Minute) => "%Y-%m-%d %H:%M:00.000000",
            (Dialect::Sqlite, _) => "%Y-%m-%d 00:00:00.000000",
        }
    }

    /// Returns how old the window of a slot is at most that still counts, in microseconds.
    fn age(self) -> i64 {
        micros(self.per.window().unwrap_or(Duration::MAX))
    }
}

/// Takes up to `wanted` places, in the transaction that is open.
pub(crate) fn take(
    conn: &mut Conn<'_>,
    slots: QuotaSlots<'_>,
    wanted: i64,
) -> QueryResult<TakenBySlot> {
    let mut taken = TakenBySlot::new();
    let (mut left, mut each) = (wanted, wanted);
    while left > 0 {
        let from = take_each(conn, slots, each, left / each)?;
        taken.extend(from.iter().map(|slot| (*slot, each)));
        left -= each * from.len() as i64;
        if !from.is_empty() {
            each = each.min(left);
        } else if each > 1 {
            each /= 2;
        } else {
            break;
        }
    }
    Ok(taken)
}

/// Takes so many places from each of up to `most` slots, and returns these slots. Each connection
/// starts at another slot, so that few meet.
fn take_each(
    conn: &mut Conn<'_>,
    slots: QuotaSlots<'_>,
    each: i64,
    most: i64,
) -> QueryResult<Vec<i64>> {
    let found = take_from(conn, slots, (each, most), true)?;
    if found.is_empty() && slots.count(conn) > 1 {
        return take_from(conn, slots, (each, most), false);
    }
    Ok(found)
}

/// Returns an expression for the start of the window that a parameter names.
fn start(conn: &Conn<'_>, parameter: &str) -> String {
    match conn.dialect() {
        Dialect::Postgres => format!("date_trunc({parameter}, {{now}})"),
        Dialect::Sqlite => format!("strftime({parameter}, 'now')"),
    }
}

fn take_from(
    conn: &mut Conn<'_>,
    slots: QuotaSlots<'_>,
    (each, most): (i64, i64),
    is_own_start: bool,
) -> QueryResult<Vec<i64>> {
    let first = match conn.dialect() {
        Dialect::Postgres => "CASE WHEN $11 THEN pg_backend_pid()::bigint * 7919 % $5 ELSE 0 END",
        Dialect::Sqlite => "CASE WHEN $11 THEN 0 ELSE 0 END",
    };
    let start = start(conn, "$10");
    let text = format!(
        "WITH free AS (SELECT slot FROM windlass_quota_slots WHERE quota = $1 AND per = $2 AND slot >= {first} AND slot < $5 \
         AND CASE WHEN starts_at > {{later $3}} THEN jobs ELSE 0 END + $4 <= $6 + CASE WHEN slot < $7 THEN 1 ELSE 0 END \
         ORDER BY slot LIMIT $8 {{lock skip}}) \
         UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > {{later $3}} THEN jobs ELSE 0 END + $4, \
         starts_at = CASE WHEN starts_at > {{later $3}} AND per <> '{}' THEN starts_at ELSE {start} END, limits = $9 \
         WHERE quota = $1 AND per = $2 AND slot IN {{in SELECT slot FROM free}} RETURNING slot",
        Per::Waiting.name()
    );
    let count = slots.count(conn);
    let taken: Vec<SlotNumber> = Statement::new(text)
        .bind(&slots.quota.name)
        .bind(slots.per.name())
        .bind(-slots.age())
        .bind(if mutant::is("quota_not_counted") {
            0
        } else {
            each
        })
        .bind(count)
        .bind(slots.limit / count)
        .bind(slots.limit % count)
        .bind(most)
        .bind(slots.quota.limits.to_column())
        .bind(slots.window(conn))
        .bind(is_own_start)
        .load(conn)?;
    Ok(taken.into_iter().map(|slot| slot.slot).collect())
}

/// Gives places back, each a quota, a slot, and how many: those that this transaction has taken, or
/// whose rows it has locked.
///
/// Not by `per` alone, for which Postgres would join each place with all slots.
pub(crate) fn give_back(
    conn: &mut Conn<'_>,
    per: Per,
    given: &[(&str, i64, i64)],
) -> QueryResult<()> {
    let text = format!(
        "WITH given AS (SELECT value ->> 0 AS quota, CAST(value ->> 1 AS bigint) AS slot, \
         CAST(sum(CAST(value ->> 2 AS bigint)) AS bigint) AS jobs FROM {{rows $1}} GROUP BY 1, 2) \
         UPDATE windlass_quota_slots SET jobs = windlass_quota_slots.jobs - given.jobs FROM given \
         WHERE windlass_quota_slots.quota = given.quota AND windlass_quota_slots.per || '' = '{}' \
         AND windlass_quota_slots.slot = given.slot",
        per.name()
    );
    let given = serde_json::to_string(given).unwrap_or_default();
    Statement::new(text).bind(given).uncached().execute(conn)
}

/// Returns whether the rows of all slots exist.
pub(crate) fn exist(conn: &mut Conn<'_>, slots: QuotaSlots<'_>) -> QueryResult<bool> {
    let text = "SELECT count(*) AS slots FROM windlass_quota_slots WHERE quota = $1 AND per = $2 AND slot < $3";
    let count = slots.count(conn);
    let found: SlotCount = Statement::new(text)
        .bind(&slots.quota.name)
        .bind(slots.per.name())
        .bind(count)
        .uncached()
        .get_result(conn)?;
    Ok(found.slots >= count)
}

/// Creates the rows of the slots that have none.
pub(crate) fn create(conn: &mut Conn<'_>, slots: QuotaSlots<'_>) -> QueryResult<()> {
    let text = format!(
        "WITH RECURSIVE numbers (slot) AS (SELECT CAST(0 AS bigint) UNION ALL SELECT slot + 1 FROM numbers WHERE slot + 1 < $3) \
         INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits) \
         SELECT $1, $2, slot, {}, 0, $4 FROM numbers WHERE true ON CONFLICT (quota, per, slot) DO NOTHING",
        start(conn, "$5")
    );
    let count = slots.count(conn);
    Statement::new(text)
        .bind(&slots.quota.name)
        .bind(slots.per.name())
        .bind(count)
        .bind(slots.quota.limits.to_column())
        .bind(slots.window(conn))
        .uncached()
        .execute(conn)
}

/// Returns the time to the next window, by the database's clock.
pub(crate) fn left(conn: &mut Conn<'_>, per: Per) -> QueryResult<Option<Duration>> {
    let Some(window) = per.window() else {
        return Ok(None);
    };
    let now = recurring_tasks::now(conn)?;
    let of_day = u64::from(now.num_seconds_from_midnight());
    let window = window.as_secs();
    Ok(Some(Duration::from_secs(window - of_day % window)))
}

/// Deletes up to `chunk` slots of quotas that were not used for a time.
pub(crate) fn clear(conn: &mut Conn<'_>, unused: Duration, chunk: i64) -> QueryResult<usize> {
    let text = format!(
        "WITH old AS (SELECT quota, per, slot FROM windlass_quota_slots WHERE starts_at <= {{later $1}} \
         AND (per <> '{}' OR jobs = 0) ORDER BY starts_at LIMIT $2 {{lock skip}}) \
         DELETE FROM windlass_quota_slots WHERE (quota, per, slot) IN (SELECT quota, per, slot FROM old)",
        Per::Waiting.name()
    );
    Statement::new(text)
        .bind(-micros(unused))
        .bind(chunk)
        .uncached()
        .changes(conn)
}
