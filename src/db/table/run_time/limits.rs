//! `windlass_limits`: limits of concurrency keys that replace those of their jobs.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::ORDERED;
use diesel::prelude::*;
use diesel::sql_types::{Double, Integer, Nullable, Text};
use serde::Serialize;

/// A limit of a concurrency key, or of all keys of a group, that was set at run time.
#[derive(Debug, Clone, PartialEq, Serialize, QueryableByName)]
#[non_exhaustive]
pub struct RunTimeLimit {
    /// The key with its group, `import/7`, or all keys of a group, `import/*`.
    #[diesel(sql_type = Text)]
    pub key: String,
    /// The most jobs of each key that may hold a slot at once.
    #[diesel(sql_type = Integer)]
    pub slots: i32,
    /// The user who set it, if known.
    #[diesel(sql_type = Nullable<Text>)]
    pub set_by: Option<String>,
    /// The reason, if one was given.
    #[diesel(sql_type = Nullable<Text>)]
    pub reason: Option<String>,
    /// Seconds since it was set, by the database's clock.
    #[diesel(sql_type = Double)]
    pub set_seconds: f64,
}

/// Returns an expression for the limit that was set for `key`, or for its group. NULL if none was.
///
/// An ordered key, as its newest job says, has one slot at most.
pub fn set_for(key: &str) -> String {
    let exact = |wanted: &str| {
        format!(
            "(SELECT CASE WHEN l.slots > 1 AND (SELECT j.concurrency_conflict FROM solid_queue_jobs j \
               WHERE j.concurrency_key = {key} AND j.concurrency_slots IS NOT NULL ORDER BY j.id DESC LIMIT 1) \
               = '{ORDERED}' THEN 1 ELSE l.slots END FROM windlass_limits l WHERE l.limit_key = {wanted})"
        )
    };
    format!(
        "coalesce({}, {})",
        exact(key),
        exact(&format!("{{group {key}}}"))
    )
}

/// Sets a limit, or replaces it.
pub(crate) fn set(
    conn: &mut Conn<'_>,
    key: &str,
    slots: i32,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_limits (limit_key, slots, set_by, reason, created_at) \
         VALUES ($1, $2, $3, $4, {now}) ON CONFLICT (limit_key) DO UPDATE SET slots = excluded.slots, \
         set_by = excluded.set_by, reason = excluded.reason, created_at = excluded.created_at";
    Statement::new(text)
        .bind(key)
        .bind(slots)
        .bind(by)
        .bind(reason)
        .uncached()
        .execute(conn)
}

/// Deletes a limit. Returns `false` if there was none.
pub(crate) fn clear(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    let text = "DELETE FROM windlass_limits WHERE limit_key = $1";
    let changed = Statement::new(text).bind(key).uncached().changes(conn)?;
    Ok(changed > 0)
}

/// Returns all limits, by key.
pub fn list_limits(conn: &mut Conn<'_>) -> QueryResult<Vec<RunTimeLimit>> {
    let text = format!(
        "SELECT limit_key AS key, slots, set_by, reason, coalesce({}, 0) AS set_seconds \
         FROM windlass_limits ORDER BY limit_key",
        age(conn, "created_at")
    );
    Statement::new(text).uncached().load(conn)
}

#[derive(QueryableByName)]
struct SetSlots {
    #[diesel(sql_type = Nullable<Integer>)]
    slots: Option<i32>,
}

/// Returns the limit that was set for a key, or for its group.
pub(crate) fn of_key(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<i32>> {
    // Each subquery names the parameter, whose type Postgres cannot tell inside functions.
    let text = format!("SELECT {} AS slots", set_for("CAST($1 AS text)"));
    let row: SetSlots = Statement::new(text).bind(key).uncached().get_result(conn)?;
    Ok(row.slots)
}
