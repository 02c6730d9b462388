//! Enqueues jobs.

pub(crate) mod bulk;
pub(crate) mod insert;
pub(crate) mod keyed;
pub(crate) mod resolve_conflict;
pub(crate) mod time_priority;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::transition::enqueue::insert::{CHUNK, insert_unnamed};
use diesel::prelude::*;

/// Inserts one job and its ready or scheduled execution.
pub(crate) fn insert(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    if row.unique_id.is_some() {
        // In a transaction of the caller, it takes the way below, whose savepoint survives an error.
        let is_simple = row.idempotency_key.is_none() && !conn.is_in_transaction();
        if is_simple
            && conn.dialect() == Dialect::Postgres
            && let Some(id) = insert::insert_if_free(conn, row)?
        {
            return Ok(Inserted::new(id, EnqueueOutcome::New));
        }
        let inserted = conn.transaction(|conn| keyed::insert(conn, std::slice::from_ref(row)))?;
        return inserted
            .into_iter()
            .next()
            .ok_or(diesel::result::Error::NotFound);
    }
    insert_unnamed(conn, row)
}

/// Inserts many jobs, all or none, and returns the result of each, in order.
pub(crate) fn insert_all(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if rows.iter().any(|row| row.is_named() || row.limit.is_some()) {
        return conn.transaction(|conn| keyed::insert(conn, rows));
    }
    // On Postgres one statement is a transaction; BEGIN and COMMIT would be extra round trips. In
    // the caller's transaction, a savepoint keeps it usable if the statement fails.
    let is_one_statement = rows.len() <= CHUNK && conn.dialect() == Dialect::Postgres;
    let ids = if is_one_statement && !conn.is_in_transaction() {
        bulk::insert(conn, rows)?
    } else {
        conn.transaction(|conn| {
            let mut ids = Vec::with_capacity(rows.len());
            for chunk in rows.chunks(CHUNK) {
                ids.append(&mut bulk::insert(conn, chunk)?);
            }
            QueryResult::Ok(ids)
        })?
    };
    let new = |id| Inserted::new(id, EnqueueOutcome::New);
    Ok(ids.into_iter().map(new).collect())
}
