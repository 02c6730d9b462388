//! Changes of many jobs that survive the death of the process that runs them.

pub(crate) mod start;
pub(crate) mod walk;

use crate::admin::bulk::BATCH;
use crate::admin::jobs::Jobs;
use crate::clock;
use crate::db::conn::dialect::IdRange;
use crate::db::query::batches::walk::{BatchWalk, Members};
use crate::db::query::jobs;
use crate::db::table::operators::operations::{self, OperationAdvance, OperationRow};
use crate::db::transition::operators::{self, AppliedBatch};
use crate::db::{AsConn, Conn, Refusal, own};
use crate::error::{ErrorContext, Result};
use crate::operation::start::OperationCounts;
use crate::operation::walk::{BatchMode, BatchResult, OperationTask, WalkBound, WalkPosition};
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

// --- Runs the batches of operations ---

/// The result of [`run_operations`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationsRun {
    /// The number of batches that it ran.
    pub batches: u64,
    /// The number of jobs that it changed.
    pub changed: u64,
    /// True if there is more to run at once.
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
        let open = turns.open(conn).during("look for operations")?;
        let passed_over = turns.passed_over();
        let before = run.batches;
        for id in open {
            if start.elapsed() >= most {
                run.more = true;
                return Ok(run);
            }
            if let Some(advance) = turns.step(conn, id).during("run an operation")? {
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

// --- Gives open operations their turns, and remembers what came of them ---

/// The most open operations that are run in turn.
const MOST_OPEN: usize = 20;

/// The turns in a row after which an operation fails if other transactions hold what its batch needs.
const MOST_BUSY: u32 = 30;

/// The bounds of [`pause_after`].
#[cfg(feature = "web")]
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Returns how long to pause after a batch that took so long, so that other statements can run: half as
/// long.
#[cfg(feature = "web")]
pub(crate) fn pause_after(took: Duration) -> Duration {
    (took / 2).clamp(PAUSE.0, PAUSE.1)
}

/// The state that a runner of operations keeps from one turn to the next.
#[derive(Debug, Default)]
pub(crate) struct OperationTurns {
    /// Open operations that another version has stored, and this one cannot read.
    unreadable: BTreeSet<i64>,
    /// For each operation, the number of turns in a row that found what it needs locked.
    busy: BTreeMap<i64, u32>,
}

/// The result of a turn.
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
    /// The operation fails if the database refuses a statement because of its content, unless that is due to
    /// one of the jobs: so no operation is tried over and over again. Nor is one that is locked again and
    /// again.
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

// --- One batch of an operation, from what is stored of it ---

/// The most times that a job is tried again if it moved or was locked.
const MOST_ROUNDS: u32 = 20;

/// An operation as it is stored.
struct StoredOperation {
    task: OperationTask,
    jobs: Jobs,
    bounds: Vec<WalkBound>,
    position: WalkPosition,
    counts: OperationCounts,
}

impl StoredOperation {
    /// Returns `None` if another version has stored what this one does not know.
    fn read(row: &OperationRow) -> Option<Self> {
        Some(StoredOperation {
            task: serde_json::from_str(&row.parameters).ok()?,
            jobs: serde_json::from_str(&row.filter).ok()?,
            bounds: serde_json::from_str(&row.bounds).ok()?,
            position: serde_json::from_str(&row.place).ok()?,
            counts: serde_json::from_str(&row.counts).ok()?,
        })
    }
}

/// Runs a batch of a locked operation. Returns `None` if another version has stored what this one
/// does not know.
pub(crate) fn run_batch(
    conn: &mut Conn<'_>,
    row: &OperationRow,
    mode: BatchMode,
) -> QueryResult<Option<AppliedBatch>> {
    let Some(mut stored) = StoredOperation::read(row) else {
        return Ok(None);
    };
    let (met, mut result) = if stored.position.again.is_empty() {
        stored.next_jobs(conn, mode)?
    } else {
        stored.jobs_again(conn, mode)?
    };
    let counted = stored.count(&met, &mut result);
    let effect = stored.task.change.effect(&result.done);
    Ok(Some(AppliedBatch {
        advance: OperationAdvance {
            place: serde_json::to_string(&stored.position).unwrap_or_default(),
            counts: serde_json::to_string(&stored.counts).unwrap_or_default(),
            looked_at: counted,
            changed: effect.jobs(),
            is_done: stored.is_done(),
            error: result.error,
        },
        effect,
    }))
}

impl StoredOperation {
    fn is_done(&self) -> bool {
        let has_walked = self.position.walks >= self.bounds.len() || self.position.left == Some(0);
        has_walked && self.position.again.is_empty()
    }

    /// Changes the next jobs of the walk. Returns them, and what became of them.
    fn next_jobs(
        &mut self,
        conn: &mut Conn<'_>,
        mode: BatchMode,
    ) -> QueryResult<(Vec<i64>, BatchResult)> {
        if let (Some(batch), Some(which)) = (self.jobs.filter.whole_batch, self.jobs.members()) {
            return self.next_members(conn, (batch, which), mode);
        }
        let position = &mut self.position;
        let nothing = (Vec::new(), BatchResult::default());
        let Some(bound) = self
            .bounds
            .get(position.walks)
            .filter(|_| position.left != Some(0))
        else {
            return Ok(nothing);
        };
        let most = position.left.and_then(|left| usize::try_from(left).ok());
        let up_to = match (bound.newest, position.up_to) {
            (None, _) => bound.up_to,
            (Some(_), Some(up_to)) => up_to,
            (Some(_), None) => jobs::last(conn, bound.state)?,
        };
        let range = IdRange {
            after: position.after.unwrap_or(bound.after),
            up_to,
        };
        let limit = BATCH.min(most.unwrap_or(BATCH));
        self.jobs.filter.newest = bound.newest;
        let page = jobs::next(conn, bound.state, &self.jobs.filter, range, limit)?;
        position.after = page.reached;
        position.up_to = page.reached.and(bound.newest).map(|_| up_to);
        position.walks += usize::from(page.reached.is_none());
        position.left = position.left.map(|left| left - page.jobs.len() as u64);
        (position.rounds, position.again_in) = (0, Some(bound.state));
        let batch = (bound.state, &page.jobs[..]);
        let result = walk::apply(conn, &self.task, position, batch, mode)?;
        Ok((page.jobs, result))
    }

    /// Changes the next jobs of a batch and of the batches in it. Returns them, and what became of them.
    fn next_members(
        &mut self,
        conn: &mut Conn<'_>,
        (batch, which): (i64, Members),
        mode: BatchMode,
    ) -> QueryResult<(Vec<i64>, BatchResult)> {
        let position = &mut self.position;
        let state = self.bounds.first().map(|bound| bound.state);
        let Some(state) = state.filter(|_| position.left != Some(0)) else {
            return Ok((Vec::new(), BatchResult::default()));
        };
        let walk = position
            .batches
            .get_or_insert_with(|| BatchWalk::of(batch, which));
        let most = position.left.and_then(|left| usize::try_from(left).ok());
        let jobs = walk.next(conn, which, BATCH.min(most.unwrap_or(BATCH)))?;
        if walk.is_done() {
            position.walks = self.bounds.len();
        }
        position.after = position.after.max(jobs.last().copied());
        position.left = position.left.map(|left| left - jobs.len() as u64);
        (position.rounds, position.again_in) = (0, Some(state));
        let result = walk::apply(conn, &self.task, position, (state, &jobs), mode)?;
        Ok((jobs, result))
    }

    /// Changes the jobs that are tried again.
    fn jobs_again(
        &mut self,
        conn: &mut Conn<'_>,
        mode: BatchMode,
    ) -> QueryResult<(Vec<i64>, BatchResult)> {
        let jobs = self.position.take_again();
        let Some(state) = self.position.again_in else {
            return Ok((jobs, BatchResult::default()));
        };
        let batch = (state, &jobs[..]);
        let result = walk::apply(conn, &self.task, &mut self.position, batch, mode)?;
        Ok((jobs, result))
    }

    /// Adds what became of the jobs of a batch to the counts, and notes those that are tried again.
    /// Returns how many jobs are counted.
    fn count(&mut self, met: &[i64], result: &mut BatchResult) -> u64 {
        self.counts.done.add(result.done);
        self.counts.refused += result.refused;
        let untried = result.untried.len();
        if self.position.rounds < MOST_ROUNDS {
            let tried = [&result.locked[..], &result.moved[..]].concat();
            self.position.put_again(&result.untried, &tried);
            return (met.len() - untried - tried.len()) as u64;
        }
        self.position.put_again(&result.untried, &[]);
        self.counts.done.passed_over += result.moved.len() as u64;
        self.counts.refused += result.locked.len() as u64;
        if let Some(job) = result.locked.first() {
            result.error = Some(format!("job {job}: another transaction holds it locked"));
        }
        (met.len() - untried) as u64
    }
}
