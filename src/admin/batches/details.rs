//! One batch, with what follows it.

use crate::admin::batches::BatchSummary;
use crate::admin::job_info::{self, TaskStatus};
use crate::db::query::batches::walk::{self, Members};
use crate::db::query::batches::{self, FollowingJob};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing as _, Error, Result};
use crate::job::{BatchId, JobId};
use serde::Serialize;

/// A batch, with what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchDetails {
    /// What a list shows of it. Its jobs are counted up to 1,000,000.
    #[serde(flatten)]
    pub batch: BatchSummary,
    /// Its metadata as JSON.
    pub metadata: Option<String>,
    /// The batch around it, if it is in one.
    pub outer: Option<BatchId>,
    /// Batches in it, at most 20.
    pub inner: Vec<BatchId>,
    /// The jobs that follow it, at most 20.
    pub follows: Vec<BatchFollower>,
    /// The first of its jobs that ended without success, at most 10.
    pub failed: Vec<FailedOfBatch>,
}

/// What becomes of a job that follows a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FollowerState {
    /// It waits for the end of the batch.
    Waits,
    /// It waits until failed jobs of the batch are retried, and have succeeded.
    WaitsForRetries,
    /// It was deleted, because the batch had another outcome.
    NotWanted,
    /// The batch has the outcome that it waited for; its status says the rest.
    Follows,
    /// An operator has cancelled or deleted it, or let it run before.
    Withdrawn,
}

/// A job that follows a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchFollower {
    /// Its id.
    pub job_id: JobId,
    /// Its class, while its row or its result is kept.
    pub class_name: Option<String>,
    /// On which outcome of the batch it runs: `success`, `failure` or `finish`.
    pub runs_on: String,
    /// What becomes of it.
    pub state: FollowerState,
    /// Its status, while its row or its result is kept.
    pub status: Option<TaskStatus>,
}

/// A job of a batch that has ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedOfBatch {
    /// Its id.
    pub job_id: JobId,
    /// The failed batch that it stands for, if it is not a job.
    pub inner: Option<BatchId>,
    /// Its class, while its row or its result is kept.
    pub class_name: Option<String>,
    /// Its status. It may have been retried since.
    pub status: Option<TaskStatus>,
    /// Why it failed.
    pub error: Option<String>,
}

/// How far the jobs of one batch are counted: 0.1 s for each kind.
const COUNTED_OF_ONE: i64 = 1_000_000;

/// How many jobs that follow, and batches in a batch, are read.
const NAMED: usize = 20;

/// How many failed jobs are read.
const FIRST_FAILED: usize = 10;

impl BatchId {
    /// Returns the batch with what follows it, and its first failed jobs.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let report = NewJob::of_class("report", "{}");
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).on_success(report);
    /// let details = batch.enqueue(&mut conn)?.id.details(&mut conn)?;
    /// assert_eq!(details.follows[0].class_name.as_deref(), Some("report"));
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`] if there is none, or it is not kept any more. Also if the database does not answer or has
    /// no tables.
    pub fn details<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<BatchDetails> {
        look(&mut own(conn), self, COUNTED_OF_ONE)?.ok_or(Error::NoSuchBatch { id: self.0 })
    }
}

/// Reads a batch, and counts its jobs up to `most`.
pub(crate) fn look(conn: &mut Conn<'_>, batch: BatchId, most: i64) -> Result<Option<BatchDetails>> {
    const ACTION: &str = "read the batch";
    let Some(row) = batches::one(conn, batch.0, most).doing(ACTION)? else {
        return Ok(None);
    };
    let following = batches::following(conn, batch.0, NAMED).doing(ACTION)?;
    let outer = following.iter().find_map(|job| job.outer_batch);
    let follows = following.iter().filter(|job| job.outer_batch.is_none());
    let follows = follows.map(|job| follower(conn, job));
    let follows = follows.collect::<Result<_>>()?;
    let inner = batches::inner(conn, &[batch.0], NAMED).doing(ACTION)?;
    let failed = walk::page(conn, Members::Failed, (batch.0, 0), FIRST_FAILED).doing(ACTION)?;
    let failed = failed.iter().map(|row| failed_job(conn, row));
    let failed = failed.collect::<Result<_>>()?;
    Ok(Some(BatchDetails {
        metadata: row.metadata.clone(),
        batch: BatchSummary::of(row, most),
        outer: outer.map(BatchId),
        inner: inner.into_iter().map(|(_, id)| BatchId(id)).collect(),
        follows,
        failed,
    }))
}

fn follower(conn: &mut Conn<'_>, job: &FollowingJob) -> Result<BatchFollower> {
    let task = job_info::look(conn, job.job_id)?;
    let status = task.as_ref().map(|task| task.status);
    Ok(BatchFollower {
        job_id: JobId(job.job_id),
        state: state(job, status),
        class_name: task.map(|task| task.class_name),
        runs_on: job.runs_on.clone(),
        status,
    })
}

fn state(job: &FollowingJob, status: Option<TaskStatus>) -> FollowerState {
    let waits = status == Some(TaskStatus::Queued);
    let fits = match (&*job.runs_on, job.outcome.as_deref()) {
        (_, None) if waits => return FollowerState::Waits,
        (_, None) => return FollowerState::Withdrawn,
        ("success", Some(outcome)) => outcome == "succeeded",
        ("failure", Some(outcome)) => outcome == "failed",
        (_, Some(_)) => true,
    };
    match (fits, &*job.otherwise) {
        (true, _) => FollowerState::Follows,
        (false, "wait") if waits => FollowerState::WaitsForRetries,
        (false, _) if status.is_some() => FollowerState::Withdrawn,
        (false, _) => FollowerState::NotWanted,
    }
}

fn failed_job(conn: &mut Conn<'_>, row: &walk::MemberRow) -> Result<FailedOfBatch> {
    let task = match row.inner_batch {
        None => job_info::look(conn, row.job_id)?,
        Some(_) => None,
    };
    Ok(FailedOfBatch {
        job_id: JobId(row.job_id),
        inner: row.inner_batch.map(BatchId),
        status: task.as_ref().map(|task| task.status),
        error: task.as_ref().and_then(|task| task.error.clone()),
        class_name: task.map(|task| task.class_name),
    })
}
