//! Jobs that others wait for: `solid_queue_jobs.has_dependents`.
//!
//! The flag is set in the transaction that enqueues the others, and read by triggers when the job ends. Both lock the row
//! of the job, so that one of them sees the other.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, Id, id_list, job_ids};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::collections::BTreeSet;

/// Returns a condition on the jobs of a statement: no job waits for one whose end is not noted yet. Without its row, a
/// cancelled or discarded one would count as finished.
pub(crate) const IS_NOTED: &str = "(has_dependents IS NOT TRUE OR (SELECT w.id FROM windlass_edges w \
     WHERE w.parent_job_id = solid_queue_jobs.id AND w.outcome IS NULL LIMIT 1) IS NULL)";

/// Returns those of the jobs that exist and are marked as having dependents.
pub(crate) fn marked(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id IN {in $1} AND has_dependents";
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Keeps those of the jobs until the transaction ends that have ended and are marked as having dependents. One that has not
/// ended may do so, and be deleted in the same statement.
pub(crate) fn keep_ended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id IN {in $1} AND has_dependents AND finished_at IS NOT NULL \
         ORDER BY id {keep}";
    let _: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(())
}

/// Marks jobs as having dependents, in order, and returns those that exist.
pub(crate) fn mark(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id {hold}) \
         UPDATE solid_queue_jobs SET has_dependents = true WHERE id IN {in SELECT id FROM held} RETURNING id";
    let rows: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Keeps the claims of running jobs until the transaction ends, as far as they are free: whatever ends claims in bulk passes
/// these meanwhile. Steps, starts and heartbeats do not wait for it.
pub(crate) fn keep_claims(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "SELECT id FROM solid_queue_claimed_executions WHERE job_id IN {in $1} ORDER BY id + 0 {keep skip}";
    let _: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(())
}

/// The time for which the result of a job that was deleted before it had finished is kept, in microseconds.
const KEPT: i64 = 3_600_000_000;

/// Stores a result for those of the jobs, which are about to be deleted and have not finished, that others wait for.
///
/// It locks their rows, so that a transaction that is about to mark one ends first, or finds it deleted.
pub(crate) fn note_dropped(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "WITH held AS MATERIALIZED (SELECT id, class_name, attempts, has_dependents FROM solid_queue_jobs \
           WHERE id IN {in $1} ORDER BY id {hold}) \
         INSERT INTO windlass_results (job_id, class_name, outcome, error, attempt, finished_at, expires_at) \
         SELECT id, class_name, 'discarded', 'it was deleted before it had finished', attempts, {now}, {later $2} \
         FROM held WHERE has_dependents ORDER BY id ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .bind(KEPT)
        .execute(conn)
}

/// Returns the first of these jobs, in order, of which neither the row nor a result is stored.
pub(crate) fn first_unknown(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Option<i64>> {
    let text = "SELECT j.id FROM solid_queue_jobs j WHERE j.id IN {in $1} \
         UNION ALL SELECT r.job_id AS id FROM windlass_results r WHERE r.job_id IN {in $1}";
    let known: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    let known: BTreeSet<i64> = known.into_iter().map(|row| row.id).collect();
    Ok(jobs.iter().copied().find(|job| !known.contains(job)))
}

/// The state of a job that others wait for.
#[derive(Debug, QueryableByName)]
pub(crate) struct ParentState {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Bool)]
    pub(crate) has_finished: bool,
    /// True if it has failed, or was cancelled or discarded.
    #[diesel(sql_type = Bool)]
    pub(crate) has_failed: bool,
}

/// Returns where those of the jobs are that exist. The attempts of a job end with the one that ended it, unless it
/// finished.
pub(crate) fn states(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<ParentState>> {
    let text = "SELECT j.id, j.finished_at IS NOT NULL AS has_finished, \
           ((SELECT f.job_id FROM solid_queue_failed_executions f WHERE f.job_id = j.id LIMIT 1) IS NOT NULL \
             OR j.finished_at IS NOT NULL AND (SELECT a.outcome FROM windlass_attempts a WHERE a.job_id = j.id \
               AND a.outcome IN ('cancelled', 'discarded') LIMIT 1) IS NOT NULL) AS has_failed \
         FROM solid_queue_jobs j WHERE j.id IN {in $1} ORDER BY j.id";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}

/// The outcome of a job, by its stored result.
#[derive(Debug, QueryableByName)]
pub(crate) struct StoredOutcome {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Bool)]
    pub(crate) has_succeeded: bool,
}

