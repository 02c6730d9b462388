//! Functions for tokio-postgres, and for pools of its connections.
//!
//! ```rust,ignore
//! use windlass_enqueue::{NewJob, tokio_postgres::enqueue};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
//! let id = enqueue(&transaction, &NewJob::new(&SendInvoice { order: 7 })?).await?;
//! transaction.commit().await?;
//! ```

use crate::{Database, NewJob, Statement, statements_for_all};
use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Error, GenericClient};

/// Enqueues a job, and returns its id.
///
/// The job belongs to the transaction: pass a `&Transaction`.
///
/// # Errors
/// If the database refuses the job, or the statement fails.
pub async fn enqueue<C: GenericClient + Sync>(client: &C, job: &NewJob) -> Result<i64, Error> {
    let statement = job.statement(Database::Postgres);
    let row = client
        .query_typed_one(&statement.sql, &parameters(&statement))
        .await?;
    row.try_get(0)
}

/// Enqueues jobs in few statements, and returns their ids in the same order; see [`statements_for_all`].
///
/// # Errors
/// If the database refuses a job, or a statement fails. Roll back then: earlier jobs may be enqueued.
pub async fn enqueue_all<C: GenericClient + Sync>(
    client: &C,
    jobs: &[NewJob],
) -> Result<Vec<i64>, Error> {
    let mut ids = Vec::with_capacity(jobs.len());
    for insert in statements_for_all(jobs, Database::Postgres) {
        for statement in &insert.statements {
            let parameters = parameters(statement);
            for row in client.query_typed(&statement.sql, &parameters).await? {
                ids.push(row.try_get(0)?);
            }
        }
    }
    Ok(ids)
}

/// With its type, a value takes no round trip of its own to learn it.
fn parameters(statement: &Statement) -> Vec<(&(dyn ToSql + Sync), Type)> {
    let values = statement.values.iter();
    values
        .map(|value| (value as &(dyn ToSql + Sync), Type::TEXT))
        .collect()
}
