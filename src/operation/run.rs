//! Runs the batches of operations.

use crate::clock;
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Result};
use crate::operation::turns::OperationTurns;
use std::time::Duration;

/// What [`run_operations`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationsRun {
    /// How many batches it ran.
    pub batches: u64,
    /// How many jobs it changed.
    pub changed: u64,
    /// Whether there is more to run at once.
    pub more: bool,
}

/// Runs batches of all open operations in turn, until none is left, or the time has passed.
///
/// Supervisors and `windlass web` do this all the time. A program without them calls it as often as it
/// likes; any number of processes may do so at once. A batch that is under way at the end of the time is
/// completed.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use std::time::Duration;
///
/// let run = windlass::run_operations(&mut conn, Duration::from_secs(1))?;
/// assert_eq!((run.batches, run.more), (0, false));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables. The batch that failed has no effect.
pub fn run_operations<C: AsConn + ?Sized>(conn: &mut C, most: Duration) -> Result<OperationsRun> {
    run_with(&mut own(conn), &mut OperationTurns::default(), most)
}

fn run_with(
    conn: &mut Conn<'_>,
    turns: &mut OperationTurns,
    most: Duration,
) -> Result<OperationsRun> {
    let start = clock::instant();
    let mut run = OperationsRun::default();
    loop {
        let open = turns.open(conn).doing("look for operations")?;
        let passed_over = turns.passed_over();
        let before = run.batches;
        for id in open {
            if start.elapsed() >= most {
                run.more = true;
                return Ok(run);
            }
            if let Some(advance) = turns.step(conn, id).doing("run an operation")? {
                run.batches += 1;
                run.changed += advance.changed;
            }
        }
        // Behind those that are passed over from now on, there may be others.
        if run.batches == before && turns.passed_over() == passed_over {
            return Ok(run);
        }
    }
}
