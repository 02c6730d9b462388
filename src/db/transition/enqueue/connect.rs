//! Lets new jobs wait for jobs and batches.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::model::claim::Fence;
use crate::db::model::decision::JobState;
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::executions;
use crate::db::table::flows::edges::{self, NewEdge};
use crate::db::table::flows::{batches, parents};
use crate::db::table::steps::{self, StepState};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::mutant;
use diesel::prelude::*;
use std::collections::BTreeSet;

/// Lets those of the inserted jobs that are new wait for what their rows name.
pub(crate) fn follow_parents(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    inserted: &[Inserted],
) -> QueryResult<()> {
    let children = rows.iter().zip(inserted).filter_map(|(row, job)| {
        let is_new = job.is_new && job.outcome == EnqueueOutcome::New;
        Some((job.id, &**row.follows.as_ref().filter(|_| is_new)?))
    });
    connect(conn, &children.collect::<Vec<_>>(), Parents::Existing)
}

/// The origin of the parents of new jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parents {
    /// They may have ended, or may be ending now.
    Existing,
    /// This transaction has inserted them.
    New,
}

/// Lets new jobs, which were inserted blocked, wait for their parents.
///
/// A parent may end in another transaction, before this one commits or after. Either that one sees the mark, or this one's
/// request is handled after both: then a promotion finds that the parent has ended.
pub(crate) fn connect(
    conn: &mut Conn<'_>,
    children: &[(i64, &Follows)],
    found: Parents,
) -> QueryResult<()> {
    let edges = children.iter().flat_map(|(child, follows)| {
        follows.parents.iter().map(|(parent, name)| NewEdge {
            child: *child,
            parent: *parent,
            name: name.as_deref(),
            on: follows.on,
            otherwise: follows.otherwise,
        })
    });
    let edges: Vec<NewEdge<'_>> = edges.collect();
    if edges.is_empty() {
        return Ok(());
    }
    let all: Vec<Parent> = edges.iter().map(|edge| edge.parent).collect();
    hold(conn, &all, found)?;
    edges::insert_edges(conn, &edges)?;
    match found {
        Parents::New => Ok(()),
        Parents::Existing => request(conn, &all),
    }
}

/// Connects a job that runs with others, so that it can wait for them in the middle of its work: when its claim has ended.
pub(crate) fn join(
    conn: &mut Conn<'_>,
    fence: Fence,
    job: i64,
    step: &str,
    parents: &[(Parent, Option<String>)],
) -> QueryResult<StepState> {
    let all: Vec<Parent> = parents.iter().map(|(parent, _)| *parent).collect();
    conn.transaction(|conn| {
        let found = steps::begin(conn, fence, step)?;
        if found != StepState::New {
            return Ok(found);
        }
        hold(conn, &all, Parents::Existing)?;
        let (jobs, batches) = (jobs_of(&all), batches_of(&all));
        let known = edges::renew(conn, job, &jobs, &batches)?;
        let new = parents.iter().filter(|(parent, _)| !known.contains(parent));
        let new = new.map(|(parent, name)| NewEdge {
            child: job,
            parent: *parent,
            name: name.as_deref(),
            on: On::Finish,
            otherwise: Otherwise::Join,
        });
        let new: Vec<NewEdge<'_>> = new.collect();
        if !new.is_empty() {
            edges::insert_edges(conn, &new)?;
        }
        request(conn, &all)?;
        Ok(found)
    })
}

fn jobs_of(parents: &[Parent]) -> Vec<i64> {
    let jobs: BTreeSet<i64> = parents.iter().filter_map(|parent| parent.job()).collect();
    jobs.into_iter().collect()
}

fn batches_of(parents: &[Parent]) -> Vec<i64> {
    let batches: BTreeSet<i64> = parents.iter().filter_map(|parent| parent.batch()).collect();
    batches.into_iter().collect()
}

/// Has the ends of the parents be noticed.
fn hold(conn: &mut Conn<'_>, parents: &[Parent], found: Parents) -> QueryResult<()> {
    mark(conn, &jobs_of(parents), found)?;
    keep(conn, &batches_of(parents))
}

/// Requests a look whether the parents have ended.
fn request(conn: &mut Conn<'_>, parents: &[Parent]) -> QueryResult<()> {
    let jobs = jobs_of(parents).into_iter().map(NewRequest::Ended);
    let batches = batches_of(parents).into_iter().map(NewRequest::Batch);
    wanted_keys::request(conn, jobs.chain(batches))
}

/// Marks the parents of new jobs, so that their end is noticed.
///
/// The mark locks their rows until the transaction ends. So their executions are locked before, as far as they are free: a
/// worker passes these, and does not wait with the end of a claim for the row. One that was claimed during these looks is
/// found by the last one.
///
/// # Errors
/// `NotFound` if one was deleted since the caller looked, and no result says how it ended.
fn mark(conn: &mut Conn<'_>, jobs: &[i64], found: Parents) -> QueryResult<()> {
    if found == Parents::Existing && conn.dialect() == Dialect::Postgres {
        parents::keep_ended(conn, jobs)?;
    }
    // A statement of its own: it finds none that was deleted before the lock was granted.
    let marked = parents::marked(conn, jobs)?;
    let unmarked = jobs.iter().filter(|job| !marked.contains(job));
    let mut unmarked: Vec<i64> = unmarked.copied().collect();
    if unmarked.is_empty() {
        return Ok(());
    }
    if found == Parents::Existing && conn.dialect() == Dialect::Postgres {
        for state in [
            JobState::Scheduled,
            JobState::Blocked,
            JobState::Ready,
            JobState::Failed,
        ] {
            executions::lock_free(conn, state, &unmarked)?;
        }
        parents::keep_claims(conn, &unmarked)?;
    }
    let there = parents::mark(conn, &unmarked)?;
    unmarked.retain(|job| !there.contains(job));
    match parents::stored(conn, &unmarked)?.len() == unmarked.len() {
        true => Ok(()),
        false => Err(diesel::result::Error::NotFound),
    }
}

/// Keeps the batches that new jobs wait for until the transaction ends.
///
/// # Errors
/// `NotFound` if one was deleted since the caller looked.
fn keep(conn: &mut Conn<'_>, batches: &[i64]) -> QueryResult<()> {
    if batches.is_empty() || batches::keep_open(conn, batches)? == batches.len() {
        return Ok(());
    }
    Err(diesel::result::Error::NotFound)
}

// --- Jobs that undo steps of others ---

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
    edges::insert_edges(conn, &[edge])
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
    let waiting = edges::dependent_children(conn, &undos)?;
    if waiting.is_empty() {
        return Ok(());
    }
    parents::depend_again(conn, &waiting)
}
