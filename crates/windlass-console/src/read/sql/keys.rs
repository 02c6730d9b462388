//! The concurrency keys with jobs that wait or hold a slot, a page at a time.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::Lossy;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::model::new_row::{waits_for_others, waits_for_others_sql};
use windlass::internal::db::query::ready::CappedCount;
use windlass::internal::db::table::run_time::limits;
use windlass::internal::db::table::semaphores::limit_of;

/// The limit of the counts of one key.
pub(crate) const MOST_OF_KEY: i64 = 1_000;

/// The keys that a page lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeysWanted {
    /// All with jobs that wait or hold a slot.
    All,
    /// Those with jobs that wait.
    Waiting,
}

impl KeysWanted {
    fn states(self) -> &'static [&'static str] {
        match self {
            KeysWanted::All => &["blocked", "claimed", "ready", "scheduled"],
            KeysWanted::Waiting => &["blocked"],
        }
    }
}

/// A concurrency key in use.
#[derive(Debug, Clone)]
pub(crate) struct KeyInUse {
    pub(crate) key: String,
    /// The most jobs that may hold a slot. `None` if no job of Windlass has the key, but one of Rails.
    pub(crate) limit: Option<i64>,
    /// True if the limit was set at run time.
    pub(crate) limit_is_set: bool,
    pub(crate) ready: CappedCount,
    pub(crate) claimed: CappedCount,
    /// Jobs of an ordered key that keep their slot until their next run.
    pub(crate) scheduled: CappedCount,
    pub(crate) blocked: CappedCount,
    /// Seconds for which the first of the blocked jobs have waited.
    pub(crate) waited_seconds: Option<f64>,
}

impl KeyInUse {
    /// Returns how many jobs hold a slot.
    pub(crate) fn held(&self) -> u64 {
        self.ready.count + self.claimed.count + self.scheduled.count
    }
}

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    key: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    slots: Option<i64>,
    #[diesel(sql_type = Bool)]
    limit_is_set: bool,
    #[diesel(sql_type = BigInt)]
    ready: i64,
    #[diesel(sql_type = BigInt)]
    claimed: i64,
    #[diesel(sql_type = BigInt)]
    scheduled: i64,
    #[diesel(sql_type = BigInt)]
    blocked: i64,
    #[diesel(sql_type = Nullable<Double>)]
    waited_seconds: Option<f64>,
}

fn keys_of(rows: Vec<KeyRow>) -> Vec<KeyInUse> {
    let of = |rows| CappedCount::of(rows, MOST_OF_KEY);
    let keys = rows.into_iter().map(|row| KeyInUse {
        key: row.key,
        limit: row.slots,
        limit_is_set: row.limit_is_set,
        ready: of(row.ready),
        claimed: of(row.claimed),
        scheduled: of(row.scheduled),
        blocked: of(row.blocked),
        waited_seconds: row.waited_seconds,
    });
    keys.collect()
}

/// Returns the statement that reads the keys of a source, `named.key`.
fn statement(conn: &Conn<'_>, with: &str, source: &str) -> String {
    let count = |state: &str| {
        format!(
            "(SELECT count(*) FROM (SELECT 1 FROM solid_queue_{state}_executions e WHERE e.concurrency_key = named.key \
             LIMIT {}) AS {state}_rows) AS {state}",
            MOST_OF_KEY + 1
        )
    };
    let counts = ["ready", "claimed", "scheduled", "blocked"].map(count);
    let age = age(conn, "oldest");
    let (set, limit) = (limits::set_for("named.key"), limit_of("named.key"));
    format!(
        "{with}, looked AS MATERIALIZED (SELECT named.key, {}, \
           (SELECT min(first.created_at) FROM (SELECT b.created_at FROM solid_queue_blocked_executions b \
             WHERE b.concurrency_key = named.key ORDER BY b.priority, b.job_id LIMIT 20) AS first) AS oldest, \
           {set} IS NOT NULL AS limit_is_set, \
           CASE WHEN {set} IS NOT NULL OR (SELECT 1 FROM solid_queue_jobs j WHERE j.concurrency_key = named.key \
             AND j.concurrency_slots IS NOT NULL LIMIT 1) = 1 THEN CAST({limit} AS bigint) END AS slots {source}) \
         SELECT key, slots, limit_is_set, ready, claimed, scheduled, blocked, {age} AS waited_seconds \
         FROM looked ORDER BY key",
        counts.join(", ")
    )
}

