//! Jobs that undo steps of others.

use crate::db::conn::connection::Conn;
use crate::db::model::extras::{On, Otherwise, Parent};
use crate::db::model::state::JobState;
use crate::db::table::executions;
use crate::db::table::flows::edges::{self, NewEdge};
use crate::db::table::flows::parents;
use crate::mutant;
use diesel::prelude::*;

/// Has the job that undoes the step before wait for a new one, which undoes the step after it.
pub(crate) fn reverse(conn: &mut Conn<'_>, job: i64, undo: i64) -> QueryResult<()> {
    let Some(before) = parents::newest(conn, job, undo)? else {
        return Ok(());
    };
    parents::mark(conn, &[undo])?;
    let edge = NewEdge {
        child: before,
        parent: Parent::Job(undo),
        name: None,
        on: On::Success,
        otherwise: Otherwise::Wait,
    };
    edges::insert(conn, &[edge])
}

/// Prepares failed jobs for a retry, whose rows the caller has locked: they run the steps again that were undone. What has
/// not been undone yet stays, and waits for the next failure.
///
/// It waits for a promotion that is about to start an undo: that one forgets the step if it commits.
pub(crate) fn resume(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let undos = parents::of_jobs(conn, jobs)?;
    if undos.is_empty() {
        return Ok(());
    }
    if mutant::is("retry_forgets_steps") {
        parents::forget_steps(conn, &undos)?;
    }
    executions::lock(conn, JobState::Blocked, &undos)?;
    let waiting = edges::waiting(conn, &undos)?;
    if waiting.is_empty() {
        return Ok(());
    }
    parents::wait_again(conn, &waiting)
}
