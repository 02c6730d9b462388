//! Changes the arguments of a job that no process holds.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::extras::{TagChange, with_version};
use crate::db::table::jobs::{self, EditableJob};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{blocked, executions, ready, scheduled, shares};
use crate::db::transition::runnable;
use diesel::QueryResult;

/// The result of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EditOutcome {
    Done,
    /// A process holds the job.
    Claimed,
    /// The job has finished, or was cancelled or discarded.
    Ended,
    /// The job moved while it was searched for.
    Moved,
    Missing,
}

/// The new arguments of a job.
#[derive(Debug)]
pub(crate) struct NewArguments {
    /// As JSON text.
    pub(crate) text: String,
    /// Their version. `None` keeps the one that is stored.
    pub(crate) version: Option<u32>,
}

/// The states of jobs that can be edited, in the order of locks.
const STATES: [JobState; 4] = [
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Ready,
    JobState::Failed,
];

/// Replaces the arguments of a job that waits or has failed by what `edit` makes of them. The
/// execution is locked first, so the job cannot be claimed meanwhile.
pub(crate) fn edit<E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    job: i64,
    edit: impl FnOnce(&EditableJob) -> Result<NewArguments, E>,
) -> Result<EditOutcome, E> {
    conn.transaction(|conn| {
        let mut found = None;
        for state in STATES {
            if !executions::lock(conn, state, &[job])?.is_empty() {
                found = Some(state);
                break;
            }
        }
        let Some(row) = jobs::editable(conn, job)? else {
            return Ok(EditOutcome::Missing);
        };
        let Some(state) = found else {
            return Ok(match row.place.as_str() {
                "claimed" => EditOutcome::Claimed,
                "ended" => EditOutcome::Ended,
                _ => EditOutcome::Moved,
            });
        };
        let new = edit(&row)?;
        jobs::set_arguments(conn, job, &new.text)?;
        if let Some(version) = new.version {
            set_version(conn, job, version)?;
        }
        renew(conn, job, state)?;
        Ok(EditOutcome::Done)
    })
}

/// Replaces the execution of a job that may be claimed. A claim that has started may have read the
/// old arguments already. It does not find the execution that it has seen any more.
fn renew(conn: &mut Conn<'_>, job: i64, state: JobState) -> QueryResult<()> {
    match state {
        // The end of the job before it claims it.
        JobState::Blocked => blocked::renew(conn, job),
        JobState::Ready => {
            let slots = ready::take(conn, &[job])?;
            if slots.iter().any(|slot| slot.concurrency_key.is_some()) {
                // It keeps its slot.
                return ready::insert_ready(conn, &[job]);
            }
            let semaphores = slots.iter().filter_map(|slot| slot.semaphore_id);
            wanted_keys::request(conn, semaphores.map(|id| NewRequest::Semaphore(id, 1)))?;
            runnable::make_runnable(conn, &[job])
        }
        _ => Ok(()),
    }
}

/// Stores the version of a job's arguments, with its policy as it is now.
fn set_version(conn: &mut Conn<'_>, job: i64, version: u32) -> QueryResult<()> {
    let policies = jobs::lock_policies(conn, &[job])?.into_iter();
    let changed = policies.filter_map(|row| {
        let policy = with_version(row.policy.as_deref(), version)?;
        Some((row.id, policy))
    });
    jobs::set_policies(conn, &changed.collect::<Vec<_>>())
}

// --- Moves waiting jobs to another queue ---

/// Gives waiting jobs another queue, and returns those that had a different one. They keep their
/// time, their priority and their slot.
///
/// Their executions are replaced by new ones: a claim or a dispatch that has started may have read
/// the old row of the job already, and does not find the execution that it has seen any more.
pub(crate) fn requeue(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let mut found = Vec::new();
        for state in JobState::WAITING {
            found.extend(executions::lock(conn, state, jobs)?);
        }
        found.sort_unstable();
        found.dedup();
        let found = others(conn, &found, queue)?;
        if found.is_empty() {
            return Ok(found);
        }
        let later = scheduled::take_rows(conn, &found)?;
        let waiting = blocked::take_for_queue(conn, &found, queue)?;
        let now = ready::take_rows(conn, &found)?;
        set_queue(conn, &found, queue)?;
        shares::requeue(conn, &found, queue)?;
        scheduled::put_rows(conn, &later, queue)?;
        if !waiting.is_empty() {
            runnable::make_runnable(conn, &waiting)?;
        }
        ready::put_rows(conn, &now, queue)?;
        Ok(found)
    })
}

/// Locks the rows of jobs, and returns those of another queue.
fn others(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<Vec<i64>> {
    let text = "SELECT id AS job_id FROM solid_queue_jobs WHERE id IN {in $1} AND queue_name <> $2 \
         ORDER BY id {lock}";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(queue)
        .load::<Execution>(conn)
        .map(job_ids)
}

fn set_queue(conn: &mut Conn<'_>, jobs: &[i64], queue: &str) -> QueryResult<()> {
    let text =
        "UPDATE solid_queue_jobs SET queue_name = $1, updated_at = {now} WHERE id IN {in $2}";
    Statement::new(text)
        .bind(queue)
        .bind(id_list(jobs))
        .execute(conn)
}

// --- Adds tags to jobs, and removes them ---

/// Changes the tags of jobs, and returns the jobs that have changed.
///
/// Only their rows are locked: a tag decides nothing about a claim, so a running job may be tagged.
pub(crate) fn tag(
    conn: &mut Conn<'_>,
    ids: &[i64],
    change: TagChange<'_>,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let policies = jobs::lock_policies(conn, ids)?;
        let changed = policies.into_iter().filter_map(|row| {
            let policy = change.apply(row.policy.as_deref())?;
            Some((row.id, policy))
        });
        let changed: Vec<(i64, String)> = changed.collect();
        jobs::set_policies(conn, &changed)?;
        Ok(changed.into_iter().map(|(id, _)| id).collect())
    })
}
