//! The semaphore of a concurrency key: which jobs hold its slots, its lock during a promotion, and
//! which keys need one.
//!
//! The holders of slots are rows: ready or claimed executions that name the key, and, of an ordered
//! key, the scheduled execution of a job that waits for its next run. A claim that ends
//! frees its slot by ending, in any way, so no count is stored and none can leak. A slot is only
//! ever taken by [`promote`](crate::db::transition::promote), under the lock of the key, so it
//! never takes one that is not free.
//!
//! Every transaction that blocks a job or frees a slot names the key in `windlass_wanted_keys`.
//! That is an insert, so an enqueueing transaction blocks no other, however long it stays open. The
//! invariant of all committed data: if a job is blocked and a slot is free, the key is in that
//! table.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::waits_for_others_sql;
use crate::db::table::rates;
use crate::db::table::run_time::limits;
use crate::db::table::wanted_keys::{
    PromotionRequest, is_requested_after, key_list, request_promotion,
};
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Returns whether a promotion was requested after the request with this id.
pub(crate) fn is_requested(conn: &mut Conn<'_>, after: i64) -> QueryResult<bool> {
    let text = format!("SELECT {} AS is_wanted", is_requested_after("$1"));
    Statement::new(text)
        .bind(after)
        .get_result::<PromotionRequest>(conn)
        .map(|row| row.is_wanted)
}

/// Returns an expression for the number of slots of `key`: as it was set at run time, or as in its
/// newest job. Jobs of Rails have none.
pub fn limit_of(key: &str) -> String {
    format!(
        "coalesce({}, (SELECT j.concurrency_slots FROM solid_queue_jobs j WHERE j.concurrency_key = {key} \
         AND j.concurrency_slots IS NOT NULL ORDER BY j.id DESC LIMIT 1), 0)",
        limits::set_for(key)
    )
}

/// Counts the free slots of keys that the caller has locked, as far as jobs are blocked.
pub(crate) fn free_slots(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
) -> QueryResult<Vec<FreeSlots>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let is_blocked = |until: &str| {
        format!(
            "(SELECT b.id FROM solid_queue_blocked_executions b WHERE b.expires_at = {{time '{until}'}} \
             AND b.concurrency_key = wanted.key LIMIT 1) IS NOT NULL"
        )
    };
    let text = format!(
        "SELECT wanted.key, CAST({} AS bigint) AS room, {} AS has_waiting, {} AS has_late, \
           (SELECT s.id FROM solid_queue_semaphores s WHERE s.key = wanted.key LIMIT 1) IS NOT NULL AS has_semaphore, \
           (SELECT b.id FROM solid_queue_blocked_executions b WHERE b.concurrency_key = wanted.key \
             AND b.expires_at < {{time '{DOES_NOT_WAIT}'}} LIMIT 1) IS NOT NULL AS has_blocked_by_ruby, \
           NOT {} AS has_line, ({} OR {}) AS is_behind_line, {} AS first_in_order \
         FROM (SELECT value ->> 0 AS key FROM {{rows $1}}) AS wanted",
        limit_of("wanted.key"),
        is_blocked(NEVER_EXPIRES),
        is_blocked(DOES_NOT_WAIT),
        rates::has_no_line("wanted.key"),
        rates::is_behind_in_order(conn.dialect(), "wanted.key"),
        rates::is_behind_line("wanted.key"),
        rates::first_in_order("wanted.key"),
    );
    let mut slots: Vec<FreeSlots> = Statement::new(text).bind(key_list(keys)).load(conn)?;
    let taken = held(conn, slots.iter().filter(|one| one.has_blocked()))?;
    for one in slots.iter_mut().filter(|_| !mutant::is("limit_ignored")) {
        one.room -= taken.get(&one.key).copied().unwrap_or_default();
    }
    Ok(slots)
}

#[derive(QueryableByName)]
struct ScannedKey {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Bool)]
    is_overlooked: bool,
}

/// One page of a scan of the keys with blocked jobs.
#[derive(Debug, Default)]
pub(crate) struct KeyPage {
    /// The last key that was read; `None` at the end of the scan.
    pub(crate) reached: Option<String>,
    /// Keys that had a free slot and no request for a promotion.
    pub(crate) overlooked: Vec<String>,
}

