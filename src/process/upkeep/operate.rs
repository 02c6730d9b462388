//! The duty that runs operations: changes of many jobs, a batch at a time.

use crate::operation::OperationTurns;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn};
use std::collections::VecDeque;
use std::time::Duration;

/// The time between two looks for operations.
const LOOK: Duration = Duration::from_secs(2);

/// Runs the open operations in turn, one batch of one operation a turn.
#[derive(Default)]
pub(crate) struct Operate {
    turns: OperationTurns,
    /// The open operations that have not had their batch of this round.
    open: VecDeque<i64>,
    /// True if any operation had a batch in this round.
    has_run: bool,
}

impl Duty for Operate {
    fn name(&self) -> &'static str {
        "operate"
    }

    fn interval(&self) -> Duration {
        LOOK
    }

    /// An operation that fails does not delay the others.
    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        if self.open.is_empty() {
            let open = session.run("look for operations", |conn| self.turns.open(conn))?;
            (self.open, self.has_run) = (open.into(), false);
        }
        let Some(id) = self.open.pop_front() else {
            return Ok(DutyTurn::done());
        };
        let advance = session.run("run an operation", |conn| self.turns.step(conn, id));
        match advance {
            Ok(advance) => self.has_run |= advance.is_some(),
            Err(delay) if self.open.is_empty() || session.is_in_trouble() => return Err(delay),
            Err(_) => {}
        }
        let is_more = !self.open.is_empty() || self.has_run;
        Ok(DutyTurn::of(usize::from(is_more), is_more))
    }
}
