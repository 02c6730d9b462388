//! `windlass_edges`: jobs that wait for jobs and batches to end.
//!
//! Such a job is blocked under the key [`WAITS_FOR_PARENTS`] until its edges admit it. They stay as long as the job.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, Id, id_list, job_ids};
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::extras::{On, Otherwise, Parent};
use crate::db::model::new_row::WAITS_FOR_PARENTS;
use crate::db::table::flows::parents;
use crate::db::table::semaphores::NEVER_EXPIRES;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// The outcome of a job that has finished, and of a batch whose jobs have all succeeded or discarded themselves.
pub(crate) const SUCCEEDED: &str = "succeeded";

/// The outcome of a job that has ended otherwise, and of a batch of which a job has failed, or was cancelled.
pub(crate) const FAILED: &str = "failed";

/// An edge to insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEdge<'n> {
    pub(crate) child: i64,
    pub(crate) parent: Parent,
    pub(crate) name: Option<&'n str>,
    pub(crate) on: On,
    pub(crate) otherwise: Otherwise,
}

impl<'n> NewEdge<'n> {
    fn params(&self) -> [Param<'n>; 6] {
        [
            self.child.into(),
            self.parent.job().into(),
            self.parent.batch().into(),
            self.name.into(),
            self.on.column().into(),
            self.otherwise.column().into(),
        ]
    }
}

/// Lets jobs wait for their parents. They are blocked, or a claim of them ends blocked.
pub(crate) fn insert_edges(conn: &mut Conn<'_>, edges: &[NewEdge<'_>]) -> QueryResult<()> {
    let input = InputRows {
        names: [
            "child",
            "parent_job",
            "parent_batch",
            "name",
            "runs_on",
            "otherwise",
        ],
        rows: edges.iter().map(NewEdge::params).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_edges (child_job_id, parent_job_id, parent_batch_id, name, runs_on, otherwise, created_at) \
         SELECT input.child, input.parent_job, input.parent_batch, input.name, input.runs_on, input.otherwise, {{now}} \
         FROM {} WHERE true ORDER BY 1",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text)
        .bind_all(params)
        .uncached()
        .execute(conn)
}

/// Blocks jobs without execution until their parents have ended. An execution that exists already, inserted by another
/// program, does not fail the rest.
pub(crate) fn block(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, $1, {{time '{NEVER_EXPIRES}'}}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $2}} ORDER BY id ON CONFLICT (job_id) DO NOTHING"
    );
    Statement::new(text)
        .uncached()
        .bind(WAITS_FOR_PARENTS)
        .bind(id_list(children))
        .execute(conn)
}

/// The most edges that one promotion resolves at once.
const AT_ONCE: usize = 500;

/// The edges to resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// Those of jobs.
    Jobs,
    /// Those of jobs that do not exist any more, and have no outcome yet.
    DeletedJobs,
    /// Those of batches.
    Batches,
}

impl Resolved {
    fn parent(self) -> &'static str {
        match self {
            Resolved::Jobs | Resolved::DeletedJobs => "parent_job_id",
            Resolved::Batches => "parent_batch_id",
        }
    }
}

/// The jobs that wait for parents which have ended.
#[derive(Debug, Default)]
pub(crate) struct ResolvedEdges {
    pub(crate) jobs: Vec<i64>,
    /// True if the parents may have more.
    pub(crate) has_more: bool,
}

/// Stores the outcome of parents with their edges, a bounded number at once, and returns the jobs that wait for them.
pub(crate) fn resolve(
    conn: &mut Conn<'_>,
    which: Resolved,
    parents: &[i64],
    outcome: &str,
) -> QueryResult<ResolvedEdges> {
    let mut resolved = ResolvedEdges::default();
    if parents.is_empty() {
        return Ok(resolved);
    }
    resolve_those(
        conn,
        which,
        parents,
        outcome,
        "w.outcome IS NULL",
        &mut resolved,
    )?;
    // A parent that had failed was retried.
    if outcome == SUCCEEDED && which != Resolved::DeletedJobs {
        resolve_those(
            conn,
            which,
            parents,
            outcome,
            "w.outcome = 'failed'",
            &mut resolved,
        )?;
    }
    Ok(resolved)
}

