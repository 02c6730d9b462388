//! `windlass_wanted_keys`: requests to promote the blocked jobs of concurrency keys.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::mutant;
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

/// How many requests of locked keys a promotion passes on its way to others.
const PASSED: usize = 10_000;

/// Returns the CTEs of a statement that takes requests: `taken` has the ids of the `$2` oldest after the id `$1` whose keys
/// no other transaction has locked. On Postgres they lock these keys until the transaction ends.
///
/// These are advisory locks, not rows: an unused key needs no storage and no cleaning, and a Rails app's own semaphores
/// are not touched. None is waited for, since it may be that of a frozen client. The requests of a locked key stay as they
/// are: whoever has locked it looks for requests once more after its commit.
fn taken_ctes(dialect: Dialect) -> String {
    // No other connection writes during a transaction of SQLite.
    if dialect == Dialect::Sqlite || mutant::is("promote_without_lock") {
        return "taken AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE id > $1 ORDER BY id LIMIT $2 {lock skip})"
            .to_owned();
    }
    // The first number ("WIND") keeps clear of the application's own locks, the table's oid of other schemas of the same
    // database.
    format!(
        "seen AS MATERIALIZED (SELECT id, key FROM windlass_wanted_keys WHERE id > $1 ORDER BY id LIMIT {PASSED}), \
         free AS MATERIALIZED (SELECT id FROM seen WHERE pg_try_advisory_xact_lock(1464422980, hashtext( \
             (SELECT CAST(CAST(CAST('windlass_wanted_keys' AS regclass) AS oid) AS text)) || ' ' || key)) LIMIT $2), \
         taken AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE id IN {{in SELECT id FROM free}} {{lock skip}})"
    )
}

/// Takes the keys of up to `batch` of the oldest requests after the id `after` that are not locked, and locks the keys until
/// the transaction ends.
pub(crate) fn take(conn: &mut Conn<'_>, after: i64, batch: usize) -> QueryResult<BTreeSet<String>> {
    let text = format!(
        "WITH {} DELETE FROM windlass_wanted_keys WHERE id IN {{in SELECT id FROM taken}} RETURNING key",
        taken_ctes(conn.dialect())
    );
    let rows: Vec<RequestedKey> = Statement::new(text)
        .bind(after)
        .bind(batch as i64)
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.key).collect())
}

/// Puts the request that would be taken next behind all others, because its promotion was refused, and counts that.
pub(crate) fn postpone(conn: &mut Conn<'_>, after: i64) -> QueryResult<()> {
    let last = match conn.dialect() {
        Dialect::Postgres => "DEFAULT",
        Dialect::Sqlite => "(SELECT max(id) + 1 FROM windlass_wanted_keys)",
    };
    let text = format!(
        "WITH {} UPDATE windlass_wanted_keys SET id = {last}, failures = coalesce(failures, 0) + 1 \
         WHERE id IN {{in SELECT id FROM taken}}",
        taken_ctes(conn.dialect())
    );
    Statement::new(text)
        .unkept()
        .bind(after)
        .bind(1_i64)
        .execute(conn)
}

/// Notes that requests wait, up to `most` of those of which that is not noted yet.
pub(crate) fn note_waiting(conn: &mut Conn<'_>, most: usize) -> QueryResult<()> {
    // First a read: mostly there is none, and an UPDATE takes SQLite's write lock.
    let text = format!("SELECT {} AS is_wanted", is_requested_after("$1"));
    let any: PromotionRequest = Statement::new(text).bind(BEGINNING).get_result(conn)?;
    if !any.is_wanted {
        return Ok(());
    }
    let text = "WITH new AS MATERIALIZED (SELECT id FROM windlass_wanted_keys WHERE waiting_since IS NULL \
           ORDER BY id LIMIT $1 {lock skip}) \
         UPDATE windlass_wanted_keys SET waiting_since = {now} WHERE id IN {in SELECT id FROM new}";
    Statement::new(text)
        .unkept()
        .bind(most as i64)
        .execute(conn)
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
struct RequestedKey {
    #[diesel(sql_type = Text)]
    key: String,
}