/// Reads `chunk` keys with blocked jobs after the key `after`, and requests a promotion for each
/// that has a free slot and no request, because another program deleted the row of a holder.
pub(crate) fn sweep(conn: &mut Conn<'_>, after: &str, chunk: usize) -> QueryResult<KeyPage> {
    let next = |beyond: &str| {
        format!(
            "(SELECT min(b.concurrency_key) FROM solid_queue_blocked_executions b \
             WHERE b.expires_at = {{time '{}'}} AND b.concurrency_key > {beyond})",
            NEVER_EXPIRES
        )
    };
    // One snapshot: a slot is free for a moment, with a request, whenever a claim ends.
    let held = match conn.dialect() {
        Dialect::Postgres => held_up_to("seen.key", "greatest(seen.slots, 0)"),
        Dialect::Sqlite => held_of("seen.key"),
    };
    let text = format!(
        "WITH RECURSIVE walk(key, place) AS (SELECT {}, 1 \
           UNION ALL SELECT {}, walk.place + 1 FROM walk WHERE walk.key IS NOT NULL AND walk.place < $2), \
         seen AS MATERIALIZED (SELECT walk.key, walk.place, CAST({} AS bigint) AS slots, NOT {} \
             AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = walk.key) AND NOT {} AS is_unwanted \
           FROM walk WHERE walk.key IS NOT NULL) \
         SELECT seen.key, CASE WHEN seen.is_unwanted THEN seen.slots > {held} ELSE false END AS is_overlooked \
         FROM seen ORDER BY seen.place",
        next("$1"),
        next("walk.key"),
        limit_of("walk.key"),
        waits_for_others_sql("walk.key"),
        rates::is_behind_in_order(conn.dialect(), "walk.key"),
    );
    let seen: Vec<ScannedKey> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(chunk as i64)
        .load(conn)?;
    let reached = seen
        .last()
        .filter(|_| seen.len() == chunk)
        .map(|last| last.key.clone());
    let overlooked = seen.into_iter().filter(|seen| seen.is_overlooked);
    let overlooked: BTreeSet<String> = overlooked.map(|seen| seen.key).collect();
    request_promotion(conn, &overlooked)?;
    Ok(KeyPage {
        reached,
        overlooked: overlooked.into_iter().collect(),
    })
}

/// The slots of a concurrency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, QueryableByName)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// The key, with its group: `import/7`.
    #[diesel(sql_type = Text)]
    pub key: String,
    /// The most jobs that may hold a slot: as set at run time, or as in the newest of them.
    #[diesel(sql_type = BigInt)]
    pub limit: i64,
    /// True if the limit was set at run time, by [`limits::set`](crate::limits::set).
    #[diesel(sql_type = Bool)]
    pub limit_is_set: bool,
    /// Jobs that hold a slot and wait for a worker.
    #[diesel(sql_type = BigInt)]
    pub ready: i64,
    /// Jobs that hold a slot and are claimed by a process.
    #[diesel(sql_type = BigInt)]
    pub claimed: i64,
    /// Jobs of an ordered key that hold a slot and wait for their next run.
    #[diesel(sql_type = BigInt)]
    pub scheduled: i64,
    /// Jobs that wait for a slot.
    #[diesel(sql_type = BigInt)]
    pub blocked: i64,
}

impl SemaphoreStatus {
    /// Returns how many jobs hold a slot: those that are ready, claimed, or wait for their next run in
    /// an ordered key.
    pub fn held(&self) -> i64 {
        self.ready + self.claimed + self.scheduled
    }
}

/// Returns every key with jobs that wait or run.
pub(crate) fn list_semaphores(conn: &mut Conn<'_>) -> QueryResult<Vec<SemaphoreStatus>> {
    let text = format!(
        "WITH counts AS ( \
           SELECT concurrency_key AS key, count(*) AS ready, 0 AS claimed, 0 AS scheduled, 0 AS blocked \
             FROM solid_queue_ready_executions WHERE concurrency_key IS NOT NULL GROUP BY concurrency_key \
           UNION ALL SELECT concurrency_key, 0, count(*), 0, 0 \
             FROM solid_queue_claimed_executions WHERE concurrency_key IS NOT NULL GROUP BY concurrency_key \
           UNION ALL SELECT concurrency_key, 0, 0, count(*), 0 \
             FROM solid_queue_scheduled_executions WHERE concurrency_key IS NOT NULL GROUP BY concurrency_key \
           UNION ALL SELECT concurrency_key, 0, 0, 0, count(*) FROM solid_queue_blocked_executions \
             WHERE expires_at >= {{time '{}'}} AND NOT {} GROUP BY concurrency_key), \
         sums AS (SELECT key, CAST(sum(ready) AS bigint) AS ready, CAST(sum(claimed) AS bigint) AS claimed, \
           CAST(sum(scheduled) AS bigint) AS scheduled, CAST(sum(blocked) AS bigint) AS blocked FROM counts GROUP BY key) \
         SELECT key, CAST({} AS bigint) AS \"limit\", {} IS NOT NULL AS limit_is_set, ready, claimed, scheduled, blocked \
         FROM sums ORDER BY key",
        DOES_NOT_WAIT,
        waits_for_others_sql("concurrency_key"),
        limit_of("sums.key"),
        limits::set_for("sums.key"),
    );
    Statement::new(text).load(conn)
}

