//! Walks over selected jobs batch by batch.

use crate::admin::bulk::change::Change;
use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::db::Conn;
use crate::db::conn::dialect::IdRange;
use crate::db::model::audit::AuditAction;
use crate::db::model::state::JobState;
use crate::db::query::filter::Filter;
use crate::db::query::jobs;
use crate::db::transition::operators::AuditTrail;
use crate::error::{Doing, Result};
use std::ops::ControlFlow;

/// The number of jobs in one transaction.
pub(crate) const BATCH: usize = 500;

/// The states through which jobs move until they run, in this order.
const MOVES: [JobState; 4] = [
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Ready,
    JobState::Claimed,
];

impl Jobs {
    /// Returns the selection in the order in which its jobs are followed from state to state, if a
    /// change can do that. `None` if not.
    ///
    /// A cancel of all jobs that wait or run can: no job comes to these states from another one, unless
    /// it is new or an operator retries it. Other changes leave out states from which jobs come that
    /// were not selected.
    pub(crate) fn followed(&self, change: &Change) -> Option<Self> {
        let has_all = MOVES.iter().all(|state| self.states.contains(state));
        if *change != Change::Cancel || !has_all || self.filter.whole_batch.is_some() {
            return None;
        }
        let mut jobs = self.clone();
        jobs.states.retain(|state| !MOVES.contains(state));
        jobs.states.splice(0..0, MOVES);
        Some(jobs)
    }

    /// Splits the selection into parts with few ids each, which are sent with every step. If only a
    /// few jobs are wanted, there is one part.
    fn parts(&self) -> impl Iterator<Item = Filter> {
        let parts = match &self.filter.ids {
            Some(ids) if self.limit.is_none() && ids.len() > BATCH => {
                let ids: std::collections::BTreeSet<i64> = ids.iter().copied().collect();
                let ids: Vec<i64> = ids.into_iter().collect();
                let part = |ids: &[i64]| Filter {
                    ids: Some(ids.to_vec()),
                    ..self.filter.clone()
                };
                ids.chunks(BATCH).map(part).collect()
            }
            _ => vec![self.filter.clone()],
        };
        parts.into_iter()
    }

    /// Returns how many jobs are changed at most.
    #[cfg(feature = "cli")]
    pub(crate) fn most(&self) -> Option<u64> {
        self.limit
    }

    /// Restricts the selection to failed jobs.
    pub(crate) fn failed_only(&self) -> Self {
        let mut jobs = self.clone();
        jobs.states.retain(|state| *state == JobState::Failed);
        jobs
    }

    /// Returns the trail of a change of these jobs in the audit.
    pub(crate) fn trail(&self, action: AuditAction) -> AuditTrail<'_> {
        let trail = AuditTrail::new(&self.actor, action);
        match self.filter.ids.as_deref() {
            Some(&[one]) => trail.target(one.to_string()),
            _ => trail.filter(serde_json::to_string(self).unwrap_or_default()),
        }
    }

    /// Names the jobs of a batch in its row, if the jobs were selected by their ids.
    pub(crate) fn name_batch(&self, trail: &mut AuditTrail<'_>, jobs: &[i64]) {
        if self.filter.ids.as_ref().is_some_and(|ids| ids.len() > 1) {
            let batch = self
                .clone()
                .ids(jobs.iter().map(|id| crate::job::id::JobId(*id)));
            trail.filter_of_each(serde_json::to_string(&batch).unwrap_or_default());
        }
    }

    /// Changes the jobs in batches, until `progress` breaks.
    pub(crate) fn each_batch(
        &self,
        conn: &mut Conn<'_>,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
        change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        if let Some(whole) = self.whole_batch(conn)? {
            return self.each_member(conn, whole, progress, change);
        }
        // The end of each walk is fixed before any job is moved.
        let mut walks = Vec::new();
        for state in &self.states {
            let last = jobs::last(conn, *state).doing("read the jobs")?;
            walks.extend(self.parts().map(|part| (*state, Some(last), part)));
        }
        self.walk(conn, walks, progress, change)
    }

    /// Does the same, but also finds jobs that have moved to the next state meanwhile.
    pub(crate) fn follow_in_batches(
        &self,
        conn: &mut Conn<'_>,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
        change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        let newest = jobs::last(conn, JobState::Finished).doing("read the jobs")?;
        let mut walks = Vec::new();
        for state in &self.states {
            walks.extend(self.parts().map(|mut part| {
                part.newest = Some(newest);
                (*state, None, part)
            }));
        }
        self.walk(conn, walks, progress, change)
    }

    /// Walks over parts of states, each up to its last execution, or up to the last at the start of its
    /// walk.
    fn walk(
        &self,
        conn: &mut Conn<'_>,
        walks: Vec<(JobState, Option<i64>, Filter)>,
        mut progress: impl FnMut(&Changed) -> ControlFlow<()>,
        mut change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        let mut done = Changed::default();
        let mut left = self.limit.unwrap_or(u64::MAX);
        for (state, last, part) in walks {
            let mut after = Some(0);
            let last = match last {
                Some(last) => last,
                None => jobs::last(conn, state).doing("read the jobs")?,
            };
            while let Some(start) = after.filter(|_| left > 0) {
                let limit = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
                let range = IdRange {
                    after: start,
                    up_to: last,
                };
                let met = jobs::next(conn, state, &part, range, limit).doing("read the jobs")?;
                after = met.reached;
                if met.jobs.is_empty() {
                    continue;
                }
                left -= met.jobs.len() as u64;
                done.add(change(conn, state, &met.jobs)?);
                if progress(&done).is_break() {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }
}