/// Returns a page of the keys after `after`, by key: one more than `max_rows` if there are more.
pub(crate) fn page(
    conn: &mut Conn<'_>,
    wanted: KeysWanted,
    after: &str,
    max_rows: i64,
) -> QueryResult<Vec<KeyInUse>> {
    let next = |beyond: &str| {
        let first_of = wanted.states().iter().map(|state| {
            format!(
                "SELECT min(e.concurrency_key) AS key FROM solid_queue_{state}_executions e \
                 WHERE e.concurrency_key > {beyond} AND NOT {}",
                waits_for_others_sql("e.concurrency_key")
            )
        });
        let first_of: Vec<String> = first_of.collect();
        format!(
            "(SELECT min(key) FROM ({}) AS firsts)",
            first_of.join(" UNION ALL ")
        )
    };
    let walk = format!(
        "WITH RECURSIVE walk(key, place) AS (SELECT {}, 1 \
           UNION ALL SELECT {}, walk.place + 1 FROM walk WHERE walk.key IS NOT NULL AND walk.place <= $2), \
         named AS MATERIALIZED (SELECT key FROM walk WHERE key IS NOT NULL)",
        next("CAST($1 AS text)"),
        next("walk.key")
    );
    let text = statement(conn, &walk, "FROM named");
    let rows = Statement::new(text).bind(after).bind(max_rows).load(conn)?;
    Ok(keys_of(rows))
}

/// Returns one key, whether it is in use or not. `None` for the one that is no limit, with which jobs
/// wait that run again after another.
pub(crate) fn one(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<KeyInUse>> {
    if waits_for_others(key) {
        return Ok(None);
    }
    let named = "WITH named AS MATERIALIZED (SELECT CAST($1 AS text) AS key)";
    let text = statement(conn, named, "FROM named");
    let rows = Statement::new(text).bind(key).load(conn)?;
    Ok(keys_of(rows).into_iter().next())
}

/// A job that holds a slot.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct SlotHolder {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) key: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// True if a process holds it; otherwise it waits for a worker, or its next run.
    #[diesel(sql_type = Bool)]
    pub(crate) is_claimed: bool,
    /// Its queue.
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    /// Seconds since it was claimed, or became ready.
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

/// Returns up to ten jobs of each kind that hold slots of these keys, claimed ones first.
pub(crate) fn holders(conn: &mut Conn<'_>, keys: &[&str]) -> QueryResult<Vec<SlotHolder>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let of = |state: &str, is_claimed: bool| {
        let some = format!(
            "SELECT o.job_id, o.created_at FROM solid_queue_{state}_executions o \
             WHERE o.concurrency_key = named.key LIMIT 10"
        );
        let joined = match conn.dialect() {
            Dialect::Postgres => format!("CROSS JOIN LATERAL ({some}) AS e"),
            Dialect::Sqlite => format!(
                "CROSS JOIN solid_queue_{state}_executions e WHERE e.job_id IN (SELECT job_id FROM ({some}) AS some)"
            ),
        };
        format!(
            "SELECT named.key, e.job_id, {is_claimed} AS is_claimed, e.created_at FROM named {joined}"
        )
    };
    let text = format!(
        "WITH named AS MATERIALIZED (SELECT value ->> 0 AS key FROM {{rows $1}}), \
         held AS MATERIALIZED ({} UNION ALL {}) \
         SELECT held.key, held.job_id, held.is_claimed, coalesce({}, 0) AS seconds, \
         coalesce((SELECT j.queue_name FROM solid_queue_jobs j WHERE j.id = held.job_id), '') AS queue_name \
         FROM held ORDER BY held.key, held.is_claimed DESC, held.job_id",
        of("claimed", true),
        of("ready", false),
        age(conn, "held.created_at"),
    );
    let named: Vec<[&str; 1]> = keys.iter().map(|key| [*key]).collect();
    let named = serde_json::to_string(&named).unwrap_or_default();
    Statement::new(text).bind(named).load(conn)
}

/// Returns which of the first 100 keys in use have more holders than their limit allows, in words. A
/// limit that was set at run time lets running jobs end.
pub(crate) fn above_limit(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let keys = page(conn, KeysWanted::All, "", 100)?;
    let above = keys.into_iter().filter_map(|key| {
        let held = i64::try_from(key.held()).unwrap_or(i64::MAX);
        let limit = key
            .limit
            .filter(|limit| held > *limit && !key.limit_is_set)?;
        let key = key.key;
        Some(format!(
            "{held} jobs hold a slot of the concurrency key `{key}`, whose limit is {limit}"
        ))
    });
    Ok(above.collect())
}
