//! Enqueues jobs.

pub(crate) mod admit;
pub(crate) mod alike;
pub(crate) mod bulk;
pub(crate) mod connect;
pub(crate) mod flows;
pub(crate) mod insert;
pub(crate) mod keyed;
pub(crate) mod public_tokens;
pub(crate) mod waiting;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::job_columns::JobTraits;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::expiries;
use crate::db::transition::enqueue::insert::{CHUNK, insert_unnamed};
use diesel::prelude::*;
use std::collections::BTreeMap;

/// Runs `work`, which enqueues a list of jobs: all of it is rolled back if it fails.
pub(crate) fn all_or_none<T, E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    work: impl FnOnce(&mut Conn<'_>) -> Result<T, E>,
) -> Result<T, E> {
    conn.transaction(work)
}

/// Inserts one job and its ready or scheduled execution.
pub(crate) fn insert_job(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    if row.expiry.is_none() && row.follows.is_none() {
        return insert_lasting(conn, row);
    }
    conn.transaction(|conn| {
        let inserted = insert_lasting(conn, row)?;
        let rows = std::slice::from_ref(row);
        insert_more(conn, rows, std::slice::from_ref(&inserted))?;
        Ok(inserted)
    })
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

/// Inserts one job, without its expiry.
fn insert_lasting(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    if row.is_dependent() {
        return first(insert_all_lasting(conn, std::slice::from_ref(row))?);
    }
    if row.unique_id.is_some() {
        // In a transaction of the caller, it takes the way below, whose savepoint survives an error.
        let is_simple = row.idempotency_key.is_none() && !conn.is_in_transaction();
        if is_simple
            && conn.dialect() == Dialect::Postgres
            && let Some(id) = insert::insert_if_free(conn, row)?
        {
            return Ok(Inserted::new(id, EnqueueOutcome::New));
        }
        return first(
            conn.transaction(|conn| keyed::insert_keyed(conn, std::slice::from_ref(row)))?,
        );
    }
    insert_unnamed(conn, row)
}

fn first(inserted: Vec<Inserted>) -> QueryResult<Inserted> {
    let mut inserted = inserted.into_iter();
    inserted.next().ok_or(diesel::result::Error::NotFound)
}

/// Inserts many jobs, all or none, and returns the result of each, in order.
pub(crate) fn insert_all(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    let is_simple = |row: &NewRow| row.expiry.is_none() && row.follows.is_none();
    if rows.iter().all(is_simple) {
        return insert_all_lasting(conn, rows);
    }
    conn.transaction(|conn| {
        let inserted = insert_all_lasting(conn, rows)?;
        insert_more(conn, rows, &inserted)?;
        Ok(inserted)
    })
}

/// Inserts many jobs, without their expiries.
fn insert_all_lasting(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let traits = alike::traits(rows);
    let is_plain = |row: &NewRow| !row.is_named() && row.limit.is_none() && !row.is_dependent();
    if traits.is_none() && !rows.iter().all(is_plain) {
        return conn.transaction(|conn| keyed::insert_keyed(conn, rows));
    }
    // On Postgres one statement is a transaction; BEGIN and COMMIT would be extra round trips. In
    // the caller's transaction, a savepoint keeps it usable if the statement fails.
    let is_one_statement = rows.len() <= CHUNK
        && conn.dialect() == Dialect::Postgres
        && !rows.iter().any(NewRow::is_dependent);
    if is_one_statement && !conn.is_in_transaction() {
        let inserted = insert_if_free(conn, rows, traits)?;
        let is_taken = inserted.is_empty() && rows.iter().any(NewRow::is_named);
        if !is_taken {
            return Ok(inserted);
        }
    }
    conn.transaction(|conn| {
        let mut inserted = Vec::with_capacity(rows.len());
        for chunk in rows.chunks(CHUNK) {
            inserted.append(&mut insert_chunk(conn, chunk, traits)?);
        }
        Ok(inserted)
    })
}

/// Inserts a chunk on Postgres in one statement, or nothing if a unique id has a row.
fn insert_if_free(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: Option<JobTraits>,
) -> QueryResult<Vec<Inserted>> {
    let ids: Vec<i64> = match traits {
        None => bulk::insert_plain(conn, rows)?,
        Some(traits) => {
            let jobs = alike::insert_if_free(conn, rows, traits)?;
            jobs.into_iter().map(|job| job.id).collect()
        }
    };
    let new = |id| Inserted::new(id, EnqueueOutcome::New);
    Ok(ids.into_iter().map(new).collect())
}

fn insert_chunk(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: Option<JobTraits>,
) -> QueryResult<Vec<Inserted>> {
    let new = |id| Inserted::new(id, EnqueueOutcome::New);
    let Some(traits) = traits else {
        return Ok(bulk::insert_plain(conn, rows)?
            .into_iter()
            .map(new)
            .collect());
    };
    let jobs = match rows {
        [first, ..] if first.is_dependent() => waiting::insert_dependent_jobs(conn, rows, traits)?,
        _ => alike::insert_alike(conn, rows, traits)?,
    };
    let others = jobs.iter().zip(rows).filter(|(job, _)| !job.is_new);
    let others: Vec<NewRow> = others.map(|(_, row)| row.clone()).collect();
    let mut resolved = Vec::new();
    if !others.is_empty() {
        resolved = keyed::insert_keyed(conn, &others)?;
    }
    let mut resolved = resolved.into_iter();
    jobs.iter()
        .map(|job| match job.is_new {
            true => Ok(new(job.id)),
            false => resolved.next().ok_or(diesel::result::Error::NotFound),
        })
        .collect()
}