#[derive(QueryableByName)]
struct Violation {
    #[diesel(sql_type = Text)]
    what: String,
}

/// Returns the violations of the limits in the committed data, in words.
///
/// There are none unless rows were changed by another program. A key above its limit had its limit lowered while its jobs ran,
/// or there is a bug.
pub fn check(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let mut wrong = Vec::new();
    for semaphore in list_semaphores(conn)? {
        let held = semaphore.held();
        let SemaphoreStatus { key, limit, .. } = &semaphore;
        // A limit that was set lets running jobs end.
        if held > *limit && !semaphore.limit_is_set {
            wrong.push(format!(
                "{held} jobs hold a slot of the concurrency key `{key}`, whose limit is {limit}"
            ));
        }
    }
    let text = format!(
        "SELECT 'job ' || j.id || ' is ' || e.place || ' without the slot of its concurrency key `' \
           || j.concurrency_key || '`' AS what \
         FROM (SELECT 'ready' AS place, job_id, concurrency_key FROM solid_queue_ready_executions \
           UNION ALL SELECT 'claimed', job_id, concurrency_key FROM solid_queue_claimed_executions) AS e \
         JOIN solid_queue_jobs j ON j.id = e.job_id \
         WHERE j.concurrency_slots IS NOT NULL AND coalesce(e.concurrency_key, '') <> j.concurrency_key \
         UNION ALL SELECT DISTINCT 'a slot of the concurrency key `' || b.concurrency_key \
           || '` is free, and no promotion of its blocked jobs was requested' \
         FROM solid_queue_blocked_executions b WHERE b.expires_at >= {{time '{}'}} AND NOT {} \
         AND {} > {} AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = b.concurrency_key) AND NOT {}",
        DOES_NOT_WAIT,
        waits_for_others_sql("b.concurrency_key"),
        limit_of("b.concurrency_key"),
        held_of("b.concurrency_key"),
        rates::is_behind_in_order(conn.dialect(), "b.concurrency_key"),
    );
    let rows: Vec<Violation> = Statement::new(text).load(conn)?;
    wrong.extend(rows.into_iter().map(|row| row.what));
    Ok(wrong)
}

/// The expiry of a blocked execution that waits: never. A Rails app's dispatcher would treat an
/// expired one as its own.
pub(crate) const NEVER_EXPIRES: &str = "9999-12-31 23:59:59.000000";

/// The expiry of a job that does not wait: it is promoted or discarded at the next promotion of its
/// key. A separate value, so that an index finds these jobs.
pub(crate) const DOES_NOT_WAIT: &str = "9999-12-31 00:00:00.000000";

// --- The jobs that hold slots of concurrency keys, which are counted where it matters ---

/// Returns an expression for how many jobs hold a slot of `key`. It is one snapshot, so that none
/// is missed on its way from one table to the other.
pub(crate) fn held_of(key: &str) -> String {
    HOLDERS
        .map(|table| format!("(SELECT count(*) FROM {table} WHERE concurrency_key = {key})"))
        .join(" + ")
}

/// Returns the same, where it matters only whether there are so many in a table: no more are counted. On SQLite, `most` must
/// name no column.
pub(crate) fn held_up_to(key: &str, most: &str) -> String {
    let counted = |table: &str| {
        format!(
            "(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE concurrency_key = {key} LIMIT {most}) AS held)"
        )
    };
    HOLDERS.map(counted).join(" + ")
}

/// The tables of jobs that hold a slot.
const HOLDERS: [&str; 3] = [
    "solid_queue_ready_executions",
    "solid_queue_claimed_executions",
    "solid_queue_scheduled_executions",
];

