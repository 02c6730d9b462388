//! Functions for sqlx 0.8, on Postgres and SQLite.
//!
//! ```rust,ignore
//! use windlass_enqueue::{NewJob, sqlx_0_8::enqueue};
//!
//! let mut transaction = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *transaction).await?;
//! let id = enqueue(&mut *transaction, &NewJob::new(&SendInvoice { order: 7 })?).await?;
//! transaction.commit().await?;
//! ```

use crate::{Database, NewJob, Statement, statements_for_all};
use ::sqlx_0_8 as sqlx;
use sqlx::{
    ColumnIndex, Connection, Decode, Encode, Error, Executor, IntoArguments, Row as _, Type,
};
use std::future::Future;
use std::pin::Pin;

/// A connection of Postgres or SQLite.
pub trait JobConnection: Connection {
    /// Runs a statement, and returns the first column of its rows.
    #[doc(hidden)]
    fn numbers(&mut self, statement: Statement) -> Numbers<'_>;
}

#[doc(hidden)]
pub type Numbers<'c> = Pin<Box<dyn Future<Output = Result<Vec<i64>, Error>> + Send + 'c>>;

impl<C: Connection> JobConnection for C
where
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
    for<'q> <C::Database as sqlx::Database>::Arguments<'q>: IntoArguments<'q, C::Database>,
    for<'q> String: Encode<'q, C::Database> + Type<C::Database>,
    for<'r> i64: Decode<'r, C::Database> + Type<C::Database>,
    usize: ColumnIndex<<C::Database as sqlx::Database>::Row>,
{
    fn numbers(&mut self, statement: Statement) -> Numbers<'_> {
        Box::pin(async move {
            let query = sqlx::query(&statement.sql);
            let query = statement.values.into_iter().fold(query, |q, v| q.bind(v));
            let rows = query.fetch_all(self).await?;
            rows.iter().map(|row| row.try_get(0)).collect()
        })
    }
}

fn database<C: Connection>() -> Result<Database, Error> {
    match <C::Database as sqlx::Database>::NAME {
        "PostgreSQL" => Ok(Database::Postgres),
        "SQLite" => Ok(Database::Sqlite),
        other => Err(Error::Configuration(
            format!("Windlass works with Postgres and SQLite, and not with {other}").into(),
        )),
    }
}

/// Enqueues a job, and returns its id.
///
/// The job belongs to the transaction of the connection: pass `&mut *transaction`.
///
/// # Errors
/// If the database refuses the job, or the statement fails.
pub async fn enqueue<C: JobConnection>(conn: &mut C, job: &NewJob) -> Result<i64, Error> {
    let ids = enqueue_all(conn, std::slice::from_ref(job)).await?;
    ids.into_iter().next().ok_or(Error::RowNotFound)
}

/// Enqueues jobs in few statements, and returns their ids in the same order; see [`statements_for_all`].
///
/// # Errors
/// If the database refuses a job, or a statement fails. Roll back then: earlier jobs may be enqueued.
pub async fn enqueue_all<C: JobConnection>(
    conn: &mut C,
    jobs: &[NewJob],
) -> Result<Vec<i64>, Error> {
    let mut ids = Vec::with_capacity(jobs.len());
    for mut insert in statements_for_all(jobs, database::<C>()?) {
        let mut rows = Vec::new();
        for statement in std::mem::take(&mut insert.statements) {
            rows = conn.numbers(statement).await?;
        }
        ids.extend(insert.ids(rows));
    }
    Ok(ids)
}
