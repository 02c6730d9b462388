//! Inserts many jobs whose unique ids are all free, as most are: without the steps that find out which job holds one.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::new_row::NewRow;
use crate::db::table::jobs::reserve;
use crate::db::table::unique_jobs;
use crate::db::transition::enqueue::executions::NewEntry;
use crate::db::transition::enqueue::many::{CHUNK, insert_many, insert_numbered};
use diesel::QueryResult;
use std::collections::HashSet;

/// Inserts the jobs, and returns their ids in order. Returns `None`, and inserts nothing, if a unique id has a row, or if
/// not all jobs have one of their own.
///
/// SQLite needs a transaction of the caller. On Postgres none may be open: another transaction may take an id meanwhile, and
/// that error would end it.
pub(crate) fn insert_free(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Option<Vec<i64>>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    if !have_own_names(rows) {
        return Ok(None);
    }
    if conn.dialect() == Dialect::Sqlite {
        return insert_in_steps(conn, rows);
    }
    match insert_many(conn, &rows.iter().collect::<Vec<_>>()) {
        Ok(ids) => Ok(Some(ids).filter(|ids| !ids.is_empty())),
        // Another transaction has just inserted one.
        Err(DatabaseError(UniqueViolation, _)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether each of the jobs has a unique id that no other has, all of one scope, and nothing else decides whether
/// it is inserted.
fn have_own_names(rows: &[NewRow]) -> bool {
    let Some(first) = rows.first().filter(|_| rows.len() <= CHUNK) else {
        return false;
    };
    let mut names = HashSet::with_capacity(rows.len());
    rows.iter().all(|row| {
        row.idempotency_key.is_none()
            && !row.is_dependent()
            && row.unique_scope == first.unique_scope
            && row
                .unique_id
                .as_deref()
                .is_some_and(|name| names.insert(name))
    })
}

fn insert_in_steps(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Option<Vec<i64>>> {
    let ids = reserve(conn, rows.len())?;
    let (Some(first), Some(scope)) = (ids.first(), rows.first().map(|row| row.unique_scope)) else {
        return Ok(None);
    };
    let names = rows.iter().filter_map(|row| row.unique_id.as_deref());
    if !unique_jobs::insert_if_free(conn, *first, &names.collect::<Vec<_>>(), scope)? {
        return Ok(None);
    }
    let entry = |(&id, row)| NewEntry {
        id,
        row,
        is_behind: false,
    };
    let entries: Vec<NewEntry<'_>> = ids.iter().zip(rows).map(entry).collect();
    insert_numbered(conn, &entries)?;
    Ok(Some(ids))
}
