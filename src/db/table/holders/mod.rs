//! The jobs that hold slots of concurrency keys, which are counted where it matters.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use std::collections::BTreeMap;

/// Returns an expression for how many jobs hold a slot of `key`. It is one snapshot, so that none
/// is missed on its way from one table to the other.
pub(crate) fn held_of(key: &str) -> String {
    HOLDERS
        .map(|table| format!("(SELECT count(*) FROM {table} WHERE concurrency_key = {key})"))
        .join(" + ")
}

/// Returns the same, where it matters only whether there are so many in a table: no more are counted. On SQLite, `most` must
/// be a parameter.
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

/// How many jobs a promotion moves at most, of all its keys, and how many it ends.
pub(crate) const AT_ONCE: i64 = 500;

/// A concurrency key, and its free slots.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct FreeSlots {
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
    /// How many slots are free. Negative after the limit was lowered; all of them if no job is blocked.
    #[diesel(sql_type = BigInt)]
    pub(crate) room: i64,
    /// Whether jobs wait for a slot.
    #[diesel(sql_type = Bool)]
    pub(crate) has_waiting: bool,
    /// Whether jobs are blocked that do not wait.
    #[diesel(sql_type = Bool)]
    pub(crate) has_late: bool,
    /// Whether Ruby has a semaphore of the key.
    #[diesel(sql_type = Bool)]
    pub(crate) has_semaphore: bool,
    /// Whether Ruby has blocked jobs of the key.
    #[diesel(sql_type = Bool)]
    pub(crate) has_blocked_by_ruby: bool,
}

impl FreeSlots {
    pub(crate) fn new(key: &str, room: i64) -> Self {
        FreeSlots {
            key: key.to_owned(),
            room,
            has_waiting: false,
            has_late: false,
            has_semaphore: false,
            has_blocked_by_ruby: false,
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
