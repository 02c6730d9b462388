//! One chunk of an operation, and the progress of the operation after it.

use crate::admin::change::{Change, Pace, PacedChange};
use crate::admin::jobs::{Changed, Jobs};
use crate::admin::walk::{JobWalk, WalkPosition};
use crate::db::model::decision::JobState;
use crate::db::table::operations::{OperationAdvance, OperationRow};
use crate::db::{Conn, LockWait, Refusal, with_lock_wait};
use diesel::QueryResult;
use serde::{Deserialize, Serialize};

/// The most times that a job is tried again if it moved or was locked.
const MOST_ROUNDS: u32 = 20;

/// The progress of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OperationPosition {
    /// The progress of its walk over the jobs.
    #[serde(flatten)]
    pub(crate) walk: WalkPosition,
    /// Jobs of the last chunk that are tried again: they moved, or were locked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    again: Vec<i64>,
    /// The number of those that were not tried in this round; they come first.
    #[serde(skip_serializing_if = "is_zero")]
    untried: usize,
    /// The state that they were in.
    #[serde(skip_serializing_if = "Option::is_none")]
    again_in: Option<JobState>,
    /// The number of times that all of them were tried.
    rounds: u32,
    /// The jobs that have become due, if they become due one after the other.
    #[serde(flatten)]
    pace: Pace,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl OperationPosition {
    /// Returns the start of an operation on at most `limit` jobs.
    pub(crate) fn start(limit: Option<u64>) -> Self {
        OperationPosition {
            walk: WalkPosition::start(limit),
            ..OperationPosition::default()
        }
    }

    /// Takes the jobs out that are tried next: those that were not tried in this round, or else all of
    /// them, in a new round.
    fn take_again(&mut self) -> Vec<i64> {
        if self.untried == 0 {
            self.rounds += 1;
            self.untried = self.again.len();
        }
        let rest = self.again.split_off(self.untried.min(self.again.len()));
        self.untried = 0;
        std::mem::replace(&mut self.again, rest)
    }

    /// Notes jobs to try: those that were not tried in this round, and those that were.
    fn put_again(&mut self, untried: &[i64], tried: &[i64]) {
        self.again = [untried, &self.again[..], tried].concat();
        self.untried = untried.len();
    }
}

/// The outcomes of the jobs of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OperationCounts {
    /// The outcomes of those that the database did not refuse.
    #[serde(flatten)]
    pub done: Changed,
    /// The number of jobs that were left because the database refused to change them, or other transactions
    /// held them locked.
    pub refused: u64,
}

/// An operation as it is stored.
struct StoredOperation {
    paced: PacedChange,
    walk: JobWalk,
    position: OperationPosition,
    counts: OperationCounts,
}

impl StoredOperation {
    /// Returns `None` if another version has stored what this one does not know.
    fn read(row: &OperationRow) -> Option<Self> {
        let jobs: Jobs = serde_json::from_str(&row.filter).ok()?;
        Some(StoredOperation {
            paced: serde_json::from_str(&row.parameters).ok()?,
            walk: JobWalk::within(jobs, serde_json::from_str(&row.bounds).ok()?),
            position: serde_json::from_str(&row.place).ok()?,
            counts: serde_json::from_str(&row.counts).ok()?,
        })
    }
}

/// Runs a chunk of a locked operation. Returns `None` if another version has stored what this one
/// does not know.
pub(crate) fn run_chunk(
    conn: &mut Conn<'_>,
    row: &OperationRow,
) -> QueryResult<Option<OperationAdvance>> {
    let Some(mut stored) = StoredOperation::read(row) else {
        return Ok(None);
    };
    let (jobs, mut result) = stored.change_next(conn)?;
    let counted = stored.count(&jobs, &mut result);
    let is_cancel = stored.paced.change == Change::Cancel;
    let position = &stored.position;
    Ok(Some(OperationAdvance {
        place: serde_json::to_string(position).unwrap_or_default(),
        counts: serde_json::to_string(&stored.counts).unwrap_or_default(),
        looked_at: counted,
        changed: result.done.affected(is_cancel),
        is_done: position.again.is_empty() && stored.walk.is_done(&position.walk),
        error: result.error,
    }))
}