/// Does so for the edges that have, until now, another outcome or none: by the index of parents and outcomes, so that no
/// edge is passed that was resolved before.
fn resolve_those(
    conn: &mut Conn<'_>,
    which: Resolved,
    parents: &[i64],
    outcome: &str,
    are_due: &str,
    resolved: &mut ResolvedEdges,
) -> QueryResult<()> {
    let due = format!("w.{} IN {{in $1}} AND {are_due}", which.parent());
    let text = format!(
        "WITH due AS MATERIALIZED (SELECT w.id FROM windlass_edges w WHERE {due} LIMIT {AT_ONCE} {{lock skip of w}}) \
         UPDATE windlass_edges SET outcome = $2 WHERE id IN {{in SELECT id FROM due}} RETURNING child_job_id AS job_id"
    );
    let jobs: Vec<Execution> = Statement::new(text)
        .uncached()
        .bind(id_list(parents))
        .bind(outcome)
        .load(conn)?;
    resolved.jobs.extend(job_ids(jobs));
    resolved.has_more |= is_any(conn, &due, parents)?;
    Ok(())
}

/// Has jobs that wait for the success of jobs or batches, which have failed and no retry can bring to success any more,
/// wait no longer, and returns them. A job that undoes a step runs then.
///
/// A bounded number at once.
pub(crate) fn give_up(
    conn: &mut Conn<'_>,
    which: Resolved,
    parents: &[i64],
) -> QueryResult<ResolvedEdges> {
    let mut given_up = ResolvedEdges::default();
    if parents.is_empty() {
        return Ok(given_up);
    }
    let due = format!(
        "w.{} IN {{in $1}} AND w.otherwise = 'wait' AND w.runs_on = 'success' AND w.outcome = 'failed'",
        which.parent()
    );
    let text = format!(
        "WITH due AS MATERIALIZED (SELECT w.id FROM windlass_edges w WHERE {due} LIMIT {AT_ONCE} {{lock skip of w}}) \
         UPDATE windlass_edges SET otherwise = 'discard', \
           runs_on = CASE WHEN {} THEN 'finish' ELSE runs_on END \
         WHERE id IN {{in SELECT id FROM due}} RETURNING child_job_id AS job_id",
        parents::is_of_undo("windlass_edges")
    );
    let jobs: Vec<Execution> = Statement::new(text)
        .uncached()
        .bind(id_list(parents))
        .load(conn)?;
    given_up.jobs = job_ids(jobs);
    given_up.has_more = is_any(conn, &due, parents)?;
    Ok(given_up)
}

/// Returns whether there are edges for a condition, also such that another transaction has locked.
fn is_any(conn: &mut Conn<'_>, due: &str, parents: &[i64]) -> QueryResult<bool> {
    let text = format!("SELECT w.id FROM windlass_edges w WHERE {due} LIMIT 1");
    let more: Option<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(parents))
        .get_result(conn)
        .optional()?;
    Ok(more.is_some())
}

/// Has jobs that wait for the success of these failed ones, which were retried, wait for their next end: it counts also
/// where finished jobs are not kept.
///
/// A bounded number at once. Returns whether there may be more. The rows of the parents are locked.
pub(crate) fn forget_failures(conn: &mut Conn<'_>, parents: &[i64]) -> QueryResult<bool> {
    Ok(!parents.is_empty() && forget(conn, parents, "")? == AT_ONCE)
}

/// The same, without waiting for what another transaction has locked.
pub(crate) fn forget_free_failures(conn: &mut Conn<'_>, parents: &[i64]) -> QueryResult<bool> {
    if parents.is_empty() {
        return Ok(false);
    }
    forget(conn, parents, "{lock skip of w}")?;
    is_any(conn, FAILURES, parents)
}

/// `|| ''` keeps Postgres from reading the whole index of failed batches.
const FAILURES: &str = "w.parent_job_id IN {in $1} AND w.otherwise = 'wait' AND w.runs_on = 'success' AND w.outcome || '' = 'failed'";

fn forget(conn: &mut Conn<'_>, parents: &[i64], lock: &str) -> QueryResult<usize> {
    let text = format!(
        "WITH due AS MATERIALIZED (SELECT w.id FROM windlass_edges w WHERE {FAILURES} LIMIT {AT_ONCE} {lock}) \
         UPDATE windlass_edges SET outcome = NULL WHERE id IN {{in SELECT id FROM due}}"
    );
    let statement = Statement::new(text).uncached().bind(id_list(parents));
    statement.changes(conn)
}

