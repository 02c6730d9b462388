//! Enqueues jobs.
//!
//! 1. A quota [admits](admit) the jobs, or refuses them.
//! 2. Idempotency keys and unique ids are [resolved](resolve): which jobs exist already, or wait for others.
//!    That is not needed if all unique ids are [free].
//! 3. The jobs are inserted: [one], or [many] at once.
//! 4. Their [executions] are inserted: ready, scheduled or blocked. On Postgres the same statement does it.
//! 5. The rest is inserted beside them: expiries, [parents](connect), [tokens](public_tokens).

pub(crate) mod admit;
pub(crate) mod connect;
pub(crate) mod executions;
pub(crate) mod flows;
pub(crate) mod free;
pub(crate) mod group;
pub(crate) mod many;
pub(crate) mod one;
pub(crate) mod public_tokens;
pub(crate) mod rank;
pub(crate) mod resolve;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::{expiries, shares};
use crate::db::transition::enqueue::free::insert_free;
use crate::db::transition::enqueue::many::CHUNK;
use crate::db::transition::enqueue::one::insert_one;
use crate::db::transition::enqueue::resolve::insert_resolved;
use diesel::prelude::*;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Runs `work`, which enqueues a list of jobs: all of it is rolled back if it fails.
pub fn all_or_none<T, E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    work: impl FnOnce(&mut Conn<'_>) -> Result<T, E>,
) -> Result<T, E> {
    conn.transaction(work)
}

/// Inserts one job and its execution.
pub(crate) fn insert_job(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    let rows = shared(conn, std::slice::from_ref(row))?;
    let row = rows.first().unwrap_or(row);
    if !row.is_dependent()
        && !has_more(row)
        && let Some(inserted) = insert_one(conn, row)?
    {
        return Ok(inserted);
    }
    let inserted = insert_in_transaction(conn, std::slice::from_ref(row))?;
    let mut inserted = inserted.into_iter();
    inserted.next().ok_or(diesel::result::Error::NotFound)
}

/// Inserts many jobs, all or none, and returns the result of each, in order.
pub(crate) fn insert_all(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let rows = &*shared(conn, rows)?;
    // On Postgres one statement is a transaction; BEGIN and COMMIT would be extra round trips. In
    // the caller's transaction, a savepoint keeps it usable if the statement fails.
    let is_one_statement = rows.len() <= CHUNK
        && conn.dialect() == Dialect::Postgres
        && !conn.is_in_transaction()
        && !rows.iter().any(has_more);
    if is_one_statement && !rows.iter().any(is_resolved) {
        return insert_new(conn, rows);
    }
    if is_one_statement && let Some(ids) = insert_free(conn, rows)? {
        return Ok(all_new(ids));
    }
    insert_in_transaction(conn, rows)
}

/// Returns the rows, of which those of tenants take part in the shares of their queue, if its threads are shared.
fn shared<'r>(conn: &mut Conn<'_>, rows: &'r [NewRow]) -> QueryResult<Cow<'r, [NewRow]>> {
    let of_tenants = rows.iter().filter(|row| row.tenant.is_some());
    let queues: BTreeSet<&str> = of_tenants.map(|row| &*row.queue_name).collect();
    let fair = shares::fair_among(conn, &queues)?;
    if fair.is_empty() {
        return Ok(Cow::Borrowed(rows));
    }
    let is_shared = |row: &NewRow| row.tenant.is_some() && fair.contains(&row.queue_name);
    let rows = rows.iter().map(|row| NewRow {
        is_shared: is_shared(row),
        ..row.clone()
    });
    Ok(rows.collect())
}

fn all_new(ids: Vec<i64>) -> Vec<Inserted> {
    let new = |id| Inserted::new(id, EnqueueOutcome::New);
    ids.into_iter().map(new).collect()
}

/// Returns whether other rows must be read or written before the job can be inserted.
fn is_resolved(row: &NewRow) -> bool {
    row.is_named() || row.is_dependent()
}

/// Returns whether rows are inserted beside the job.
fn has_more(row: &NewRow) -> bool {
    row.expiry.is_some() || row.follows.is_some()
}

fn insert_in_transaction(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    conn.transaction(|conn| {
        let inserted = match rows.iter().any(is_resolved) {
            true => insert_named(conn, rows)?,
            false => insert_new(conn, rows)?,
        };
        insert_more(conn, rows, &inserted)?;
        Ok(inserted)
    })
}

/// Inserts jobs that may exist already.
fn insert_named(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    if conn.dialect() == Dialect::Sqlite
        && let Some(ids) = insert_free(conn, rows)?
    {
        return Ok(all_new(ids));
    }
    insert_resolved(conn, rows)
}

/// Inserts jobs that cannot exist already.
fn insert_new(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    let mut inserted = Vec::with_capacity(rows.len());
    for chunk in rows.chunks(CHUNK) {
        let ids = many::insert_many(conn, &chunk.iter().collect::<Vec<_>>())?;
        inserted.extend(all_new(ids));
    }
    Ok(inserted)
}

/// Stores what only some of the rows have that have been inserted.
fn insert_more(conn: &mut Conn<'_>, rows: &[NewRow], inserted: &[Inserted]) -> QueryResult<()> {
    if rows.iter().any(|row| row.expiry.is_some()) {
        insert_expiries(conn, rows, inserted)?;
    }
    if rows.iter().any(|row| row.follows.is_some()) {
        connect::follow_parents(conn, rows, inserted)?;
    }
    Ok(())
}

/// Stores the expiries of the rows that have been inserted. Jobs that existed keep theirs.
fn insert_expiries(conn: &mut Conn<'_>, rows: &[NewRow], inserted: &[Inserted]) -> QueryResult<()> {
    let mut expiries = BTreeMap::new();
    for (row, inserted) in rows.iter().zip(inserted) {
        if !inserted.is_new && inserted.outcome != EnqueueOutcome::Replaced {
            continue;
        }
        // Of several that replace the same job, the last counts.
        match row.expiry {
            Some(expiry) => expiries.insert(inserted.id, expiry),
            None => expiries.remove(&inserted.id),
        };
    }
    expiries::store_expiries(conn, &expiries)
}
