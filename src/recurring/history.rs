//! The past ticks of a task.

use crate::db::model::state::JobState;
use crate::db::query::load::tasks;
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::job::id::JobId;
use chrono::{DateTime, Utc};

/// A tick that had a job, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TickStatus {
    /// The time of the tick.
    pub tick: DateTime<Utc>,
    /// Its job.
    pub job_id: JobId,
    /// The current state of its job.
    pub state: JobState,
    /// When its job ended; `None` if it has not, or has failed.
    pub finished_at: Option<DateTime<Utc>>,
}

/// Returns the latest ticks of a task that had a job, newest first, with the states of their jobs.
///
/// Ticks older than seven days, and those whose job was deleted, are not included.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn ticks<C: AsConn + ?Sized>(conn: &mut C, key: &str, count: usize) -> Result<Vec<TickStatus>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let rows =
        tasks::list(&mut own(conn), key, count).doing("read the history of the recurring task")?;
    let ticks = rows.into_iter().map(|row| TickStatus {
        tick: row.run_at.and_utc(),
        job_id: JobId(row.job_id),
        state: match row.state.as_str() {
            "claimed" => JobState::Claimed,
            "scheduled" => JobState::Scheduled,
            "blocked" => JobState::Blocked,
            "ready" => JobState::Ready,
            "failed" => JobState::Failed,
            "cancelled" => JobState::Cancelled,
            "discarded" => JobState::Discarded,
            _ => JobState::Finished,
        },
        finished_at: row.finished_at.map(|time| time.and_utc()),
    });
    Ok(ticks.collect())
}
