//! Functions for diesel-async, on Postgres and SQLite.
//!
//! ```rust,ignore
//! use windlass_enqueue::{NewJob, diesel_async::enqueue};
//!
//! let job = NewJob::new(&SendInvoice { order: 7 })?;
//! let id = conn.transaction(async |conn| {
//!     diesel::insert_into(orders::table).values(orders::id.eq(7)).execute(conn).await?;
//!     enqueue(conn, &job).await
//! }).await?;
//! ```

use crate::diesel::{JobBackend, Number};
use crate::{NewJob, Statement, statements_for_all};
use ::diesel::{QueryResult, result::Error};
use ::diesel_async::methods::LoadQuery;
use ::diesel_async::{AsyncConnection, RunQueryDsl};

/// Enqueues a job, and returns its id.
///
/// The job belongs to the transaction of the connection.
///
/// # Errors
/// If the database refuses the job, or the statement fails.
pub async fn enqueue<C>(conn: &mut C, job: &NewJob) -> QueryResult<i64>
where
    C: AsyncConnection<Backend: JobBackend>,
    Statement: for<'q> LoadQuery<'q, C, Number>,
{
    let ids = enqueue_all(conn, std::slice::from_ref(job)).await?;
    ids.into_iter().next().ok_or(Error::NotFound)
}

/// Enqueues jobs in few statements, and returns their ids in the same order; see [`statements_for_all`].
///
/// # Errors
/// If the database refuses a job, or a statement fails. Roll back then: earlier jobs may be enqueued.
pub async fn enqueue_all<C>(conn: &mut C, jobs: &[NewJob]) -> QueryResult<Vec<i64>>
where
    C: AsyncConnection<Backend: JobBackend>,
    Statement: for<'q> LoadQuery<'q, C, Number>,
{
    let mut ids = Vec::with_capacity(jobs.len());
    for mut insert in statements_for_all(jobs, C::Backend::database()) {
        let mut rows: Vec<Number> = Vec::new();
        for statement in std::mem::take(&mut insert.statements) {
            rows = statement.load(conn).await?;
        }
        ids.extend(insert.ids(rows.into_iter().map(|row| row.0).collect()));
    }
    Ok(ids)
}
