//! Looks which jobs have ended that others wait for, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::edges::{self, FAILED, Resolved, SUCCEEDED};
use crate::db::table::flows::parents;
use crate::db::table::jobs;
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::mutant;
use diesel::prelude::*;
use std::collections::BTreeSet;

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct EndedParents {
    /// How many jobs waited for them.
    pub(crate) followed: usize,
    /// How many were requested again.
    pub(crate) left_over: usize,
}

/// Stores the outcomes of those of the requested jobs that have ended, and requests a promotion of the jobs that waited
/// for them.
///
/// For those that were retried, the rest of the failures is forgotten first. It locks the rows of the jobs: so none is
/// retried, and ends again, between the look and the commit.
pub(crate) fn resolve(
    conn: &mut Conn<'_>,
    requested: &BTreeSet<i64>,
    retried: &BTreeSet<i64>,
) -> QueryResult<EndedParents> {
    if requested.is_empty() {
        return Ok(EndedParents::default());
    }
    let all: Vec<i64> = requested.iter().copied().collect();
    let locked = jobs::lock_free(conn, &all)?;
    let busy = all.iter().filter(|job| !locked.contains(job));
    let mut again: BTreeSet<i64> = busy.copied().collect();
    let mut outcomes = Outcomes::of(conn, &locked)?;
    let unsettled = outcomes.settle(conn, retried)?;
    let busy = retried.iter().filter(|job| again.contains(job));
    let unsettled: BTreeSet<i64> = busy.copied().chain(unsettled).collect();
    let mut children = BTreeSet::new();
    for (which, outcome, parents) in outcomes.each() {
        if outcome == FAILED && mutant::is("failure_not_noted") {
            continue;
        }
        let followers = edges::resolve(conn, which, parents, outcome)?;
        children.extend(followers.jobs);
        if followers.has_more {
            again.extend(parents);
        }
    }
    let lost = outcomes.without_retry();
    let followers = edges::give_up(conn, Resolved::Jobs, &lost)?;
    children.extend(followers.jobs);
    if followers.has_more {
        again.extend(lost);
    }
    let ended = EndedParents {
        followed: children.len(),
        left_over: again.len() + unsettled.len(),
    };
    let again = again.into_iter().map(NewRequest::Ended);
    let unsettled = unsettled.into_iter().map(NewRequest::Retried);
    let children = children.into_iter().map(NewRequest::Child);
    wanted_keys::request_later(conn, again.chain(unsettled).chain(children))?;
    Ok(ended)
}

/// How jobs have ended.
#[derive(Debug, Default)]
struct Outcomes {
    succeeded: Vec<i64>,
    failed: Vec<i64>,
    /// Those of them that no retry can bring back: they were cancelled or discarded.
    over: Vec<i64>,
    /// Those that do not exist any more.
    deleted_succeeded: Vec<i64>,
    deleted_failed: Vec<i64>,
    /// Those that have not ended.
    open: Vec<i64>,
    /// Those of which an earlier failure is not forgotten everywhere yet, so that an edge does not say how they ended.
    unsettled: BTreeSet<i64>,
}

impl Outcomes {
    /// Reads them, of locked jobs. A statement of its own: it sees what was committed before the locks were granted.
    fn of(conn: &mut Conn<'_>, locked: &[i64]) -> QueryResult<Outcomes> {
        let states = parents::states(conn, locked)?;
        let mut outcomes = Outcomes::default();
        for state in &states {
            match (state.has_failed, state.has_finished) {
                (true, has_finished) => {
                    outcomes.failed.push(state.id);
                    outcomes.over.extend(has_finished.then_some(state.id));
                }
                (false, true) => outcomes.succeeded.push(state.id),
                (false, false) => outcomes.open.push(state.id),
            }
        }
        let exists: BTreeSet<i64> = states.iter().map(|state| state.id).collect();
        let deleted = locked.iter().filter(|job| !exists.contains(job));
        let deleted: Vec<i64> = deleted.copied().collect();
        if deleted.is_empty() {
            return Ok(outcomes);
        }
        let stored = parents::stored(conn, &deleted)?;
        // Without a result, it has finished where finished jobs are not kept.
        let has_failed = |job: &i64| {
            let stored = stored.iter().find(|stored| stored.job_id == *job);
            stored.is_some_and(|stored| !stored.has_succeeded)
        };
        (outcomes.deleted_failed, outcomes.deleted_succeeded) =
            deleted.into_iter().partition(has_failed);
        Ok(outcomes)
    }

    /// Forgets failures of those that were retried, and have not failed again. Returns those of which more are left.
    fn settle(&mut self, conn: &mut Conn<'_>, retried: &BTreeSet<i64>) -> QueryResult<Vec<i64>> {
        let jobs = self.open.iter().chain(&self.deleted_succeeded);
        let jobs: Vec<i64> = jobs.copied().filter(|job| retried.contains(job)).collect();
        let unsettled = match edges::forget_free_failures(conn, &jobs)? {
            true => jobs,
            false => Vec::new(),
        };
        // Another request of the same kind may stand behind those that were taken.
        self.unsettled = wanted_keys::retried(conn, &self.deleted_succeeded)?;
        self.unsettled.extend(&unsettled);
        Ok(unsettled)
    }

    /// Those that cannot be retried.
    fn without_retry(&self) -> Vec<i64> {
        let deleted = self.deleted_succeeded.iter().copied();
        let settled = deleted.filter(|job| !self.unsettled.contains(job));
        let failed = self.over.iter().chain(&self.deleted_failed).copied();
        failed.chain(settled).collect()
    }

    fn each(&self) -> [(Resolved, &'static str, &[i64]); 4] {
        [
            (Resolved::Jobs, SUCCEEDED, &self.succeeded),
            (Resolved::Jobs, FAILED, &self.failed),
            (Resolved::DeletedJobs, SUCCEEDED, &self.deleted_succeeded),
            (Resolved::DeletedJobs, FAILED, &self.deleted_failed),
        ]
    }
}
