//! One batch of an operation, from what is stored of it.

use crate::admin::bulk::BATCH;
use crate::admin::jobs::Jobs;
use crate::db::Conn;
use crate::db::conn::dialect::IdRange;
use crate::db::query::batches::walk::{BatchWalk, Members};
use crate::db::query::jobs;
use crate::db::table::operators::operations::{OperationAdvance, OperationRow};
use crate::db::transition::operators::AppliedBatch;
use crate::operation::start::OperationCounts;
use crate::operation::walk::{self, BatchMode, BatchResult, OperationTask, WalkBound, WalkPlace};
use diesel::QueryResult;

/// How many times a job is tried again that moved or was locked.
const MOST_ROUNDS: u32 = 20;

/// What is stored of an operation.
struct StoredOperation {
    task: OperationTask,
    jobs: Jobs,
    bounds: Vec<WalkBound>,
    place: WalkPlace,
    counts: OperationCounts,
}

impl StoredOperation {
    /// Returns `None` if another version has stored what this one does not know.
    fn read(row: &OperationRow) -> Option<Self> {
        Some(StoredOperation {
            task: serde_json::from_str(&row.parameters).ok()?,
            jobs: serde_json::from_str(&row.filter).ok()?,
            bounds: serde_json::from_str(&row.bounds).ok()?,
            place: serde_json::from_str(&row.place).ok()?,
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
    let (met, mut result) = if stored.place.again.is_empty() {
        stored.next_jobs(conn, mode)?
    } else {
        stored.jobs_again(conn, mode)?
    };
    let counted = stored.count(&met, &mut result);
    let effect = stored.task.change.effect(&result.done);
    Ok(Some(AppliedBatch {
        advance: OperationAdvance {
            place: serde_json::to_string(&stored.place).unwrap_or_default(),
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
        let has_walked = self.place.walks >= self.bounds.len() || self.place.left == Some(0);
        has_walked && self.place.again.is_empty()
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
        let place = &mut self.place;
        let nothing = (Vec::new(), BatchResult::default());
        let Some(bound) = self
            .bounds
            .get(place.walks)
            .filter(|_| place.left != Some(0))
        else {
            return Ok(nothing);
        };
        let most = place.left.and_then(|left| usize::try_from(left).ok());
        let up_to = match (bound.newest, place.up_to) {
            (None, _) => bound.up_to,
            (Some(_), Some(up_to)) => up_to,
            (Some(_), None) => jobs::last(conn, bound.state)?,
        };
        let range = IdRange {
            after: place.after.unwrap_or(bound.after),
            up_to,
        };
        let limit = BATCH.min(most.unwrap_or(BATCH));
        self.jobs.filter.newest = bound.newest;
        let page = jobs::next(conn, bound.state, &self.jobs.filter, range, limit)?;
        place.after = page.reached;
        place.up_to = page.reached.and(bound.newest).map(|_| up_to);
        place.walks += usize::from(page.reached.is_none());
        place.left = place.left.map(|left| left - page.jobs.len() as u64);
        (place.rounds, place.again_in) = (0, Some(bound.state));
        let batch = (bound.state, &page.jobs[..]);
        let result = walk::apply(conn, &self.task, place, batch, mode)?;
        Ok((page.jobs, result))
    }

    /// Changes the next jobs of a batch and of the batches in it. Returns them, and what became of them.
    fn next_members(
        &mut self,
        conn: &mut Conn<'_>,
        (batch, which): (i64, Members),
        mode: BatchMode,
    ) -> QueryResult<(Vec<i64>, BatchResult)> {
        let place = &mut self.place;
        let state = self.bounds.first().map(|bound| bound.state);
        let Some(state) = state.filter(|_| place.left != Some(0)) else {
            return Ok((Vec::new(), BatchResult::default()));
        };
        let walk = place
            .batches
            .get_or_insert_with(|| BatchWalk::of(batch, which));
        let most = place.left.and_then(|left| usize::try_from(left).ok());
        let jobs = walk.next(conn, which, BATCH.min(most.unwrap_or(BATCH)))?;
        if walk.is_done() {
            place.walks = self.bounds.len();
        }
        place.after = place.after.max(jobs.last().copied());
        place.left = place.left.map(|left| left - jobs.len() as u64);
        (place.rounds, place.again_in) = (0, Some(state));
        let result = walk::apply(conn, &self.task, place, (state, &jobs), mode)?;
        Ok((jobs, result))
    }

    /// Changes the jobs that are tried again.
    fn jobs_again(
        &mut self,
        conn: &mut Conn<'_>,
        mode: BatchMode,
    ) -> QueryResult<(Vec<i64>, BatchResult)> {
        let jobs = self.place.take_again();
        let Some(state) = self.place.again_in else {
            return Ok((jobs, BatchResult::default()));
        };
        let batch = (state, &jobs[..]);
        let result = walk::apply(conn, &self.task, &mut self.place, batch, mode)?;
        Ok((jobs, result))
    }

    /// Adds what became of the jobs of a batch to the counts, and notes those that are tried again.
    /// Returns how many jobs are counted.
    fn count(&mut self, met: &[i64], result: &mut BatchResult) -> u64 {
        self.counts.done.add(result.done);
        self.counts.refused += result.refused;
        let untried = result.untried.len();
        if self.place.rounds < MOST_ROUNDS {
            let tried = [&result.locked[..], &result.moved[..]].concat();
            self.place.put_again(&result.untried, &tried);
            return (met.len() - untried - tried.len()) as u64;
        }
        self.place.put_again(&result.untried, &[]);
        self.counts.done.passed_over += result.moved.len() as u64;
        self.counts.refused += result.locked.len() as u64;
        if let Some(job) = result.locked.first() {
            result.error = Some(format!("job {job}: another transaction holds it locked"));
        }
        (met.len() - untried) as u64
    }
}