/// Returns a condition, on Postgres: `slots` are more than jobs were ever inserted, so that there is no need to count how
/// many are taken. That is looked up for large limits only.
pub(crate) fn is_boundless(slots: &str) -> String {
    format!(
        "CASE WHEN {slots} > {LARGE} THEN {slots} > (SELECT coalesce(CASE WHEN has_sequence_privilege(name, 'SELECT') \
           THEN pg_sequence_last_value(name) END, {slots}) FROM (SELECT CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') \
           AS regclass) AS name) AS ids) + {AT_ONCE} ELSE false END"
    )
}

/// From this number on, it is worth a look whether there can be as many jobs.
const LARGE: i64 = 100_000;

/// The most jobs that a promotion moves, of all its keys, and the most that it ends.
pub(crate) const AT_ONCE: i64 = 500;

/// A concurrency key, and its free slots.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct FreeSlots {
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
    /// The number of free slots. Negative after the limit was lowered; all of them if no job is blocked.
    #[diesel(sql_type = BigInt)]
    pub(crate) room: i64,
    /// True if jobs wait for a slot.
    #[diesel(sql_type = Bool)]
    pub(crate) has_waiting: bool,
    /// True if jobs are blocked that do not wait.
    #[diesel(sql_type = Bool)]
    pub(crate) has_late: bool,
    /// True if Ruby has a semaphore of the key.
    #[diesel(sql_type = Bool)]
    pub(crate) has_semaphore: bool,
    /// True if Ruby has blocked jobs of the key.
    #[diesel(sql_type = Bool)]
    pub(crate) has_blocked_by_ruby: bool,
    /// True if a line of jobs with rates waits for a slot.
    #[diesel(sql_type = Bool)]
    pub(crate) has_line: bool,
    /// True if a job with a rate comes before those that have none.
    #[diesel(sql_type = Bool)]
    pub(crate) is_behind_line: bool,
    /// The first job of an ordered key that has no rate.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) first_in_order: Option<i64>,
}

impl FreeSlots {
    #[cfg(all(test, feature = "internal-tests"))]
    pub(crate) fn new(key: &str, room: i64) -> Self {
        FreeSlots {
            key: key.to_owned(),
            room,
            has_waiting: false,
            has_late: false,
            has_semaphore: false,
            has_blocked_by_ruby: false,
            has_line: false,
            is_behind_line: false,
            first_in_order: None,
        }
    }

    pub(crate) fn has_blocked(&self) -> bool {
        self.has_waiting || self.has_late
    }
}

/// Returns free slots in the form that `{rows $1}` takes.
pub(crate) fn slot_list<'s>(slots: impl IntoIterator<Item = &'s FreeSlots>) -> String {
    let rows: Vec<(&str, i64)> = slots.into_iter().map(|one| (&*one.key, one.room)).collect();
    serde_json::to_string(&rows).unwrap_or_default()
}

#[derive(QueryableByName)]
struct HeldSlots {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = BigInt)]
    held: i64,
}

/// Counts the jobs that hold slots of keys, each up to the slots that it has: so many that it is full.
pub(crate) fn held<'s>(
    conn: &mut Conn<'_>,
    slots: impl Iterator<Item = &'s FreeSlots>,
) -> QueryResult<BTreeMap<String, i64>> {
    let limited: Vec<&FreeSlots> = slots.filter(|one| one.room > 0).collect();
    let mut held: Vec<HeldSlots> = Vec::new();
    match conn.dialect() {
        _ if limited.is_empty() => {}
        Dialect::Postgres => {
            let text = format!(
                "SELECT w.key, CASE WHEN {} THEN 0 ELSE {} END AS held FROM \
                   (SELECT value ->> 0 AS key, CAST(value ->> 1 AS bigint) AS slots FROM {{rows $1}}) AS w",
                is_boundless("w.slots"),
                held_up_to("w.key", "w.slots"),
            );
            held = Statement::new(text).bind(slot_list(limited)).load(conn)?;
        }
        Dialect::Sqlite => {
            let text = format!(
                "SELECT $1 AS key, CASE WHEN $2 > (SELECT coalesce(max(id), 0) FROM solid_queue_jobs) + {AT_ONCE} THEN 0 \
                 ELSE {} END AS held",
                held_up_to("$1", "$2")
            );
            for FreeSlots { key, room, .. } in limited {
                let row = Statement::new(&text).bind(&key[..]).bind(*room);
                held.push(row.get_result(conn)?);
            }
        }
    }
    Ok(held.into_iter().map(|one| (one.key, one.held)).collect())
}
