//! Jobs that undo steps of others.

use crate::db::conn::connection::Conn;
use crate::db::model::follows::{On, Otherwise, Parent};
use crate::db::model::state::JobState;
use crate::db::table::flows::edges::{self, NewEdge};
use crate::db::table::flows::parents;
use crate::db::table::flows::undos::{self, UNDONE_AFTER};
use crate::db::transition::operate;
use diesel::prelude::*;

/// Has the job that undoes the step before wait for a new one, which undoes the step after it.
pub(crate) fn reverse(conn: &mut Conn<'_>, job: i64, undo: i64) -> QueryResult<()> {
    let Some(before) = undos::newest(conn, job, undo)? else {
        return Ok(());
    };
    parents::mark(conn, &[undo])?;
    let edge = NewEdge {
        child: before,
        parent: Parent::Job(undo),
        name: Some(UNDONE_AFTER),
        on: On::Success,
        otherwise: Otherwise::Wait,
    };
    edges::insert(conn, &[edge])
}

/// Prepares failed jobs for a retry, whose rows the caller has locked: they run the steps again that were undone. What has
/// not been undone yet stays, and waits for the next failure.
///
/// It waits for a promotion that is about to start an undo: whether that commits decides about the step.
pub(crate) fn resume(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let due = undos::due(conn, jobs)?;
    if due.is_empty() {
        return Ok(());
    }
    operate::lock(conn, JobState::Blocked, &due)?;
    let waiting = edges::waiting(conn, &due)?;
    let begun = due.iter().filter(|undo| !waiting.contains(undo));
    let begun: Vec<i64> = begun.copied().collect();
    undos::forget_steps(conn, &begun)?;
    undos::wait_again(conn, &waiting, &begun)
}
