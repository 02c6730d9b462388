//! Cancelling one job.

use crate::admin::jobs::cancel_all;
use crate::db::{AsConn, own};
use crate::error::Result;
use crate::job::id::JobId;

/// The result of [`cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancelled {
    /// The job had not started, and is now cancelled.
    Ended,
    /// A process holds the job and learns of the request with its next heartbeat.
    ///
    /// The job is cancelled as soon as it calls [`check`](crate::Context::check), or fails, or its
    /// process dies. If it succeeds before, it has succeeded.
    Asked,
    /// A Ruby process runs the job and cannot be asked to cancel it: nothing was changed.
    InRuby,
    /// The job had ended before, or does not exist.
    NotThere,
}

/// Cancels a job.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::{Cancelled, NewJob};
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::Ended);
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::NotThere);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn cancel<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Cancelled> {
    let done = cancel_all(&mut own(conn), &[job.0])?;
    Ok(if done.ended > 0 {
        Cancelled::Ended
    } else if done.asked > 0 {
        Cancelled::Asked
    } else if done.in_ruby > 0 {
        Cancelled::InRuby
    } else {
        Cancelled::NotThere
    })
}
