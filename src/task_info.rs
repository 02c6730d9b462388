//! What became of a job, for whoever enqueued it.

use crate::db::AsConn;
use crate::db::attempts::{self, Attempt};
use crate::error::{Doing, Result};
use crate::job::JobId;

/// The attempts at a job that did not succeed, the newest first; at most the
/// last 20.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for attempt in windlass::attempts(&mut conn, windlass::JobId(1))? {
///     println!("{}. {}: {}", attempt.attempt, attempt.kind, attempt.message);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn attempts<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Vec<Attempt>> {
    attempts::of_job(&mut conn.as_conn(), job.0).doing("list the attempts of the job")
}
