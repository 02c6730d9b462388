//! Enqueues batches, in the transaction of the caller.

use crate::db::conn::connection::Conn;
use crate::db::model::extras::{On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::edges::{self, NewEdge};
use crate::db::table::flows::{batches, members};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::transition::enqueue;
use crate::db::transition::flows::admit::NESTED;
use diesel::prelude::*;

/// Lets a batch, which this transaction has inserted, wait for new jobs.
pub(crate) fn fill(conn: &mut Conn<'_>, batch: i64, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    members::insert_members(conn, batch, jobs)?;
    batches::add_to_total(conn, batch, jobs.len() as i64)
}

/// Lets a batch, which the caller has locked, wait for new jobs too.
///
/// Its total is raised by a promotion: transactions that add jobs do not wait for each other.
pub(crate) fn add(conn: &mut Conn<'_>, batch: i64, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    members::insert_members(conn, batch, jobs)?;
    wanted_keys::request_later(conn, [NewRequest::Added(batch, jobs.len() as i64)])
}

/// Has the batch end at the commit, if it has no jobs by then.
pub(crate) fn end_if_empty(conn: &mut Conn<'_>, batch: i64) -> QueryResult<()> {
    wanted_keys::request(conn, [NewRequest::Batch(batch)])
}

/// Inserts jobs that wait for a batch, which this transaction has inserted. They have no unique ids and idempotency
/// keys, so that all of them are new. Returns their ids.
pub(crate) fn follow(
    conn: &mut Conn<'_>,
    batch: i64,
    rows: &[NewRow],
    on: On,
    otherwise: Otherwise,
) -> QueryResult<Vec<i64>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let rows = rows.iter().cloned().map(|row| NewRow {
        is_connected_later: true,
        ..row
    });
    let jobs = enqueue::insert_all(conn, &rows.collect::<Vec<_>>())?;
    let jobs: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    let edge = |job: &i64| NewEdge {
        child: *job,
        parent: Parent::Batch(batch),
        name: None,
        on,
        otherwise,
    };
    edges::insert_edges(conn, &jobs.iter().map(edge).collect::<Vec<_>>())?;
    Ok(jobs)
}

/// Lets a batch wait for another. Both were inserted by this transaction.
pub(crate) fn nest(conn: &mut Conn<'_>, outer: i64, inner: i64) -> QueryResult<()> {
    let arguments = serde_json::json!({ "batch": inner }).to_string();
    let row = NewRow {
        batch_id: Some(outer),
        ..NewRow::new(NESTED.to_owned(), arguments, "default".to_owned(), 0)
    };
    let jobs = follow(conn, inner, &[row], On::Finish, Otherwise::Nest)?;
    fill(conn, outer, &jobs)
}
