//! Gives open operations their turns, and remembers what came of them.

use crate::db::table::operators::operations::{self, OperationAdvance};
use crate::db::transition::operators;
use crate::db::{Conn, Refusal};
use crate::operation::stored::run_batch;
use crate::operation::walk::BatchMode;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many open operations are carried on in turn.
const MOST_OPEN: usize = 20;

/// How many turns in a row may end because other transactions hold what a batch needs.
const MOST_BUSY: u32 = 30;

/// The bounds of [`pause_after`].
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Returns how long to pause after a batch that took so long, so that other statements can run: half as
/// long.
pub(crate) fn pause_after(took: Duration) -> Duration {
    (took / 2).clamp(PAUSE.0, PAUSE.1)
}

/// What a runner of operations remembers from one turn to the next.
#[derive(Debug, Default)]
pub(crate) struct OperationTurns {
    /// Open operations that another version has stored, and this one cannot read.
    unreadable: BTreeSet<i64>,
    /// How many turns in a row found locked what the operation needs.
    busy: BTreeMap<i64, u32>,
}

/// What came of a turn.
enum Turn {
    Batch(OperationAdvance),
    /// The operation has ended, or another process runs a batch of it.
    Left,
    Unreadable,
    /// The row of the operation, or one that a batch needs, is locked: why.
    Busy(String),
}

impl OperationTurns {
    /// Returns the next open operations. Those that this version cannot read are passed over, so that
    /// they do not hold up newer ones.
    pub(crate) fn open(&mut self, conn: &mut Conn<'_>) -> QueryResult<Vec<i64>> {
        let limit = MOST_OPEN + self.unreadable.len();
        let mut open = operations::open(conn, limit)?;
        if open.len() < limit {
            // These are all there are: the others have ended.
            self.unreadable.retain(|id| open.contains(id));
            self.busy.retain(|id, _| open.contains(id));
        }
        open.retain(|id| !self.unreadable.contains(id));
        open.truncate(MOST_OPEN);
        Ok(open)
    }

    /// Returns how many operations are passed over.
    pub(crate) fn passed_over(&self) -> usize {
        self.unreadable.len()
    }

    /// Runs the next batch of an operation. Returns `None` if there was none to run.
    ///
    /// What the database refuses because of its content fails the operation, unless it is one of the
    /// jobs: so no operation is tried over and over again. Nor is one that is locked again and again.
    pub(crate) fn step(
        &mut self,
        conn: &mut Conn<'_>,
        id: i64,
    ) -> QueryResult<Option<OperationAdvance>> {
        let advance = match turn(conn, id)? {
            Turn::Busy(error) => {
                self.was_busy(conn, id, &error)?;
                return Ok(None);
            }
            Turn::Unreadable => {
                self.unreadable.insert(id);
                None
            }
            Turn::Left => None,
            Turn::Batch(advance) => Some(advance),
        };
        self.busy.remove(&id);
        Ok(advance)
    }

    fn was_busy(&mut self, conn: &mut Conn<'_>, id: i64, error: &str) -> QueryResult<()> {
        let turns = self.busy.entry(id).or_default();
        *turns += 1;
        if *turns < MOST_BUSY {
            return Ok(());
        }
        let why = format!("given up after {turns} attempts: {error}");
        operations::end(conn, id, "failed", Some(&why))?;
        self.busy.remove(&id);
        Ok(())
    }
}

fn turn(conn: &mut Conn<'_>, id: i64) -> QueryResult<Turn> {
    let kind_of = |error: &diesel::result::Error| Refusal::of(error);
    let whole = match advance(conn, id, BatchMode::Whole) {
        Err(error) if kind_of(&error) != Refusal::Trouble => advance(conn, id, BatchMode::Split),
        whole => return whole,
    };
    match whole {
        Err(error) if kind_of(&error) == Refusal::Content => {
            operations::end(conn, id, "failed", Some(&error.to_string()))?;
            Ok(Turn::Left)
        }
        Err(error) if kind_of(&error) == Refusal::Busy => Ok(Turn::Busy(error.to_string())),
        split => split,
    }
}

fn advance(conn: &mut Conn<'_>, id: i64, mode: BatchMode) -> QueryResult<Turn> {
    let mut is_read = true;
    let advanced = operators::advance(conn, id, |conn, row| {
        let batch = run_batch(conn, row, mode)?;
        is_read = batch.is_some();
        Ok(batch)
    })?;
    Ok(match advanced {
        Some(advance) => Turn::Batch(advance),
        None if is_read => Turn::Left,
        None => Turn::Unreadable,
    })
}
