//! Walks over selected jobs, a chunk at a time.

use crate::admin::jobs::Jobs;
use crate::db::Conn;
use crate::db::conn::dialect::IdRange;
use crate::db::model::decision::JobState;
use crate::db::query::batches::walk::{self as batch_walk, BatchWalk, Members};
use crate::db::query::filter::Filter;
use crate::db::query::jobs;
use diesel::QueryResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of jobs in one transaction.
pub(crate) const CHUNK: usize = 500;

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

/// A walk over jobs: which ones.
#[derive(Debug, Clone)]
pub(crate) struct JobWalk {
    jobs: Jobs,
    bounds: Vec<WalkBound>,
}

/// The progress of a walk.
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
    batches: Option<BatchWalk>,
    /// The number of jobs that may still be passed, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

impl JobWalk {
    /// Creates a walk over those of the jobs whose executions are within the bounds.
    pub(crate) fn within(mut jobs: Jobs, bounds: Vec<WalkBound>) -> Self {
        jobs.filter.newest = bounds.first().and_then(|bound| bound.newest);
        JobWalk { jobs, bounds }
    }

    /// Returns walks over the jobs that there are now, each with few ids, which are sent with every step. With `follows`,
    /// they also find jobs that move to the next state meanwhile.
    pub(crate) fn all(conn: &mut Conn<'_>, jobs: &Jobs, follows: bool) -> QueryResult<Vec<Self>> {
        let mut newest = None;
        if follows {
            newest = Some(jobs::last(conn, JobState::Finished)?);
        }
        // The end of each walk is fixed before any job is moved.
        let mut bounds = Vec::new();
        for state in jobs.walked_states() {
            let up_to = match follows || jobs.whole().is_some() {
                true => 0,
                false => jobs::last(conn, state)?,
            };
            bounds.push(WalkBound {
                state,
                after: 0,
                up_to,
                newest,
            });
        }
        let walk = |part| JobWalk::within(part, bounds.clone());
        Ok(parts(jobs).into_iter().map(walk).collect())
    }

    pub(crate) fn is_done(&self, position: &WalkPosition) -> bool {
        position.walks >= self.bounds.len() || position.left == Some(0)
    }

    /// Returns the next jobs, and their state. There may be none of them although the walk is not done. `None` if it is.
    pub(crate) fn next(
        &self,
        conn: &mut Conn<'_>,
        position: &mut WalkPosition,
    ) -> QueryResult<Option<(JobState, Vec<i64>)>> {
        let bound = self.bounds.get(position.walks);
        let Some(bound) = bound.filter(|_| !self.is_done(position)) else {
            return Ok(None);
        };
        let left = position.left.and_then(|left| usize::try_from(left).ok());
        let limit = CHUNK.min(left.unwrap_or(CHUNK));
        let jobs = match self.jobs.whole() {
            Some(whole) => self.next_members(conn, position, whole, limit)?,
            None => self.next_of_state(conn, position, bound, limit)?,
        };
        position.left = position.left.map(|left| left - jobs.len() as u64);
        Ok(Some((bound.state, jobs)))
    }

    fn next_of_state(
        &self,
        conn: &mut Conn<'_>,
        position: &mut WalkPosition,
        bound: &WalkBound,
        limit: usize,
    ) -> QueryResult<Vec<i64>> {
        let up_to = match (bound.newest, position.up_to) {
            (None, _) => bound.up_to,
            (Some(_), Some(up_to)) => up_to,
            (Some(_), None) => jobs::last(conn, bound.state)?,
        };
        let range = IdRange {
            after: position.after.unwrap_or(bound.after),
            up_to,
        };
        let page = jobs::next(conn, bound.state, &self.jobs.filter, range, limit)?;
        position.after = page.reached;
        position.up_to = page.reached.and(bound.newest).map(|_| up_to);
        position.walks += usize::from(page.reached.is_none());
        Ok(page.jobs)
    }

    /// Returns the next jobs of a batch and of the batches in it.
    fn next_members(
        &self,
        conn: &mut Conn<'_>,
        position: &mut WalkPosition,
        (batch, which): (i64, Members),
        limit: usize,
    ) -> QueryResult<Vec<i64>> {
        let walk = position
            .batches
            .get_or_insert_with(|| BatchWalk::of(batch, which));
        let jobs = walk.next(conn, which, limit)?;
        if walk.is_done() {
            position.walks = self.bounds.len();
        }
        position.after = position.after.max(jobs.last().copied());
        Ok(jobs)
    }
}

impl Jobs {
    /// Returns the batch that is selected with the batches in it, and which of its jobs.
    fn whole(&self) -> Option<(i64, Members)> {
        self.filter.whole_batch.zip(self.members())
    }

    /// Returns the states over which a walk goes. Members of a batch are walked over once.
    fn walked_states(&self) -> Vec<JobState> {
        match self.whole() {
            Some((_, which)) => vec![which.state()],
            None => self.states.clone(),
        }
    }

    /// Returns the executions that there are now, as a preview fixes them.
    pub(crate) fn walk_bounds(&self, conn: &mut Conn<'_>) -> QueryResult<Vec<WalkBound>> {
        if let Some((batch, which)) = self.whole() {
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
        for state in &self.states {
            bounds.push(WalkBound {
                state: *state,
                after: jobs::first(conn, *state)?.saturating_sub(1),
                up_to: jobs::last(conn, *state)?,
                newest: Some(newest),
            });
        }
        Ok(bounds)
    }
}

/// Splits a selection by many ids into parts with few of them. If only a few jobs are wanted, there is one part.
fn parts(jobs: &Jobs) -> Vec<Jobs> {
    match &jobs.filter.ids {
        Some(ids) if jobs.limit.is_none() && ids.len() > CHUNK => {
            let rest = Jobs {
                filter: Filter {
                    ids: None,
                    ..jobs.filter.clone()
                },
                ..jobs.clone()
            };
            let ids: Vec<i64> = BTreeSet::from_iter(ids.iter().copied())
                .into_iter()
                .collect();
            let part = |ids: &[i64]| {
                let mut part = rest.clone();
                part.filter.ids = Some(ids.to_vec());
                part
            };
            ids.chunks(CHUNK).map(part).collect()
        }
        _ => vec![jobs.clone()],
    }
}

impl WalkPosition {
    /// Returns the start of a walk that passes at most `limit` jobs.
    pub(crate) fn start(limit: Option<u64>) -> Self {
        WalkPosition {
            left: limit,
            ..WalkPosition::default()
        }
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
}
