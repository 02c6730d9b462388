//! Changes the jobs of one batch, without those that the database refuses to change.

use crate::admin::bulk::change::Change;
use crate::admin::changed::Changed;
use crate::db::model::state::JobState;
use crate::db::table::recurring_tasks;
use crate::db::transition::operate;
use crate::db::{Conn, LockWait, Refusal, with_lock_wait};
use crate::operation::walk::{OperationTask, WalkPlace};
use diesel::QueryResult;

/// How many jobs that another transaction has locked are waited for in one batch: each costs 100 ms.
const MOST_LOCKED: usize = 5;

/// How the jobs of a batch are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchMode {
    /// All at once: the batch fails if the database refuses one of its jobs.
    Whole,
    /// When the database refuses, each half is tried, down to the single jobs that it refuses.
    Split,
}

/// What became of the jobs of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(crate) done: Changed,
    /// How many jobs the database refused to change, and why the last of them.
    pub(crate) refused: u64,
    pub(crate) error: Option<String>,
    /// Jobs to try again: other transactions have locked them.
    pub(crate) locked: Vec<i64>,
    /// The same, but they moved while they were searched for.
    pub(crate) moved: Vec<i64>,
    /// Jobs that were not tried, because too many others were locked.
    pub(crate) untried: Vec<i64>,
}

/// Changes the jobs of a batch, which are in this state.
pub(crate) fn apply(
    conn: &mut Conn<'_>,
    task: &OperationTask,
    place: &mut WalkPlace,
    (state, jobs): (JobState, &[i64]),
    mode: BatchMode,
) -> QueryResult<BatchResult> {
    if task.rate.is_some() && place.start.is_none() {
        place.start = Some(recurring_tasks::now(conn)?);
    }
    let mut result = BatchResult::default();
    let mut parts = vec![jobs];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        if result.locked.len() >= MOST_LOCKED {
            result.untried.extend(part);
            continue;
        }
        let changed = with_lock_wait(conn, LockWait::Short, |conn| {
            change(conn, task, place, state, part)
        });
        match changed {
            Ok((done, moved)) => {
                place.due += done.changed;
                result.done.add(done);
                result.moved.extend(moved);
            }
            Err(error) if mode == BatchMode::Whole || Refusal::of(&error) == Refusal::Trouble => {
                return Err(error);
            }
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

/// Changes jobs, and returns those that are tried again.
fn change(
    conn: &mut Conn<'_>,
    task: &OperationTask,
    place: &WalkPlace,
    state: JobState,
    jobs: &[i64],
) -> QueryResult<(Changed, Vec<i64>)> {
    let done = match (&task.change, task.rate, place.start) {
        (Change::Cancel, ..) => return cancel(conn, jobs),
        (Change::Retry { even_at_most_once }, Some(rate), Some(start)) => {
            rate.retry(conn, jobs, *even_at_most_once, start, place.due)
        }
        (change, ..) => change.apply(conn, state, jobs),
    };
    Ok((done?, Vec::new()))
}

/// Cancels jobs, and returns those that moved during the search.
fn cancel(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<(Changed, Vec<i64>)> {
    let cancelled = operate::cancel(conn, jobs)?;
    let mut done = Changed {
        changed: cancelled.ended.len() as u64,
        running: cancelled.asked.len() as u64,
        in_ruby: cancelled.in_ruby.len() as u64,
        ..Changed::default()
    };
    let settled = [cancelled.ended, cancelled.asked, cancelled.in_ruby].concat();
    let rest = jobs.iter().copied().filter(|job| !settled.contains(job));
    let rest: Vec<i64> = rest.collect();
    if rest.is_empty() {
        return Ok((done, rest));
    }
    let moved = operate::open(conn, &rest)?;
    done.passed_over = (rest.len() - moved.len()) as u64;
    Ok((done, moved))
}
