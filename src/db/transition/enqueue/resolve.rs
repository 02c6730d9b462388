//! Inserts jobs that may exist already, with idempotency keys or unique ids, and jobs that wait for others.
//!
//! Ids are assigned first, in the order of the jobs. Then unique ids are taken and jobs inserted in
//! the order of their unique ids and keys, so that two bulk enqueues with the same ones in another
//! order never deadlock.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::jobs::reserve;
use crate::db::transition::enqueue::executions::NewEntry;
use crate::db::transition::enqueue::many::{CHUNK, insert_numbered};
use crate::db::transition::unique::{self, NumberedRow, ROUNDS, Taken};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::{BTreeSet, HashMap};

/// Inserts jobs in the caller's transaction, and returns the result of each, in order.
pub(crate) fn insert_resolved(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    let ids = reserve(conn, rows.len())?;
    let mut inserted: HashMap<i64, Inserted> = HashMap::with_capacity(rows.len());
    let numbered = ids.iter().zip(rows);
    let mut rest: Vec<NumberedRow<'_>> =
        numbered.map(|(&id, row)| NumberedRow { id, row }).collect();
    while !rest.is_empty() {
        // A used key decides, whatever holds the unique id.
        let both = rest.iter().filter(|one| one.row.unique_id.is_some());
        let keys: Vec<&str> = both
            .filter_map(|one| one.row.idempotency_key.as_deref())
            .collect();
        let known = with_keys(conn, &keys)?;
        rest.retain(|NumberedRow { id, row }| match known.get(key(row)) {
            Some(job) if row.unique_id.is_some() => {
                inserted.insert(*id, Inserted::new(*job, EnqueueOutcome::Existing));
                false
            }
            _ => true,
        });
        let (now, later) = first_round(rest);
        insert_round(conn, &now, &mut inserted)?;
        rest = later;
    }
    ids.iter()
        .map(|id| {
            inserted
                .get(id)
                .copied()
                .ok_or(diesel::result::Error::NotFound)
        })
        .collect()
}

/// Splits off the jobs that do not depend on an earlier one. Of two with the same unique id, or of
/// one with a unique id and one that shares its key, the second comes in a later round, and any
/// that shares its key after it.
fn first_round(rows: Vec<NumberedRow<'_>>) -> (Vec<NumberedRow<'_>>, Vec<NumberedRow<'_>>) {
    let (mut names, mut keys, mut late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    rows.into_iter().partition(|NumberedRow { row, .. }| {
        let (name, key) = (row.unique_id.as_deref(), row.idempotency_key.as_deref());
        let meets_name = name.is_some_and(|name| !names.insert(name));
        let meets_key = key.is_some_and(|key| !keys.insert(key));
        let waits = meets_name
            || (meets_key && name.is_some())
            || key.is_some_and(|key| late.contains(key));
        if waits {
            late.extend(key);
        }
        !waits
    })
}

fn key(row: &NewRow) -> &str {
    row.idempotency_key.as_deref().unwrap_or_default()
}

/// Inserts jobs with distinct unique ids.
fn insert_round(
    conn: &mut Conn<'_>,
    rows: &[NumberedRow<'_>],
    inserted: &mut HashMap<i64, Inserted>,
) -> QueryResult<()> {
    let taken: HashMap<i64, Taken> = unique::take(conn, rows)?;
    let mut entries = Vec::with_capacity(rows.len());
    for NumberedRow { id, row } in rows {
        let is_behind = match taken.get(id) {
            Some(Taken::Known(job, outcome)) => {
                inserted.insert(*id, Inserted::new(*job, *outcome));
                continue;
            }
            Some(Taken::Behind) => true,
            Some(Taken::Free) | None => false,
        };
        entries.push(NewEntry {
            id: *id,
            row,
            is_behind,
        });
    }
    entries.sort_by_key(|entry| (entry.row.idempotency_key.is_some(), key(entry.row)));
    for chunk in entries.chunks(CHUNK) {
        let mut rest = chunk.to_vec();
        for _ in 0..ROUNDS {
            rest = insert_entries(conn, &rest, inserted)?;
            if rest.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Inserts the jobs whose keys are free. Returns those whose key was used, by a job that was deleted
/// before it could be read: they keep their ids, under which their unique ids are taken.
fn insert_entries<'r>(
    conn: &mut Conn<'_>,
    entries: &[NewEntry<'r>],
    inserted: &mut HashMap<i64, Inserted>,
) -> QueryResult<Vec<NewEntry<'r>>> {
    let new = insert_numbered(conn, entries)?;
    let (new, known): (Vec<NewEntry<'r>>, Vec<_>) =
        entries.iter().partition(|entry| new.contains(&entry.id));
    for entry in new {
        let outcome = if entry.is_behind {
            EnqueueOutcome::Again
        } else {
            EnqueueOutcome::New
        };
        inserted.insert(entry.id, Inserted::new(entry.id, outcome));
    }
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<&str> = known.iter().map(|entry| key(entry.row)).collect();
    let jobs = with_keys(conn, &keys)?;
    let mut rest = Vec::new();
    for entry in known {
        match jobs.get(key(entry.row)) {
            Some(job) => {
                let known = Inserted::new(*job, EnqueueOutcome::Existing);
                inserted.insert(entry.id, known);
            }
            None => rest.push(entry),
        }
    }
    Ok(rest)
}

#[derive(QueryableByName)]
struct JobWithKey {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    idempotency_key: String,
}

/// Returns the jobs that have these keys.
fn with_keys(conn: &mut Conn<'_>, keys: &[&str]) -> QueryResult<HashMap<String, i64>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    const FIND: &str = "SELECT id, idempotency_key FROM solid_queue_jobs WHERE idempotency_key";
    let statement = match conn.dialect() {
        Dialect::Postgres => Statement::new(format!("{FIND} = ANY ($1)")).bind(keys),
        Dialect::Sqlite => {
            let keys = serde_json::to_string(keys).unwrap_or_default();
            Statement::new(format!("{FIND} IN (SELECT value FROM json_each($1))")).bind(keys)
        }
    };
    let rows: Vec<JobWithKey> = statement.load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.idempotency_key, row.id))
        .collect())
}
