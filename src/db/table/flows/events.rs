//! `windlass_events`: events, by their names. The first payload of a name stays.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, micros};
use crate::db::conn::statement::Statement;
use crate::db::table::wanted_keys::key_list;
use diesel::prelude::*;
use diesel::sql_types::Text;
use std::collections::BTreeSet;
use std::time::Duration;

/// Inserts an event. Returns `false` if there is one of this name; waits for a transaction that is inserting one.
pub(crate) fn insert_event(conn: &mut Conn<'_>, name: &str, payload: &str) -> QueryResult<bool> {
    let text = "INSERT INTO windlass_events (name, payload, created_at) VALUES ($1, $2, {now}) ON CONFLICT (name) DO NOTHING";
    let inserted = Statement::new(text)
        .bind(name)
        .bind(payload)
        .changes(conn)?;
    Ok(inserted > 0)
}

#[derive(QueryableByName)]
struct Payload {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    payload: String,
}

/// Returns the payload of an event, as JSON.
pub(crate) fn payload(conn: &mut Conn<'_>, name: &str) -> QueryResult<Option<String>> {
    let text = "SELECT payload FROM windlass_events WHERE name = $1";
    let found: Option<Payload> = Statement::new(text)
        .uncached()
        .bind(name)
        .get_result(conn)
        .optional()?;
    Ok(found.map(|row| row.payload))
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Returns those of the names whose event was emitted.
pub(crate) fn existing(
    conn: &mut Conn<'_>,
    names: &BTreeSet<String>,
) -> QueryResult<BTreeSet<String>> {
    let text =
        "SELECT e.name FROM {rows $1} CROSS JOIN windlass_events e WHERE e.name = value ->> 0";
    let rows: Vec<Name> = Statement::new(text).bind(key_list(names)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}

/// Deletes up to `chunk` events that were emitted so long ago, and for which no job waits. Returns how many.
pub(crate) fn clear(conn: &mut Conn<'_>, age: Duration, chunk: usize) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_events WHERE name IN (SELECT e.name FROM windlass_events e WHERE e.created_at <= {later $1} \
         AND (SELECT w.job_id FROM windlass_waits w WHERE w.event_name = e.name LIMIT 1) IS NULL \
         ORDER BY e.created_at LIMIT $2 {lock skip})";
    Statement::new(text)
        .uncached()
        .bind(-micros(age))
        .bind(chunk as i64)
        .changes(conn)
}
