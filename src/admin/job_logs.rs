//! What a job has logged about itself.

use crate::db::table::job_logs::{self, JobLog};
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::job::id::JobId;

/// Returns what the runs of a job logged with [`Context::log`](crate::Context::log), the oldest run
/// first; at most the last 10 runs that logged anything.
///
/// It is empty if the job logged nothing, or if its row and its lines were deleted.
///
/// ```
/// use diesel::prelude::*;
/// use windlass::{Function, Registry, job_logs, testing};
///
/// const COUNT: Function<u32> = Function::new("count");
/// let registry = Registry::new().function(COUNT, |number, cx| {
///     cx.log(format!("counted to {number}"));
///     Ok(())
/// });
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let job = COUNT.enqueue(&mut conn, &3)?.id;
/// testing::drain(&mut conn, &registry)?.assert_all_finished(1);
/// let logs = job_logs(&mut conn, job)?;
/// assert_eq!(logs[0].attempt, 1);
/// assert_eq!(logs[0].lines[0].text, "counted to 3");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn job_logs<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Vec<JobLog>> {
    job_logs::of_job(&mut own(conn), job.0).doing("read what the job logged")
}
