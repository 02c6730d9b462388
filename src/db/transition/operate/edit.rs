//! Changes the arguments of a job that no process holds.

use crate::db::conn::connection::Conn;
use crate::db::model::state::JobState;
use crate::db::table::jobs::{self, EditableJob};
use crate::db::table::ready;
use crate::db::transition::operate::lock;
use crate::db::transition::place;

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
    edit: impl FnOnce(&EditableJob) -> Result<String, E>,
) -> Result<EditOutcome, E> {
    conn.transaction(|conn| {
        let mut found = None;
        for state in STATES {
            if !lock(conn, state, &[job])?.is_empty() {
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
        jobs::set_arguments(conn, job, &edit(&row)?)?;
        if state == JobState::Ready {
            // A claim that has started may have read the old arguments already. It does not find the
            // execution that it has seen any more.
            if ready::take(conn, &[job])?.is_empty() {
                place::make_runnable(conn, &[job])?;
            } else {
                // It keeps its slot: otherwise another job could take the slot, and this one would be
                // overtaken or, if it does not wait for a slot, discarded.
                ready::insert(conn, &[job])?;
            }
        }
        Ok(EditOutcome::Done)
    })
}
