//! Changes of many jobs that survive the death of the process that runs them.

pub(crate) mod chunk;
pub mod start;

use crate::clock;
use crate::db::table::operations::{self, OperationAdvance};
use crate::db::transition::audit;
use crate::db::{AsConn, Conn, Refusal, own};
use crate::error::{ErrorContext, Result};
use crate::operation::chunk::run_chunk;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

// --- Runs the chunks of operations ---

/// The result of [`operations::run`](crate::operations::run).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationsRun {
    /// The number of chunks that it ran.
    pub chunks: u64,
    /// The number of jobs that it changed.
    pub changed: u64,
    /// True if there is more to run at once.
    pub more: bool,
}

/// Runs chunks of all open operations in turn, until none is left, or the time has passed.
///
/// Supervisors and `windlass web` do this all the time. A program without them calls it as often as it
/// likes; any number of processes may do so at once. A chunk that is under way at the end of the time is
/// completed.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use std::time::Duration;
///
/// let run = windlass::operations::run(&mut conn, Duration::from_secs(1))?;
/// assert_eq!((run.chunks, run.more), (0, false));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables. The chunk that failed has no effect.
pub fn run_operations<C: AsConn + ?Sized>(conn: &mut C, most: Duration) -> Result<OperationsRun> {
    let (start, mut conn) = (clock::instant(), own(conn));
    let (mut turns, mut run) = (OperationTurns::default(), OperationsRun::default());
    loop {
        let turn = turns.turn(&mut conn).during("run an operation")?;
        run.chunks += u64::from(turn.changed.is_some());
        run.changed += turn.changed.unwrap_or(0);
        run.more = turn.is_more;
        if !turn.is_more || start.elapsed() >= most {
            return Ok(run);
        }
    }
}

// --- Gives open operations their turns, and remembers what came of them ---

/// The most open operations that are run in turn.
const MOST_OPEN: usize = 20;

/// The turns in a row after which an operation fails if other transactions hold what its chunk needs.
const MOST_BUSY: u32 = 30;

/// The state that a runner of operations keeps from one turn to the next.
#[derive(Debug, Default)]
pub struct OperationTurns {
    /// Open operations that another version has stored, and this one cannot read.
    unreadable: BTreeSet<i64>,
    /// For each operation, the number of turns in a row that found what it needs locked.
    busy: BTreeMap<i64, u32>,
    /// The open operations that have not had their chunk of this round.
    round: VecDeque<i64>,
    /// True if another round may find more to run.
    is_more: bool,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy)]
pub struct OperationTurn {
    /// The number of jobs that its chunk has changed. `None` if it ran none.
    pub changed: Option<u64>,
    /// True if there is more to run at once.
    pub is_more: bool,
}

impl OperationTurns {
    /// Runs a chunk of one open operation: each has its turn, one chunk a round. An operation whose chunk fails does not
    /// delay the others, as the next turn is that of the next one.
    pub fn turn(&mut self, conn: &mut Conn<'_>) -> QueryResult<OperationTurn> {
        if self.round.is_empty() {
            self.round = self.open(conn)?.into();
            self.is_more = false;
        }
        let mut changed = None;
        if let Some(id) = self.round.pop_front() {
            let passed_over = self.unreadable.len();
            changed = self
                .run_next_chunk(conn, id)?
                .map(|advance| advance.changed);
            // Behind those that are passed over from now on, there may be others.
            self.is_more |= changed.is_some() || self.unreadable.len() > passed_over;
        }
        Ok(OperationTurn {
            changed,
            is_more: self.is_more || !self.round.is_empty(),
        })
    }

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

    /// Runs the next chunk of an operation. Returns `None` if there was none to run.
    ///
    /// The operation fails if the database refuses a statement because of its content, unless that is due to
    /// one of the jobs: so no operation is tried over and over again. Nor is one that is locked again and
    /// again.
    pub(crate) fn run_next_chunk(
        &mut self,
        conn: &mut Conn<'_>,
        id: i64,
    ) -> QueryResult<Option<OperationAdvance>> {
        let mut is_read = true;
        let advanced = audit::advance(conn, id, |conn, row| {
            let chunk = run_chunk(conn, row)?;
            is_read = chunk.is_some();
            Ok(chunk)
        });
        let advance = match advanced {
            Ok(advance) => advance,
            Err(error) => match Refusal::of(&error) {
                Refusal::Trouble => return Err(error),
                Refusal::Busy => {
                    self.was_busy(conn, id, &error.to_string())?;
                    return Ok(None);
                }
                Refusal::Content => {
                    operations::end(conn, id, "failed", Some(&error.to_string()))?;
                    None
                }
            },
        };
        if !is_read {
            self.unreadable.insert(id);
        }
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
