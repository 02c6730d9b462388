//! Reads the state of queues and processes.

use crate::db::query::status::{self, ProcessStatus, QueueStatus};
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};

/// Returns the counts of every queue that has executions or is paused, by name.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for queue in windlass::queues(&mut conn)? {
///     println!("{}: {} ready", queue.queue_name, queue.ready);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queues<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<QueueStatus>> {
    status::queues(&mut own(conn)).doing("count the executions")
}

/// Returns every registered process with the jobs it holds.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn processes<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<ProcessStatus>> {
    status::processes(&mut own(conn)).doing("list the processes")
}
