//! What outsiders see of a job, by its public token.

use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::db::table::claimed::Progress;
use crate::db::table::public_tokens;
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::job::enqueued::digest;
use chrono::{DateTime, Utc};
use serde_json::Value;

/// What outsiders may see of a job: no error, no arguments, no tags, and no names of its class, its
/// queue or a host.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct PublicTask {
    /// Its progress or outcome.
    pub status: TaskStatus,
    /// When it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
    /// The time before which the next attempt does not start, if there is one.
    pub retry_at: Option<DateTime<Utc>>,
    /// The progress it reported, with its text, as of the last heartbeat.
    pub progress: Option<Progress>,
    /// The value it returned, while that is kept. `None` if its type does not
    /// [allow](crate::Job::PUBLIC_RESULT) it.
    pub result: Option<Value>,
}

impl TaskInfo {
    /// Returns what outsiders may see of the job.
    ///
    /// The result is included only if this job was found by its public token, and its type
    /// [allows](crate::Job::PUBLIC_RESULT) it.
    pub fn public(&self) -> PublicTask {
        PublicTask {
            status: self.status,
            finished_at: self.finished_at,
            retry_at: self.retry_at,
            progress: self.progress.clone(),
            result: self.result.clone().filter(|_| self.shows_result),
        }
    }
}

/// Returns the status of the job to which a [public token](crate::NewJob::public_token) leads; give
/// outsiders only its [`public`](TaskInfo::public) part.
///
/// Returns `None` for every other text, and for a token whose job and result were deleted.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn task_info_by_token<C: AsConn + ?Sized>(
    conn: &mut C,
    token: &str,
) -> Result<Option<TaskInfo>> {
    let mut conn = own(conn);
    let found = public_tokens::find(&mut conn, &digest(token)).doing("look the token up")?;
    let Some(found) = found else { return Ok(None) };
    let task = job_info::look(&mut conn, found.job_id)?;
    Ok(task.map(|task| TaskInfo {
        shows_result: found.shows_result,
        ..task
    }))
}
