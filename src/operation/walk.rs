//! The jobs that an operation changes, and its progress.

use crate::admin::bulk::change::Change;
use crate::admin::groups::RetryRate;
use crate::admin::jobs::{Changed, Jobs};
use crate::db::model::decision::JobState;
use crate::db::query::batches::walk::{self as batch_walk, BatchWalk};
use crate::db::query::jobs;
use crate::db::table::recurring_tasks;
use crate::db::transition::operate;
use crate::db::{Conn, LockWait, Refusal, with_lock_wait};
use chrono::NaiveDateTime;
use diesel::QueryResult;
use serde::{Deserialize, Serialize};

/// The task of an operation, as it is stored. A program that does not know one of its values leaves the
/// operation to others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationTask {
    pub(crate) change: Change,
    /// The rate at which retried jobs become due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<RetryRate>,
}

/// The executions of one state that are walked over. Jobs that move to the state later have higher
/// ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WalkBound {
    pub(crate) state: JobState,
    /// The id before the first one.
    pub(crate) after: i64,
    pub(crate) up_to: i64,
    /// The newest job, if jobs are followed from state to state: the executions up to the last at the
    /// start of the walk over this state are walked over instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) newest: Option<i64>,
}

/// Returns the executions that there are now.
pub(crate) fn bounds(conn: &mut Conn<'_>, jobs: &Jobs) -> QueryResult<Vec<WalkBound>> {
    if let (Some(batch), Some(which)) = (jobs.filter.whole_batch, jobs.members()) {
        let first = BatchWalk::of(batch, which).next(conn, which, 1)?;
        return Ok(vec![WalkBound {
            state: which.state(),
            after: first.first().map_or(0, |first| first - 1),
            up_to: batch_walk::last(conn, which, batch)?,
            newest: None,
        }]);
    }
    let newest = jobs::last(conn, JobState::Finished)?;
    let mut bounds = Vec::new();
    for state in &jobs.states {
        bounds.push(WalkBound {
            state: *state,
            after: jobs::first(conn, *state)?.saturating_sub(1),
            up_to: jobs::last(conn, *state)?,
            newest: Some(newest),
        });
    }
    Ok(bounds)
}

/// The progress of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WalkPosition {
    /// The number of states that are done.
    pub(crate) walks: usize,
    /// The execution up to which the jobs of the next state are done. `None` before the first one.
    pub(crate) after: Option<i64>,
    /// The last execution of the state, where it is not that of the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) up_to: Option<i64>,
    /// The rest of a batch and of the batches in it, if their jobs are changed. `after` only shows the progress then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batches: Option<BatchWalk>,
    /// The number of jobs that may still be changed, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<u64>,
    /// Jobs of the last batch that are tried again: they moved, or were locked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) again: Vec<i64>,
    /// The number of those that were not tried in this round; they come first.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) untried: usize,
    /// The state that they were in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) again_in: Option<JobState>,
    /// The number of times that all of them were tried.
    pub(crate) rounds: u32,
    /// The number of jobs with a due time, and the time of the first, if they become due one after the other.
    pub(crate) due: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<NaiveDateTime>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl WalkPosition {
    /// Takes the jobs out that are tried next: those that were not tried in this round, or else all of
    /// them, in a new round.
    pub(crate) fn take_again(&mut self) -> Vec<i64> {
        if self.untried == 0 {
            self.rounds += 1;
            self.untried = self.again.len();
        }
        let rest = self.again.split_off(self.untried.min(self.again.len()));
        self.untried = 0;
        std::mem::replace(&mut self.again, rest)
    }

    /// Notes jobs to try: those that were not tried in this round, and those that were.
    pub(crate) fn put_again(&mut self, untried: &[i64], tried: &[i64]) {
        self.again = [untried, &self.again[..], tried].concat();
        self.untried = untried.len();
    }

    /// Returns how much of the walk is done, from 0 to 1, by the ids of the executions.
    pub(crate) fn fraction(&self, bounds: &[WalkBound]) -> f64 {
        let length = |bound: &WalkBound| bound.up_to.saturating_sub(bound.after).max(0) as f64;
        let all: f64 = bounds.iter().map(length).sum();
        let done: f64 = bounds.iter().take(self.walks).map(length).sum();
        let here = bounds.get(self.walks).map_or(0.0, |bound| {
            let after = self.after.unwrap_or(bound.after).max(bound.after);
            ((after - bound.after) as f64).min(length(bound))
        });
        match all > 0.0 {
            true => ((done + here) / all).clamp(0.0, 1.0),
            false => 1.0,
        }
    }
}

