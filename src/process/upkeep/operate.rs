//! The duty that runs operations: changes of many jobs, a chunk at a time.

use crate::operation::OperationTurns;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn};
use std::time::Duration;

/// The time between two reads of the operations.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs the open operations in turn, one chunk of one operation a turn.
#[derive(Default)]
pub(crate) struct Operate {
    turns: OperationTurns,
}

impl Duty for Operate {
    fn name(&self) -> &'static str {
        "operate"
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    /// An operation that fails does not delay the others: the next turn is that of the next one.
    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let turn = session.run("run an operation", |conn| self.turns.turn(conn))?;
        let changed = usize::try_from(turn.changed.unwrap_or(0)).unwrap_or(usize::MAX);
        Ok(DutyTurn::of(changed, turn.is_more))
    }
}
