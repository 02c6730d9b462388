//! Decides about jobs that wait for jobs and batches, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::Cursor;
use crate::db::model::new_row::WAITS_FOR_PARENTS;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::blocked;
use crate::db::table::flows::edges::{self, EdgeState, Edges};
use crate::db::table::flows::{batches, members, parents};
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::transition::flows::leave::end_unstarted;
use crate::db::transition::{clear, runnable};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable};
use std::collections::{BTreeMap, BTreeSet};

/// The class of the job that stands for a batch in the batch around it. No worker performs it.
pub(crate) const NESTED: &str = "windlass_batch";

/// The kind of failure of a job that is not wanted, after what it waited for has ended.
pub(crate) const NOT_WANTED: &str = "parents";

/// The result of the requests.
#[derive(Debug, Default)]
pub(crate) struct AdmittedJobs {
    /// The number of jobs that wait no longer.
    pub(crate) entered: usize,
    /// Those of them that are not wanted any more.
    pub(crate) discarded: Vec<EndedJob>,
    /// The number of jobs that were requested again, because another transaction has locked them.
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
    let followers = Followers::of(edges::edges_of_children(conn, &locked)?);
    let open = followers.having(EdgeState::Open, false);
    let nested = followers.having(EdgeState::Open, true);
    // The other jobs do not wait for one whose row is locked.
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
        runnable::make_ready_or_scheduled(conn, &open)?;
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
        let ended = end_unstarted(conn, &jobs, attempt, result, &failure)?;
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
    let waiting = edges::dependent_children(conn, &skipped)?;
    let count = waiting.len();
    wanted_keys::request_later(conn, waiting.into_iter().map(NewRequest::Child))?;
    Ok(count)
}

// --- Finds jobs that wait although what they waited for has ended, as after a program has ---

/// In microseconds: by then, the promotions that were requested have been made.
const OVERDUE_AFTER: i64 = 60_000_000;

#[derive(QueryableByName)]
struct WaitingChild {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
}

#[derive(QueryableByName)]
struct Overdue {
    #[diesel(sql_type = Nullable<BigInt>)]
    child: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_job: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_batch: Option<i64>,
}

impl Overdue {
    fn request(&self) -> Option<NewRequest> {
        let job = self.parent_job.map(NewRequest::Ended);
        let batch = self.parent_batch.map(NewRequest::Batch);
        job.or(batch).or(self.child.map(NewRequest::Child))
    }
}

/// Reads `chunk` jobs that wait for parents, after a cursor in their order, and requests a promotion where it is overdue.
/// Returns the last one if there may be more.
pub(crate) fn request_overdue(
    conn: &mut Conn<'_>,
    beyond: Cursor,
    chunk: usize,
) -> QueryResult<Option<Cursor>> {
    let text = "SELECT b.job_id, b.priority FROM solid_queue_blocked_executions b \
         WHERE b.concurrency_key = $1 AND (b.priority, b.job_id) > ($2, $3) ORDER BY b.priority, b.job_id LIMIT $4";
    let seen: Vec<WaitingChild> = Statement::new(text)
        .uncached()
        .bind(WAITS_FOR_PARENTS)
        .bind(beyond.priority)
        .bind(beyond.job_id)
        .bind(chunk as i64)
        .load(conn)?;
    let jobs: Vec<i64> = seen.iter().map(|job| job.job_id).collect();
    if !jobs.is_empty() {
        let overdue = overdue(conn, &jobs)?;
        let requests: BTreeSet<NewRequest> = overdue.iter().filter_map(Overdue::request).collect();
        wanted_keys::request(conn, requests)?;
        for batch in batches::failed_parents(conn, &jobs)? {
            decide(conn, batch)?;
        }
    }
    let last = seen.last().filter(|_| seen.len() == chunk);
    Ok(last.map(|last| Cursor {
        priority: last.priority,
        job_id: last.job_id,
    }))
}

/// Requests a promotion for a batch that has failed, if it is decided whether a retry can bring it to success. Another
/// program may have retried a job of it, or deleted one where the triggers were missing. One transaction: without the
/// request, nothing would tell later that a failure is gone.
fn decide(conn: &mut Conn<'_>, batch: i64) -> QueryResult<()> {
    conn.transaction(|conn| {
        let has_decided = members::decide_failures(conn, batch)?;
        if has_decided || !batches::without_retry(conn, &[batch])?.is_empty() {
            wanted_keys::request(conn, [NewRequest::Batch(batch)])?;
        }
        Ok(())
    })
}

/// The most edges that are read: all that a hundred jobs can have.
const MOST: i64 = 100_000;

fn overdue(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<Overdue>> {
    let text = "WITH chosen AS MATERIALIZED (SELECT w.* FROM windlass_edges w WHERE w.child_job_id IN {in $1} \
           AND w.created_at < {later $2} ORDER BY w.child_job_id, w.parent_job_id LIMIT $3) \
         SELECT CAST(NULL AS bigint) AS child, w.parent_job_id AS parent_job, CAST(NULL AS bigint) AS parent_batch FROM chosen w \
         LEFT JOIN solid_queue_jobs j ON j.id = w.parent_job_id WHERE w.parent_job_id IS NOT NULL \
         AND (w.outcome IS NULL OR w.outcome = 'failed' AND w.otherwise = 'wait') AND (j.id IS NULL OR j.finished_at IS NOT NULL \
           OR w.outcome IS NULL AND (SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = j.id LIMIT 1) IS NOT NULL) \
         UNION ALL SELECT NULL, NULL, w.parent_batch_id FROM chosen w JOIN solid_queue_batches b ON b.id = w.parent_batch_id \
         WHERE w.outcome IS NULL AND b.finished_at IS NOT NULL \
         UNION ALL SELECT w.child_job_id, NULL, NULL FROM chosen w GROUP BY w.child_job_id \
         HAVING max(CASE WHEN w.runs_on = 'success' AND w.otherwise <> 'wait' AND w.outcome = 'failed' THEN 1 ELSE 0 END) = 1 \
           OR count(w.outcome) = count(*) AND max(CASE WHEN w.otherwise = 'wait' AND w.outcome = 'failed' THEN 1 ELSE 0 END) = 0";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .bind(-OVERDUE_AFTER)
        .bind(MOST)
        .load(conn)
}
