//! Takes ended jobs out of their batches, and retried ones back in.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::JobState;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, NewResult, ResultOutcome};
use crate::db::table::flows::batches::{self, EndedBatch};
use crate::db::table::flows::edges::{self, FAILED, Resolved, SUCCEEDED};
use crate::db::table::flows::members::{self, FailedMember};
use crate::db::table::flows::{parents, waits};
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{attempts, executions, results, steps};
use crate::db::transition::unique;
use crate::mutant;
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Takes jobs that have ended out of their batches. `unsuccessful` are those of them that have failed, or were
/// cancelled.
pub(crate) fn leave(conn: &mut Conn<'_>, jobs: &[i64], unsuccessful: &[i64]) -> QueryResult<()> {
    if !unsuccessful.is_empty() {
        members::fail(conn, unsuccessful)?;
    }
    if jobs.is_empty() {
        return Ok(());
    }
    members::leave(conn, jobs)
}

/// Lets batches wait again for failed jobs that are retried in this transaction. One that is over stays so, unless a
/// job waits for its success.
pub(crate) fn rejoin(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let failed = members::failed(conn, jobs)?;
    if failed.is_empty() {
        return Ok(());
    }
    let named: BTreeSet<i64> = failed.iter().map(|job| job.batch_id).collect();
    let named: Vec<i64> = named.into_iter().collect();
    batches::keep_open(conn, &named)?;
    // A statement of its own: a batch may have ended before the lock was granted.
    let awaiting = batches::awaiting_retries(conn, &named)?;
    let (back, late): (Vec<_>, Vec<_>) = failed
        .iter()
        .partition(|job| awaiting.contains(&job.batch_id));
    let ids = |jobs: Vec<&FailedMember>| jobs.iter().map(|job| job.job_id).collect::<Vec<_>>();
    if !late.is_empty() {
        members::keep_failures(conn, &ids(late))?;
    }
    members::return_to_batch(conn, &ids(back))?;
    batches::reopen(conn, &awaiting)
}

/// The result of a sweep.
#[derive(Debug)]
pub(crate) struct SweptMembers {
    /// The last job that was read, if there may be more.
    pub(crate) reached: Option<i64>,
    /// The number of jobs that have left their batches.
    pub(crate) left: usize,
}

/// Takes those jobs out of their batches that were ended by a program that does not do so: a version of Windlass
/// before batches, or statements by hand. Reads up to `limit` members after the job `after`.
pub(crate) fn sweep(conn: &mut Conn<'_>, after: i64, limit: usize) -> QueryResult<SweptMembers> {
    let page = members::page(conn, after, limit)?;
    let left = match page.ended.is_empty() {
        true => 0,
        false => take_out(conn, &page.ended)?,
    };
    Ok(SweptMembers {
        reached: page.reached,
        left,
    })
}

/// Takes jobs out of their batches that seem to have ended, and returns how many have. A retry has locked the failed
/// execution of its job before it reads whether the job has left its batch.
fn take_out(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let locked = members::lock_free(conn, jobs)?;
        let failed = executions::lock_free(conn, JobState::Failed, &locked)?;
        // Once more, by a statement that sees what was committed before the locks were granted.
        let mut ended = members::ended(conn, &locked)?;
        ended.retain(|job| !job.has_failed || failed.contains(&job.job_id));
        let unsuccessful = ended
            .iter()
            .filter(|job| job.has_failed || job.was_cancelled);
        let unsuccessful: Vec<i64> = unsuccessful.map(|job| job.job_id).collect();
        let ended: Vec<i64> = ended.iter().map(|job| job.job_id).collect();
        leave(conn, &ended, &unsuccessful)?;
        Ok(ended.len())
    })
}

// --- Ends batches that have no job left, for a promotion ---

/// The result of the requests.
#[derive(Debug, Default)]
pub(crate) struct CompletedBatches {
    /// The number of jobs that waited for batches that have ended now.
    pub(crate) followed: usize,
    /// Those that have not ended.
    pub(crate) open: Vec<i64>,
    /// The number of batches that were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
}