/// Locks the executions of jobs that wait for parents, without those that other transactions have locked.
pub(crate) fn lock_free(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2 ORDER BY b.id + 0 {lock skip of b}";
    Statement::new(text)
        .uncached()
        .bind(id_list(children))
        .bind(WAITS_FOR_PARENTS)
        .load(conn)
        .map(job_ids)
}

/// Returns those of the jobs that wait for parents.
pub(crate) fn dependent_children(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id AS id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2";
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(children))
        .bind(WAITS_FOR_PARENTS)
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// The edges of a waiting job that have the same rules, added up.
#[derive(Debug, QueryableByName)]
pub(crate) struct Edges {
    #[diesel(sql_type = BigInt)]
    pub(crate) child_job_id: i64,
    #[diesel(sql_type = Text)]
    runs_on: String,
    #[diesel(sql_type = Text)]
    otherwise: String,
    /// True if a parent has not ended.
    #[diesel(sql_type = Bool)]
    is_open: bool,
    /// True if a parent has ended without success.
    #[diesel(sql_type = Bool)]
    has_failed: bool,
    /// One such parent, if it is a job.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) failed_job_id: Option<i64>,
}

/// The state of a job, by its edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EdgeState {
    /// The job may run.
    Open,
    /// It waits.
    Waits,
    /// It is discarded.
    Discarded,
    /// It is deleted.
    Dropped,
}

impl Edges {
    pub(crate) fn state(&self) -> EdgeState {
        let fits = match (&*self.runs_on, self.has_failed) {
            // Nothing that comes can change that, except a retry.
            ("success", true) => false,
            _ if self.is_open && !mutant::is("child_too_early") => return EdgeState::Waits,
            ("failure", has_failed) => has_failed,
            _ => true,
        };
        match (fits, &*self.otherwise) {
            (true, _) => EdgeState::Open,
            (false, "drop" | "undo") => EdgeState::Dropped,
            // Without a failure there is nothing to retry.
            (false, "wait") if self.has_failed => EdgeState::Waits,
            (false, _) => EdgeState::Discarded,
        }
    }

    /// Returns whether the job waits in the middle of its work. Then its other edges have had their effect.
    pub(crate) fn is_join(&self) -> bool {
        self.otherwise == "join"
    }

    /// Returns whether the job may undo a step.
    pub(crate) fn may_undo(&self) -> bool {
        self.runs_on == "failure" && self.otherwise == "undo"
    }

    /// Returns whether the job stands for a batch in another.
    pub(crate) fn is_nested(&self) -> bool {
        self.otherwise == "nest"
    }

    /// Returns whether all parents have succeeded.
    pub(crate) fn have_succeeded(&self) -> bool {
        !self.is_open && !self.has_failed
    }
}

