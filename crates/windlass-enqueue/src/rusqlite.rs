//! Functions for rusqlite.
//!
//! ```rust,ignore
//! use windlass_enqueue::{NewJob, rusqlite::enqueue};
//!
//! let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! transaction.execute("INSERT INTO orders (id) VALUES (7)", [])?;
//! let id = enqueue(&transaction, &NewJob::new(&SendInvoice { order: 7 })?)?;
//! transaction.commit()?;
//! ```
//!
//! Cargo takes the program's version of rusqlite, except for 0.42, which has the SQLite of 0.43. Run `cargo update -p
//! rusqlite@0.43.0 --precise 0.42.0` then.

use crate::{Database, NewJob, Statement, statements_for_all};
use ::rusqlite::{Connection, Error, params_from_iter};

/// Enqueues a job, and returns its id.
///
/// The job belongs to the transaction: pass a `&Transaction`.
///
/// # Errors
/// If the database refuses the job, or the statement fails.
pub fn enqueue(conn: &Connection, job: &NewJob) -> Result<i64, Error> {
    let ids = enqueue_all(conn, std::slice::from_ref(job))?;
    ids.into_iter().next().ok_or(Error::QueryReturnedNoRows)
}

/// Enqueues jobs in few statements, and returns their ids in the same order; see [`statements_for_all`].
///
/// # Errors
/// If the database refuses a job, or a statement fails. Roll back then: earlier jobs may be enqueued.
pub fn enqueue_all(conn: &Connection, jobs: &[NewJob]) -> Result<Vec<i64>, Error> {
    let mut ids = Vec::with_capacity(jobs.len());
    for insert in statements_for_all(jobs, Database::Sqlite) {
        let mut rows = Vec::new();
        for statement in &insert.statements {
            rows = numbers(conn, statement)?;
        }
        ids.extend(insert.ids(rows));
    }
    Ok(ids)
}

/// Runs a statement, and returns the first column of its rows.
fn numbers(conn: &Connection, statement: &Statement) -> Result<Vec<i64>, Error> {
    let mut prepared = conn.prepare_cached(&statement.sql)?;
    let rows = prepared.query_map(params_from_iter(&statement.values), |row| row.get(0))?;
    rows.collect()
}
