//! `windlass_wanted_keys`: requests to promote the blocked jobs of concurrency keys.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sql_types::{Bool, Nullable, Text};
use std::collections::BTreeSet;

#[derive(QueryableByName)]
pub(crate) struct ConcurrencyKey {
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
}

/// Returns the distinct keys of the rows that a statement returned.
pub(crate) fn keys(rows: Vec<ConcurrencyKey>) -> BTreeSet<String> {
    rows.into_iter()
        .filter_map(|row| row.concurrency_key)
        .collect()
}

/// Returns keys in the form that `{rows $1}` takes.
pub(crate) fn key_list<'k>(keys: impl IntoIterator<Item = &'k String>) -> String {
    let rows: Vec<[&String; 1]> = keys.into_iter().map(|key| [key]).collect();
    serde_json::to_string(&rows).unwrap_or_default()
}

/// Requests the promotion of keys, and wakes sleeping workers.
pub(crate) fn request_promotion(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    insert(conn, keys)?;
    crate::db::conn::wakeup::notify(conn, keys.len())
}

/// Requests the promotion of keys without waking workers, which could do no more at present than
/// the caller did.
pub(crate) fn request_promotion_later(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    insert(conn, keys)
}

fn insert(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    // On SQLite, with one writer at a time, an existing request is enough: it is handled after this
    // transaction. Elsewhere it may be handled just before this transaction commits.
    let unless_named = match conn.dialect() {
        Dialect::Postgres => "true",
        Dialect::Sqlite => "(value ->> 0) NOT IN (SELECT key FROM windlass_wanted_keys)",
    };
    let text = format!(
        "INSERT INTO windlass_wanted_keys (key) SELECT value ->> 0 FROM {{rows $1}} WHERE {unless_named}"
    );
    Statement::new(text).bind(key_list(keys)).execute(conn)
}

/// The id before all requests.
pub(crate) const BEGINNING: i64 = 0;

/// Returns an expression for whether a promotion was requested after the request with this id, for
/// statements that are sent anyway.
///
/// Postgres keeps handled requests in the index until the next vacuum, which a long transaction
/// delays. A read from the beginning passes all of them, so a loop remembers the last id.
pub(crate) fn is_requested_after(id: &str) -> String {
    format!("EXISTS (SELECT 1 FROM windlass_wanted_keys WHERE id > {id})")
}

#[derive(QueryableByName)]
pub(crate) struct PromotionRequest {
    #[diesel(sql_type = Bool)]
    pub(crate) is_wanted: bool,
}

#[derive(QueryableByName)]
struct LastId {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Returns the last id given to a request, also by a transaction that is still open. Returns
/// [`BEGINNING`] if it cannot be read, and on SQLite, which keeps no dead rows.
pub(crate) fn last_id(conn: &mut Conn<'_>) -> QueryResult<i64> {
    match conn.dialect() {
        // A user with permission to insert may have none on the sequence.
        Dialect::Postgres => Statement::new(
            "SELECT coalesce(CASE WHEN has_sequence_privilege(name, 'SELECT') THEN pg_sequence_last_value(name) END, 0) \
             AS id FROM (SELECT CAST(pg_get_serial_sequence('windlass_wanted_keys', 'id') AS regclass) AS name) AS ids",
        )
        .get_result::<LastId>(conn)
        .map(|last| last.id),
        Dialect::Sqlite => Ok(BEGINNING),
    }
}

#[derive(QueryableByName)]
pub(crate) struct RequestedKey {
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
}