impl StoredOperation {
    /// Changes the jobs that are tried again, or else the next jobs of the walk. Returns them, and what became of them.
    fn change_next(&mut self, conn: &mut Conn<'_>) -> QueryResult<(Vec<i64>, ChunkResult)> {
        let position = &mut self.position;
        let jobs = match position.again.is_empty() {
            false => position.take_again(),
            true => match self.walk.next(conn, &mut position.walk)? {
                Some((state, jobs)) => {
                    (position.rounds, position.again_in) = (0, Some(state));
                    jobs
                }
                None => Vec::new(),
            },
        };
        let Some(state) = position.again_in else {
            return Ok((jobs, ChunkResult::default()));
        };
        let result = apply(conn, &self.paced, &mut position.pace, (state, &jobs))?;
        Ok((jobs, result))
    }

    /// Adds what became of the jobs of a chunk to the counts, and notes those that are tried again.
    /// Returns how many jobs are counted.
    fn count(&mut self, jobs: &[i64], result: &mut ChunkResult) -> u64 {
        self.counts.done.add(result.done);
        self.counts.refused += result.refused;
        let untried = result.untried.len();
        if self.position.rounds < MOST_ROUNDS {
            let tried = [&result.locked[..], &result.moved[..]].concat();
            self.position.put_again(&result.untried, &tried);
            return (jobs.len() - untried - tried.len()) as u64;
        }
        self.position.put_again(&result.untried, &[]);
        self.counts.done.passed_over += result.moved.len() as u64;
        self.counts.refused += result.locked.len() as u64;
        if let Some(job) = result.locked.first() {
            result.error = Some(format!("job {job}: another transaction holds it locked"));
        }
        (jobs.len() - untried) as u64
    }
}

// --- Changes the jobs of one chunk, without those that the database refuses to change ---

/// The most locked jobs for which one chunk waits: each costs 100 ms.
const MOST_LOCKED: usize = 5;

/// The outcomes of the jobs of a chunk.
#[derive(Debug, Default)]
struct ChunkResult {
    done: Changed,
    /// The number of jobs that the database refused to change, and the reason for the last of them.
    refused: u64,
    error: Option<String>,
    /// Jobs to try again: other transactions have locked them.
    locked: Vec<i64>,
    /// The same, but they moved while they were searched for.
    moved: Vec<i64>,
    /// Jobs that were not tried, because too many others were locked.
    untried: Vec<i64>,
}

/// Changes the jobs of a chunk, which are in this state.
fn apply(
    conn: &mut Conn<'_>,
    paced: &PacedChange,
    pace: &mut Pace,
    (state, jobs): (JobState, &[i64]),
) -> QueryResult<ChunkResult> {
    let mut result = ChunkResult::default();
    let mut parts = vec![jobs];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        if result.locked.len() >= MOST_LOCKED {
            result.untried.extend(part);
            continue;
        }
        // A part that is refused has no effect on it.
        let mut after = *pace;
        let changed = with_lock_wait(conn, LockWait::Short, |conn| {
            paced.apply(conn, &mut after, (state, part))
        });
        match changed {
            Ok((done, moved)) => {
                *pace = after;
                result.done.add(done);
                result.moved.extend(moved);
            }
            Err(error) if Refusal::of(&error) == Refusal::Trouble => return Err(error),
            Err(error) if part.len() == 1 && Refusal::of(&error) == Refusal::Busy => {
                result.locked.extend(part);
            }
            Err(error) if part.len() == 1 => {
                result.refused += 1;
                result.error = Some(format!("job {}: {error}", part[0]));
            }
            Err(_) => {
                let (first, rest) = part.split_at(part.len() / 2);
                parts.extend([rest, first]);
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_is_tried_twice_in_a_round() {
        let mut position = OperationPosition::default();
        position.put_again(&[3, 4, 5], &[1, 2]);
        assert_eq!((position.take_again(), position.rounds), (vec![3, 4, 5], 0));
        position.put_again(&[5], &[4]);
        assert_eq!(position.again, [5, 1, 2, 4]);
        assert_eq!((position.take_again(), position.rounds), (vec![5], 0));
        position.put_again(&[], &[]);
        assert_eq!((position.take_again(), position.rounds), (vec![1, 2, 4], 1));
        position.put_again(&[], &[]);
        assert!(position.again.is_empty());
    }
}