/// Returns the edges of jobs, added up by their rules.
pub(crate) fn edges_of_children(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<Edges>> {
    let text = "SELECT w.child_job_id, w.runs_on, w.otherwise, \
           count(w.outcome) < count(*) AS is_open, \
           coalesce(min(w.outcome), '') = 'failed' AS has_failed, \
           min(CASE WHEN w.outcome = 'failed' THEN w.parent_job_id END) AS failed_job_id \
         FROM windlass_edges w WHERE w.child_job_id IN {in $1} \
         GROUP BY w.child_job_id, w.runs_on, w.otherwise ORDER BY w.child_job_id";
    Statement::new(text)
        .uncached()
        .bind(id_list(children))
        .load(conn)
}

// --- `windlass_edges` of jobs that wait for others in the middle of their work ---

#[derive(QueryableByName)]
struct ParentIds {
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_job_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    parent_batch_id: Option<i64>,
}

#[derive(QueryableByName)]
struct FailedParents {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Has a job wait also for those of the parents with which it is connected, and returns them. One that was retried, or
/// opened again, since its end was noted is waited for once more.
pub(crate) fn renew(
    conn: &mut Conn<'_>,
    child: i64,
    jobs: &[i64],
    batches: &[i64],
) -> QueryResult<Vec<Parent>> {
    let text = "UPDATE windlass_edges SET runs_on = 'finish', otherwise = 'join', \
           outcome = CASE WHEN (SELECT j.id FROM solid_queue_jobs j WHERE j.id = parent_job_id AND j.finished_at IS NULL \
               AND (SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = j.id LIMIT 1) IS NULL) IS NOT NULL \
             OR (SELECT b.id FROM solid_queue_batches b WHERE b.id = parent_batch_id AND b.finished_at IS NULL) IS NOT NULL \
             THEN NULL ELSE outcome END \
         WHERE child_job_id = $1 AND (parent_job_id IN {in $2} OR parent_batch_id IN {in $3}) RETURNING parent_job_id, parent_batch_id";
    let rows: Vec<ParentIds> = Statement::new(text)
        .uncached()
        .bind(child)
        .bind(id_list(jobs))
        .bind(id_list(batches))
        .load(conn)?;
    let parent = |row: &ParentIds| {
        let job = row.parent_job_id.map(Parent::Job);
        job.or(row.parent_batch_id.map(Parent::Batch))
    };
    Ok(rows.iter().filter_map(parent).collect())
}

/// Returns how many of the parents of a job have ended without success.
pub(crate) fn failed(
    conn: &mut Conn<'_>,
    child: i64,
    jobs: &[i64],
    batches: &[i64],
) -> QueryResult<i64> {
    let text = "SELECT count(*) AS n FROM windlass_edges WHERE child_job_id = $1 AND outcome = 'failed' \
         AND (parent_job_id IN {in $2} OR parent_batch_id IN {in $3})";
    let count: FailedParents = Statement::new(text)
        .uncached()
        .bind(child)
        .bind(id_list(jobs))
        .bind(id_list(batches))
        .get_result(conn)?;
    Ok(count.n)
}

/// Returns the first of the jobs that waits for this one itself.
pub(crate) fn first_dependent(
    conn: &mut Conn<'_>,
    job: i64,
    jobs: &[i64],
) -> QueryResult<Option<i64>> {
    let text = "SELECT w.child_job_id AS id FROM windlass_edges w WHERE w.parent_job_id = $1 AND w.child_job_id IN {in $2} \
         ORDER BY w.child_job_id LIMIT 1";
    let row: Option<Id> = Statement::new(text)
        .uncached()
        .bind(job)
        .bind(id_list(jobs))
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Deletes the edges of a waiting job to those that it waits for, or has waited for, in the middle of its work.
pub(crate) fn delete(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = "DELETE FROM windlass_edges WHERE child_job_id = $1 AND otherwise = 'join'";
    Statement::new(text).uncached().bind(job).execute(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(runs_on: &str, otherwise: &str, is_open: bool, has_failed: bool) -> EdgeState {
        let edges = Edges {
            child_job_id: 1,
            runs_on: runs_on.to_owned(),
            otherwise: otherwise.to_owned(),
            is_open,
            has_failed,
            failed_job_id: None,
        };
        edges.state()
    }

    #[test]
    fn edges_decide_by_the_outcomes() {
        use EdgeState::{Discarded, Dropped, Open, Waits};
        for otherwise in ["discard", "drop", "wait", "undo"] {
            for runs_on in ["success", "failure", "finish"] {
                assert_eq!(state(runs_on, otherwise, true, false), Waits);
            }
            assert_eq!(state("success", otherwise, false, false), Open);
            assert_eq!(state("failure", otherwise, false, true), Open);
            assert_eq!(state("failure", otherwise, true, true), Waits);
            assert_eq!(state("finish", otherwise, false, false), Open);
            assert_eq!(state("finish", otherwise, false, true), Open);
            assert_eq!(state("finish", otherwise, true, true), Waits);
        }
        for is_open in [false, true] {
            assert_eq!(state("success", "discard", is_open, true), Discarded);
            assert_eq!(state("success", "drop", is_open, true), Dropped);
            assert_eq!(state("success", "wait", is_open, true), Waits);
        }
        assert_eq!(state("failure", "discard", false, false), Discarded);
        assert_eq!(state("failure", "wait", false, false), Discarded);
        assert_eq!(state("failure", "drop", false, false), Dropped);
        assert_eq!(state("failure", "undo", false, false), Dropped);
    }
}