// --- Changes the jobs of one batch, without those that the database refuses to change ---

/// The most locked jobs for which one batch waits: each costs 100 ms.
const MOST_LOCKED: usize = 5;

/// The way in which the jobs of a batch are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchMode {
    /// All at once: the batch fails if the database refuses one of its jobs.
    Whole,
    /// In halves after a refusal of the database, down to the single jobs that it refuses.
    Split,
}

/// The outcomes of the jobs of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(crate) done: Changed,
    /// The number of jobs that the database refused to change, and the reason for the last of them.
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
    position: &mut WalkPosition,
    (state, jobs): (JobState, &[i64]),
    mode: BatchMode,
) -> QueryResult<BatchResult> {
    if task.rate.is_some() && position.start.is_none() {
        position.start = Some(recurring_tasks::now(conn)?);
    }
    let mut result = BatchResult::default();
    let mut parts = vec![jobs];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        if result.locked.len() >= MOST_LOCKED {
            result.untried.extend(part);
            continue;
        }
        let changed = with_lock_wait(conn, LockWait::Short, |conn| {
            change(conn, task, position, state, part)
        });
        match changed {
            Ok((done, moved)) => {
                position.due += done.changed;
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
    position: &WalkPosition,
    state: JobState,
    jobs: &[i64],
) -> QueryResult<(Changed, Vec<i64>)> {
    let done = match (&task.change, task.rate, position.start) {
        (Change::Cancel, ..) => return cancel(conn, jobs),
        (Change::Retry { even_at_most_once }, Some(rate), Some(start)) => {
            rate.retry(conn, jobs, *even_at_most_once, start, position.due)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_known_from_the_place() {
        let bound = |after, up_to| WalkBound {
            state: JobState::Ready,
            after,
            up_to,
            newest: None,
        };
        let bounds = [bound(100, 200), bound(0, 0), bound(50, 350)];
        let at = |walks, after| WalkPosition {
            walks,
            after,
            ..WalkPosition::default()
        };
        for (position, fraction) in [
            (at(0, None), 0.0),
            (at(0, Some(150)), 0.125),
            (at(2, None), 0.25),
            (at(2, Some(350)), 1.0),
            (at(3, None), 1.0),
            // Jobs were followed beyond the bound.
            (at(0, Some(1_000)), 0.25),
        ] {
            assert_eq!(position.fraction(&bounds), fraction, "{position:?}");
        }
        assert_eq!(at(0, None).fraction(&[]), 1.0);
    }

    #[test]
    fn no_job_is_tried_twice_in_a_round() {
        let mut position = WalkPosition::default();
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

    #[test]
    fn a_task_of_a_newer_version_is_not_read() {
        let task = OperationTask {
            change: Change::Queue("slow".into()),
            rate: None,
        };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(text, r#"{"change":{"queue":"slow"}}"#);
        assert_eq!(serde_json::from_str::<OperationTask>(&text).unwrap(), task);
        for newer in [
            r#"{"change":{"explode":1}}"#,
            r#"{"change":"discard","slowly":true}"#,
        ] {
            assert!(serde_json::from_str::<OperationTask>(newer).is_err());
        }
    }
}