/// Ends those of the requested batches of which no job is left, and requests a promotion of the jobs that waited for
/// them. `added` is how many jobs were added to each. It waits for no transaction that adds jobs.
pub(crate) fn complete(
    conn: &mut Conn<'_>,
    added: &BTreeMap<i64, i64>,
) -> QueryResult<CompletedBatches> {
    let mut completed = CompletedBatches::default();
    if added.is_empty() {
        return Ok(completed);
    }
    for (batch, jobs) in added.iter().filter(|(_, jobs)| **jobs > 0) {
        batches::add_to_total(conn, *batch, *jobs)?;
    }
    let named: Vec<i64> = added.keys().copied().collect();
    let ended = ids(&batches::ended(conn, &named)?);
    completed.open = named;
    completed.open.retain(|batch| !ended.contains(batch));
    if ended.is_empty() {
        return Ok(completed);
    }
    let locked = batches::lock_free(conn, &ended)?;
    // Once more, by a statement that sees the jobs added before the lock was granted.
    let now_ended = batches::ended(conn, &locked)?;
    batches::finish(conn, &now_ended)?;
    let (followed, unfinished) = follow(conn, &now_ended)?;
    completed.followed = followed;
    let busy = ended.iter().filter(|batch| !locked.contains(batch));
    let busy: BTreeSet<i64> = busy.chain(&unfinished).copied().collect();
    completed.left_over = busy.len();
    wanted_keys::request_later(conn, busy.into_iter().map(NewRequest::Batch))?;
    Ok(completed)
}

/// Requests a promotion for batches that have ended without that being noticed, as after a program has replaced the
/// tables and their triggers. Reads up to `limit` after the id `after`, and returns the last id if there may be more.
pub(crate) fn request_stalled(
    conn: &mut Conn<'_>,
    after: i64,
    limit: usize,
) -> QueryResult<Option<i64>> {
    let (stalled, reached) = batches::stalled(conn, after, limit)?;
    wanted_keys::request(conn, stalled.into_iter().map(NewRequest::Batch))?;
    Ok(reached)
}

fn ids(batches: &[EndedBatch]) -> Vec<i64> {
    batches.iter().map(|batch| batch.id).collect()
}

/// Requests a promotion of the jobs that waited for these batches. Returns how many these are, and the batches for which
/// more wait.
fn follow(conn: &mut Conn<'_>, ended: &[EndedBatch]) -> QueryResult<(usize, Vec<i64>)> {
    let (failed, succeeded): (Vec<_>, Vec<_>) = ended.iter().partition(|batch| batch.failures > 0);
    let of = |batches: Vec<&EndedBatch>| batches.into_iter().map(|batch| batch.id).collect();
    let (succeeded, failed): (Vec<i64>, Vec<i64>) = (of(succeeded), of(failed));
    let (mut children, mut unfinished) = (BTreeSet::new(), Vec::new());
    for (batches, outcome) in [(&succeeded, SUCCEEDED), (&failed, FAILED)] {
        let followers = edges::resolve(conn, Resolved::Batches, batches, outcome)?;
        children.extend(followers.jobs);
        if followers.has_more {
            unfinished.extend(batches);
        }
    }
    let lost = batches::without_retry(conn, &failed)?;
    let followers = edges::give_up(conn, Resolved::Batches, &lost)?;
    children.extend(followers.jobs);
    if followers.has_more {
        unfinished.extend(lost);
    }
    let count = children.len();
    wanted_keys::request_later(conn, children.into_iter().map(NewRequest::Child))?;
    Ok((count, unfinished))
}

// --- The end of jobs that had not started ---

