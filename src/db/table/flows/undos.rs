//! `windlass_edges` of jobs that undo steps of others.
//!
//! Such a job waits for the failure of the other one, by an edge that has the name of the step, and for the job that undoes
//! the next step, by one without a name. When it starts, the step that it undoes is forgotten: a recorded step is one that
//! no job has begun to undo.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, Id, id_list, job_ids};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;

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
        .unkept()
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
        .unkept()
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
        .unkept()
        .bind(id_list(undos))
        .execute(conn)
}

/// Has jobs that undo steps wait again for the failure of the other one, and no longer for those that have started.
pub(crate) fn wait_again(conn: &mut Conn<'_>, undos: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM windlass_edges WHERE child_job_id IN {in $1} AND otherwise IN ('wait', 'discard') \
         AND NOT parent_job_id IN {in $1}";
    Statement::new(text)
        .unkept()
        .bind(id_list(undos))
        .execute(conn)?;
    let text = format!(
        "UPDATE windlass_edges SET outcome = NULL WHERE id IN (SELECT w.id FROM windlass_edges w \
         WHERE w.child_job_id IN {{in $1}} AND {IS_UNDO})"
    );
    Statement::new(text)
        .unkept()
        .bind(id_list(undos))
        .execute(conn)
}

/// Lets the jobs that undo steps of a job, which another one replaces, run whatever becomes of that, and returns them.
pub(crate) fn let_go(conn: &mut Conn<'_>, job: i64) -> QueryResult<Vec<i64>> {
    let text = format!(
        "UPDATE windlass_edges SET runs_on = 'finish', outcome = 'failed' WHERE id IN (SELECT w.id FROM windlass_edges w \
         WHERE w.parent_job_id = $1 AND {IS_UNDO}) RETURNING child_job_id AS job_id"
    );
    let rows: Vec<Execution> = Statement::new(text).unkept().bind(job).load(conn)?;
    Ok(job_ids(rows))
}
