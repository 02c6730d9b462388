//! The rates that were set at run time: rows of `windlass_limits`, which replace the rates of jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::model::rate::{NewRate, RatePace, SetPace};
use crate::db::table::rates::{DueKey, STEPS, bind_texts, is_one_of, micros_now};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::{BTreeMap, BTreeSet};

/// The paces that were set for keys and groups, by the key of their row.
#[derive(Debug, Default)]
pub(crate) struct SetPaces(BTreeMap<String, SetPace>);

impl SetPaces {
    /// Returns the pace that counts for a job with this rate.
    pub(crate) fn pace(&self, rate: &NewRate) -> RatePace {
        let set = self.of(&rate.key);
        set.map_or(rate.pace, |(_, set)| set.for_cost(rate.cost))
    }

    /// Returns what was set for a key, or else for its group, with the key of the row.
    pub(crate) fn of(&self, key: &str) -> Option<(&str, SetPace)> {
        let row = |key: &str| self.0.get_key_value(key);
        let found = row(key).or_else(|| row(&whole_group(key)?));
        found.map(|(key, pace)| (&**key, *pace))
    }
}

/// Returns the key of the row for all keys of the group that a key has, if it has one.
fn whole_group(key: &str) -> Option<String> {
    let (group, _) = key.split_once('/')?;
    Some(format!("{group}/*"))
}

#[derive(QueryableByName)]
struct SetPaceRow {
    #[diesel(sql_type = Text)]
    limit_key: String,
    #[diesel(sql_type = BigInt)]
    rate_number: i64,
    #[diesel(sql_type = BigInt)]
    rate_period: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    rate_burst: Option<i64>,
}

/// Returns the paces that were set for these keys, or for their groups.
pub(crate) fn set_paces(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<SetPaces> {
    if keys.is_empty() {
        return Ok(SetPaces::default());
    }
    let groups: BTreeSet<String> = keys.iter().filter_map(|key| whole_group(key)).collect();
    let names: Vec<&str> = keys.union(&groups).map(|key| &**key).collect();
    let text = format!(
        "SELECT limit_key, rate_number, rate_period, rate_burst FROM windlass_limits WHERE {} \
         AND rate_number IS NOT NULL AND rate_period IS NOT NULL",
        is_one_of(conn, "limit_key", "$1")
    );
    let rows: Vec<SetPaceRow> = bind_texts(conn, Statement::new(text), &names).load(conn)?;
    let paces = rows.into_iter().map(|row| {
        let pace = SetPace {
            number: row.rate_number,
            period: row.rate_period,
            burst: row.rate_burst,
        };
        (row.limit_key, pace)
    });
    Ok(SetPaces(paces.collect()))
}

// --- Keys that are looked at once more ---

/// Returns up to `most` keys of a group after one, by key, for which jobs wait.
pub(crate) fn waiting_of_group(
    conn: &mut Conn<'_>,
    group: &str,
    after: &str,
    most: usize,
) -> QueryResult<Vec<String>> {
    let text = "SELECT rate_key FROM windlass_rates WHERE rate_key > $1 AND has_waiting AND {group rate_key} = $3 \
         ORDER BY rate_key LIMIT $2";
    let rows: Vec<DueKey> = Statement::new(text)
        .uncached()
        .bind(after)
        .bind(most as i64)
        .bind(group)
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.rate_key).collect())
}

/// Makes keys due for which jobs wait, and returns them. Those that another transaction has locked are left.
pub(crate) fn make_due(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<String>> {
    let unlocked = match conn.dialect() {
        Dialect::Postgres => "ORDER BY rate_key FOR UPDATE SKIP LOCKED",
        Dialect::Sqlite => "",
    };
    let text = format!(
        "UPDATE windlass_rates SET due_at = {} - {STEPS} WHERE rate_key IN (SELECT rate_key FROM windlass_rates \
         WHERE {} AND has_waiting {unlocked}) RETURNING rate_key",
        micros_now(conn),
        is_one_of(conn, "rate_key", "$1"),
    );
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    let rows: Vec<DueKey> = bind_texts(conn, Statement::new(text).uncached(), &keys).load(conn)?;
    Ok(rows.into_iter().map(|row| row.rate_key).collect())
}

/// Opens a key that is closed for a time. Returns `false` if it is open.
pub(crate) fn reopen(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    let text = format!(
        "UPDATE windlass_rates SET closed_until = NULL WHERE rate_key = $1 AND closed_until > {} - {STEPS}",
        micros_now(conn)
    );
    let changed = Statement::new(text).bind(key).uncached().changes(conn)?;
    Ok(changed > 0)
}