/// Ends jobs that had not started, and whose execution was just deleted. Returns them.
pub(crate) fn end_unstarted(
    conn: &mut Conn<'_>,
    ids: &[i64],
    attempt: AttemptOutcome,
    result: ResultOutcome,
    failure: &JobFailure,
) -> QueryResult<Vec<EndedJob>> {
    let text =
        "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now} WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(ids)).execute(conn)?;
    attempts::record_unstarted(conn, ids, attempt, failure)?;
    let rows = jobs::ended(conn, ids)?;
    let error = failure.in_words();
    let new: Vec<NewResult<'_>> = rows
        .iter()
        .filter_map(|job| job.result(result, &error, 0, FinishedRow::Keep))
        .collect();
    results::store_results(conn, &new)?;
    results::wake(conn, ids)?;
    let named = rows.iter().filter(|job| job.unique_id.is_some());
    let named: Vec<i64> = named.map(|job| job.id).collect();
    if !named.is_empty() {
        unique::unblock(conn, &named)?;
    }
    steps::remove(conn, ids)?;
    waits::delete(conn, ids)?;
    let members = rows.iter().filter(|job| job.batch_id.is_some());
    let members: Vec<i64> = members.map(|job| job.id).collect();
    let unsuccessful = result.is_unsuccessful();
    let failed = if unsuccessful { &members[..] } else { &[] };
    leave(conn, &members, failed)?;
    Ok(rows)
}

// --- Stores the outcomes of jobs that others wait for, for a promotion ---

/// The result of the requests.
#[derive(Debug, Default)]
pub(crate) struct EndedParents {
    /// The number of jobs that waited for them.
    pub(crate) followed: usize,
    /// The number of jobs that were requested again.
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
    let undecided = outcomes.forget_failures(conn, retried)?;
    let busy = retried.iter().filter(|job| again.contains(job));
    let undecided: BTreeSet<i64> = busy.copied().chain(undecided).collect();
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
        left_over: again.len() + undecided.len(),
    };
    let again = again.into_iter().map(NewRequest::Ended);
    let undecided = undecided.into_iter().map(NewRequest::Retried);
    let children = children.into_iter().map(NewRequest::Child);
    wanted_keys::request_later(conn, again.chain(undecided).chain(children))?;
    Ok(ended)
}

/// Jobs by their outcomes.
#[derive(Debug, Default)]
struct Outcomes {
    succeeded: Vec<i64>,
    failed: Vec<i64>,
    /// Those of them that no retry can bring back: they were cancelled or discarded.
    beyond_retry: Vec<i64>,
    /// Those that do not exist any more.
    deleted_succeeded: Vec<i64>,
    deleted_failed: Vec<i64>,
    /// Those that have not ended.
    open: Vec<i64>,
    /// Those of which an earlier failure is not forgotten everywhere yet, so that an edge does not say how they ended.
    undecided: BTreeSet<i64>,
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
                    outcomes
                        .beyond_retry
                        .extend(has_finished.then_some(state.id));
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
    fn forget_failures(
        &mut self,
        conn: &mut Conn<'_>,
        retried: &BTreeSet<i64>,
    ) -> QueryResult<Vec<i64>> {
        let jobs = self.open.iter().chain(&self.deleted_succeeded);
        let jobs: Vec<i64> = jobs.copied().filter(|job| retried.contains(job)).collect();
        let undecided = match edges::forget_free_failures(conn, &jobs)? {
            true => jobs,
            false => Vec::new(),
        };
        // Another request of the same kind may stand behind those that were taken.
        self.undecided = wanted_keys::retried(conn, &self.deleted_succeeded)?;
        self.undecided.extend(&undecided);
        Ok(undecided)
    }

    /// Those that cannot be retried.
    fn without_retry(&self) -> Vec<i64> {
        let deleted = self.deleted_succeeded.iter().copied();
        let decided = deleted.filter(|job| !self.undecided.contains(job));
        let failed = self
            .beyond_retry
            .iter()
            .chain(&self.deleted_failed)
            .copied();
        failed.chain(decided).collect()
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
