//! `windlass_limits`: limits of concurrency keys, and rates, that replace those of their jobs.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::ORDERED;
use crate::db::model::rate::SetPace;
use crate::db::table::rates::StartRate;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Integer, Nullable, Text};
use serde::Serialize;

/// A concurrency limit, a rate, or both, set at run time for a key or for all keys of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunTimeLimit {
    /// The key with its group, `import/7`, or all keys of a group, `import/*`.
    pub key: String,
    /// The most jobs of each concurrency key that may hold a slot at once. `None` if only a rate was set.
    pub slots: Option<i32>,
    /// The rate of each key. `None` if only a concurrency limit was set.
    pub rate: Option<StartRate>,
    /// The user who set it last, if known.
    pub set_by: Option<String>,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// Seconds since it was set, by the database's clock.
    pub set_seconds: f64,
}

impl RunTimeLimit {
    /// Returns what was set, in words: `3`, `10/s, 20 at once`, or both.
    #[doc(hidden)]
    pub fn values(&self) -> String {
        let slots = self.slots.map(|slots| slots.to_string());
        let rate = self.rate.map(|rate| rate.to_string());
        let all: Vec<String> = slots.into_iter().chain(rate).collect();
        all.join(" and ")
    }
}

#[derive(QueryableByName)]
struct LimitRow {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Nullable<Integer>)]
    slots: Option<i32>,
    #[diesel(sql_type = Nullable<BigInt>)]
    rate_number: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    rate_period: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    rate_burst: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    set_by: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    reason: Option<String>,
    #[diesel(sql_type = Double)]
    set_seconds: f64,
}

impl LimitRow {
    fn limit(self) -> RunTimeLimit {
        let pace = self.rate_number.zip(self.rate_period);
        let pace = pace.map(|(number, period)| SetPace {
            number,
            period,
            burst: self.rate_burst,
        });
        RunTimeLimit {
            key: self.key,
            slots: self.slots,
            rate: pace.map(StartRate::from),
            set_by: self.set_by,
            reason: self.reason,
            set_seconds: self.set_seconds,
        }
    }
}

/// A change of what is set for a key. The rest of its row stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NewRunTimeLimit {
    pub(crate) slots: Option<i32>,
    pub(crate) rate: Option<SetPace>,
}

/// The part of a key's row that is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitPart {
    /// The concurrency limit and the rate.
    All,
    /// The concurrency limit.
    Slots,
    /// The rate.
    Rate,
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

/// Sets what is new for a key, or replaces it.
pub(crate) fn set(
    conn: &mut Conn<'_>,
    key: &str,
    new: NewRunTimeLimit,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_limits (limit_key, slots, rate_number, rate_period, rate_burst, set_by, reason, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, {now}) ON CONFLICT (limit_key) DO UPDATE SET \
         slots = coalesce(excluded.slots, windlass_limits.slots), \
         rate_number = coalesce(excluded.rate_number, windlass_limits.rate_number), \
         rate_period = coalesce(excluded.rate_period, windlass_limits.rate_period), \
         rate_burst = CASE WHEN excluded.rate_number IS NULL THEN windlass_limits.rate_burst ELSE excluded.rate_burst END, \
         set_by = excluded.set_by, reason = excluded.reason, created_at = excluded.created_at";
    Statement::new(text)
        .bind(key)
        .bind(new.slots)
        .bind(new.rate.map(|rate| rate.number))
        .bind(new.rate.map(|rate| rate.period))
        .bind(new.rate.and_then(|rate| rate.burst))
        .bind(by)
        .bind(reason)
        .uncached()
        .execute(conn)
}

/// Clears a part of what was set for a key. Returns `false` if that was not set.
pub(crate) fn clear(conn: &mut Conn<'_>, key: &str, part: LimitPart) -> QueryResult<bool> {
    let (is_all, none) = match part {
        LimitPart::All => ("", None),
        LimitPart::Slots => (
            "AND slots IS NOT NULL AND rate_number IS NULL",
            Some(("slots = NULL", "slots")),
        ),
        LimitPart::Rate => (
            "AND rate_number IS NOT NULL AND slots IS NULL",
            Some((
                "rate_number = NULL, rate_period = NULL, rate_burst = NULL",
                "rate_number",
            )),
        ),
    };
    let text = format!("DELETE FROM windlass_limits WHERE limit_key = $1 {is_all}");
    let deleted = Statement::new(text).bind(key).uncached().changes(conn)?;
    let Some((none, column)) = none.filter(|_| deleted == 0) else {
        return Ok(deleted > 0);
    };
    let text =
        format!("UPDATE windlass_limits SET {none} WHERE limit_key = $1 AND {column} IS NOT NULL");
    let changed = Statement::new(text).bind(key).uncached().changes(conn)?;
    Ok(changed > 0)
}

/// Returns all that was set, by key.
pub fn list_limits(conn: &mut Conn<'_>) -> QueryResult<Vec<RunTimeLimit>> {
    let text = format!(
        "SELECT limit_key AS key, slots, rate_number, rate_period, rate_burst, set_by, reason, \
         coalesce({}, 0) AS set_seconds FROM windlass_limits ORDER BY limit_key",
        age(conn, "created_at")
    );
    let rows: Vec<LimitRow> = Statement::new(text).uncached().load(conn)?;
    Ok(rows.into_iter().map(LimitRow::limit).collect())
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