/// Returns what the stored results of the jobs say.
pub(crate) fn stored(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<StoredOutcome>> {
    let text = "SELECT job_id, outcome = 'succeeded' AS has_succeeded FROM windlass_results WHERE job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}

// --- `windlass_edges` of jobs that undo steps of others ---

/// A condition on the edge `w`: it is of a job that undoes a step of its parent. Not of one that undoes what its parent did
/// before it was replaced.
pub(crate) const IS_UNDO: &str = "w.runs_on = 'failure' AND w.otherwise = 'undo'";

/// Returns a condition on an edge: its job undoes a step, of whichever job. All other edges of such a job that do not wait
/// in the middle of its work are to the jobs that undo the steps after it.
pub(crate) fn is_of_undo(edge: &str) -> String {
    format!(
        "(SELECT u.id FROM windlass_edges u WHERE u.child_job_id = {edge}.child_job_id AND u.otherwise = 'undo' LIMIT 1) IS NOT NULL"
    )
}

/// Returns the job that undoes the step before, if the other one has not failed since.
pub(crate) fn newest(conn: &mut Conn<'_>, job: i64, except: i64) -> QueryResult<Option<i64>> {
    let text = format!(
        "SELECT w.child_job_id AS id FROM windlass_edges w WHERE w.parent_job_id = $1 AND {IS_UNDO} AND w.outcome IS NULL \
         AND w.child_job_id <> $2 ORDER BY w.id DESC LIMIT 1"
    );
    let row: Option<Id> = Statement::new(text)
        .uncached()
        .bind(job)
        .bind(except)
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Returns the jobs that undo steps of these, or have done so.
pub(crate) fn of_jobs(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT w.child_job_id AS job_id FROM windlass_edges w WHERE w.parent_job_id IN {{in $1}} AND {IS_UNDO} ORDER BY w.id"
    );
    let rows: Vec<Execution> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    Ok(job_ids(rows))
}

/// Deletes the steps that these jobs, which start now, undo.
pub(crate) fn forget_steps(conn: &mut Conn<'_>, undos: &[i64]) -> QueryResult<()> {
    if undos.is_empty() {
        return Ok(());
    }
    let text = format!(
        "DELETE FROM windlass_steps WHERE (job_id, name) IN (SELECT w.parent_job_id, w.name \
         FROM windlass_edges w WHERE w.child_job_id IN {{in $1}} AND {IS_UNDO})"
    );
    Statement::new(text)
        .uncached()
        .bind(id_list(undos))
        .execute(conn)
}

/// Has jobs that undo steps wait again for the failure of the other one, and no longer for those that have started.
pub(crate) fn depend_again(conn: &mut Conn<'_>, undos: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM windlass_edges WHERE child_job_id IN {in $1} AND otherwise IN ('wait', 'discard') \
         AND NOT parent_job_id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(undos))
        .execute(conn)?;
    let text = format!(
        "UPDATE windlass_edges SET outcome = NULL WHERE id IN (SELECT w.id FROM windlass_edges w \
         WHERE w.child_job_id IN {{in $1}} AND {IS_UNDO})"
    );
    Statement::new(text)
        .uncached()
        .bind(id_list(undos))
        .execute(conn)
}

/// Lets the jobs that undo steps of a job, which another one replaces, run whatever becomes of that, and returns them.
pub(crate) fn let_go(conn: &mut Conn<'_>, job: i64) -> QueryResult<Vec<i64>> {
    let text = format!(
        "UPDATE windlass_edges SET runs_on = 'finish', outcome = 'failed' WHERE id IN (SELECT w.id FROM windlass_edges w \
         WHERE w.parent_job_id = $1 AND {IS_UNDO}) RETURNING child_job_id AS job_id"
    );
    let rows: Vec<Execution> = Statement::new(text).uncached().bind(job).load(conn)?;
    Ok(job_ids(rows))
}
