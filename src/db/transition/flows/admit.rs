//! Decides about jobs that wait for jobs and batches, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::blocked;
use crate::db::table::flows::edges::{self, EdgeState, Edges};
use crate::db::table::flows::{members, parents};
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::transition::flows::end_waiting::end_waiting;
use crate::db::transition::{clear, place};
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The class of the job that stands for a batch in the batch around it. No worker performs it.
pub(crate) const NESTED: &str = "windlass_batch";

/// The kind of failure of a job that is not wanted, after what it waited for has ended.
pub(crate) const NOT_WANTED: &str = "parents";

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct AdmittedJobs {
    /// How many jobs wait no longer.
    pub(crate) entered: usize,
    /// Those of them that are not wanted any more.
    pub(crate) discarded: Vec<EndedJob>,
    /// How many were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
}

/// Lets those of the requested jobs run whose parents have the outcomes that they wait for, and ends those that are not
/// wanted any more.
pub(crate) fn admit(conn: &mut Conn<'_>, requested: &BTreeSet<i64>) -> QueryResult<AdmittedJobs> {
    let named: Vec<i64> = requested.iter().copied().collect();
    if named.is_empty() {
        return Ok(AdmittedJobs::default());
    }
    let mut locked = edges::lock_free(conn, &named)?;
    let followers = Followers::of(edges::of(conn, &locked)?);
    let open = followers.having(EdgeState::Open, false);
    let nested = followers.having(EdgeState::Open, true);
    // Where a row of a job is locked, the others do not wait for it.
    let unwanted = [EdgeState::Dropped, EdgeState::Discarded];
    let [dropped, discarded] = unwanted.map(|state| followers.having(state, false));
    let free = jobs::lock_free(conn, &[&dropped[..], &discarded].concat())?;
    let is_busy = |job: &i64| !free.contains(job);
    locked.retain(|job| !(is_busy(job) && (dropped.contains(job) || discarded.contains(job))));
    let [dropped, discarded] = [dropped, discarded].map(|mut jobs| {
        jobs.retain(|job| !is_busy(job));
        jobs
    });
    let all: Vec<i64> = [&open[..], &nested, &dropped, &discarded].concat();
    if !all.is_empty() {
        blocked::delete(conn, &all)?;
    }
    if !open.is_empty() {
        place::place(conn, &open)?;
        parents::forget_steps(conn, &followers.may_undo(&open))?;
    }
    if !dropped.is_empty() {
        parents::note_dropped(conn, &dropped)?;
    }
    clear::delete::delete(conn, &dropped)?;
    end_nested(conn, &nested, &followers)?;
    Ok(AdmittedJobs {
        entered: all.len(),
        discarded: discard(conn, &discarded, &followers)?,
        left_over: request_again(conn, &named, &locked)?,
    })
}

/// The edges of jobs that wait, by the job.
struct Followers(BTreeMap<i64, Vec<Edges>>);

impl Followers {
    fn of(edges: Vec<Edges>) -> Self {
        let mut jobs: BTreeMap<i64, Vec<Edges>> = BTreeMap::new();
        for edges in edges {
            jobs.entry(edges.child_job_id).or_default().push(edges);
        }
        for edges in jobs.values_mut() {
            if edges.iter().any(Edges::is_join) {
                edges.retain(Edges::is_join);
            }
        }
        Followers(jobs)
    }

    /// Returns the jobs of which all edges, together, say this.
    fn having(&self, wanted: EdgeState, is_nested: bool) -> Vec<i64> {
        let chosen = self.0.iter().filter(|(_, edges)| {
            edges.iter().map(Edges::state).max() == Some(wanted)
                && edges.iter().any(Edges::is_nested) == is_nested
        });
        chosen.map(|(job, _)| *job).collect()
    }

    /// Returns those of the jobs that may undo steps.
    fn may_undo(&self, jobs: &[i64]) -> Vec<i64> {
        let may = |job: &i64| {
            self.0
                .get(job)
                .is_some_and(|all| all.iter().any(Edges::may_undo))
        };
        jobs.iter().copied().filter(may).collect()
    }

    fn have_succeeded(&self, job: i64) -> bool {
        let edges = self.0.get(&job);
        edges.is_some_and(|edges| edges.iter().all(Edges::have_succeeded))
    }

    /// Returns why a job is not wanted.
    fn reason(&self, job: i64) -> String {
        let edges = self.0.get(&job).map_or(&[][..], Vec::as_slice);
        if let Some(failed) = edges.iter().find_map(|edges| edges.failed_job_id) {
            return format!("job {failed}, for which it waited, has not succeeded");
        }
        match edges.iter().all(Edges::have_succeeded) {
            true => {
                "everything for which it waited has succeeded, and it runs after a failure only"
            }
            false => "the batch for which it waited has failed",
        }
        .to_owned()
    }
}

/// Discards jobs whose executions were deleted. What waits for them in turn gets to know it by the next promotion.
fn discard(conn: &mut Conn<'_>, jobs: &[i64], followers: &Followers) -> QueryResult<Vec<EndedJob>> {
    let mut by_reason: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for job in jobs {
        by_reason
            .entry(followers.reason(*job))
            .or_default()
            .push(*job);
    }
    let mut discarded = Vec::new();
    for (reason, jobs) in by_reason {
        let failure = JobFailure::new(NOT_WANTED, reason);
        let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
        let ended = end_waiting(conn, &jobs, attempt, result, &failure)?;
        discarded.extend(ended);
    }
    Ok(discarded)
}

/// Ends jobs that stand for batches which are over.
fn end_nested(conn: &mut Conn<'_>, nested: &[i64], followers: &Followers) -> QueryResult<()> {
    if nested.is_empty() {
        return Ok(());
    }
    let failed = nested
        .iter()
        .copied()
        .filter(|job| !followers.have_succeeded(*job));
    members::fail(conn, &failed.collect::<Vec<_>>())?;
    members::finish_unrun(conn, nested)?;
    members::leave(conn, nested)
}

/// Requests another promotion of jobs that wait and were skipped as locked, and returns how many these are.
fn request_again(conn: &mut Conn<'_>, named: &[i64], locked: &[i64]) -> QueryResult<usize> {
    let skipped: Vec<i64> = named
        .iter()
        .copied()
        .filter(|job| !locked.contains(job))
        .collect();
    if skipped.is_empty() {
        return Ok(0);
    }
    let waiting = edges::waiting(conn, &skipped)?;
    let count = waiting.len();
    wanted_keys::request_later(conn, waiting.into_iter().map(NewRequest::Child))?;
    Ok(count)
}
