//! `windlass_wanted_keys`: concurrency keys whose blocked jobs are to be
//! promoted.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sql_types::{Bool, Nullable, Text};
use std::collections::BTreeSet;

#[derive(QueryableByName)]
pub(crate) struct Key {
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
}

/// The keys among the rows that a statement returned, each once.
pub(crate) fn keys(rows: Vec<Key>) -> BTreeSet<String> {
    rows.into_iter()
        .filter_map(|row| row.concurrency_key)
        .collect()
}

/// Keys as `{rows $1}` takes them.
pub(crate) fn key_list<'k>(keys: impl IntoIterator<Item = &'k String>) -> String {
    let rows: Vec<[&String; 1]> = keys.into_iter().map(|key| [key]).collect();
    serde_json::to_string(&rows).unwrap_or_default()
}

/// Names keys whose jobs are to be promoted, and wakes who sleeps.
pub(crate) fn want(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    name(conn, keys)?;
    crate::db::conn::wakeup::notify(conn, keys.len())
}

/// Names them for the next worker or dispatcher that looks, and wakes none:
/// at present they would find no more than the caller did.
pub(crate) fn want_later(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    name(conn, keys)
}

fn name(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    // Where writers take turns, a key that is named already is enough: who
    // takes that name comes after this transaction. Elsewhere it may be taken
    // a moment before this transaction commits.
    let unless_named = match conn.dialect() {
        Dialect::Postgres => "true",
        Dialect::Sqlite => "(value ->> 0) NOT IN (SELECT key FROM windlass_wanted_keys)",
    };
    let text = format!(
        "INSERT INTO windlass_wanted_keys (key) SELECT value ->> 0 FROM {{rows $1}} WHERE {unless_named}"
    );
    Statement::new(text).bind(key_list(keys)).execute(conn)
}

/// The place before all wanted keys.
pub(crate) const BEGINNING: i64 = 0;

/// Whether a key is wanted that was named after the one with this id: an
/// expression for statements that are sent anyway.
///
/// Postgres keeps the keys that were taken in the index until the next vacuum,
/// which a long transaction puts off. A look from the beginning passes all of
/// them, so a loop remembers how far it has come.
pub(crate) fn is_wanted_after(id: &str) -> String {
    format!("EXISTS (SELECT 1 FROM windlass_wanted_keys WHERE id > {id})")
}

#[derive(QueryableByName)]
pub(crate) struct Wanted {
    #[diesel(sql_type = Bool)]
    pub(crate) is_wanted: bool,
}

#[derive(QueryableByName)]
struct LastId {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// The last id that was given to a wanted key, also by a transaction that is
/// still open. [`BEGINNING`] where this cannot be read, and on SQLite, which
/// keeps nothing that was taken.
pub(crate) fn last_id(conn: &mut Conn<'_>) -> QueryResult<i64> {
    match conn.dialect() {
        // A user that may insert need not have any right on the sequence.
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
pub(crate) struct Name {
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
}
