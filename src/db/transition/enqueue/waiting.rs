//! Inserts jobs that wait for others in bulk.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::{JobColumns, JobTraits};
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::edges;
use crate::db::transition::enqueue::alike::{BulkJob, bind_arrays, input, insert_jobs, values};
use crate::db::transition::enqueue::insert::reserve;
use diesel::prelude::*;

/// Inserts jobs that wait for others and are [alike](super::alike::traits): they are blocked. It needs a transaction of the
/// caller.
pub(crate) fn insert_dependent_jobs(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    traits: JobTraits,
) -> QueryResult<Vec<BulkJob>> {
    let ids = match conn.dialect() {
        Dialect::Postgres => insert_arrays(conn, rows, traits)?,
        Dialect::Sqlite => {
            let ids = reserve(conn, rows.len())?;
            insert_jobs(conn, rows, ids.first().copied().unwrap_or_default(), traits)?;
            ids
        }
    };
    edges::block(conn, &ids)?;
    let jobs = ids.into_iter().map(|id| BulkJob { id, is_new: true });
    Ok(jobs.collect())
}

/// Inserts jobs on Postgres, and no executions. Returns their ids, in order.
fn insert_arrays(conn: &mut Conn<'_>, rows: &[NewRow], traits: JobTraits) -> QueryResult<Vec<i64>> {
    let columns = JobColumns::alike(traits);
    let text = format!(
        "INSERT INTO solid_queue_jobs ({}) SELECT {} FROM {} RETURNING id",
        columns.names(),
        values(&columns),
        input(&columns),
    );
    let [first, ..] = rows else {
        return Ok(Vec::new());
    };
    let statement = bind_arrays(Statement::new(text).unkept(), &columns, rows, first);
    let ids: Vec<Id> = statement.load(conn)?;
    let mut ids: Vec<i64> = ids.into_iter().map(|row| row.id).collect();
    ids.sort_unstable();
    Ok(ids)
}
