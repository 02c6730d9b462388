//! Enqueueing batches.

use crate::db::model::extras::On;
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::batches::{self, NewBatchRow};
use crate::db::transition::enqueue::insert::rank_by_time;
use crate::db::transition::enqueue::{flows, whole};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing as _, Error, Result};
use crate::flow::batch::{Batch, ToAdd};
use crate::job::enqueued::Enqueued;
use crate::job::extras::refuse_named;
use crate::job::id::BatchId;
use crate::job::new_job::{NewJob, enqueue_in};
use crate::job::unknown_parents::refuse_unknown;
use crate::queue::check_name;

/// The largest metadata of a batch, in bytes.
const MOST_METADATA: usize = 65_536;

/// What the enqueue of a [`Batch`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueuedBatch {
    /// The batch's id.
    pub id: BatchId,
    /// The result for each of its jobs, in order, without those of the batches in it.
    pub jobs: Vec<Enqueued>,
}

impl Batch {
    /// Enqueues the batch with all its jobs, or nothing, on the given connection: as part of its transaction if one is
    /// open. A batch that is empty at the commit is over soon after it.
    ///
    /// # Errors
    /// If the name, the metadata or a job exceeds a limit (before any SQL is sent), a job that follows has a unique id,
    /// an idempotency key, a quota or a public token, or as for [`enqueue_all`](crate::enqueue_all).
    pub fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<EnqueuedBatch> {
        self.check()?;
        let enqueued = whole(&mut own(conn), |conn| insert(conn, self))?;
        conn.after_enqueue()?;
        Ok(enqueued)
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name(&self.name, "batch name")?;
        let metadata = self.metadata.as_ref();
        let problem = match metadata {
            Err(reason) => Some(reason.clone()),
            Ok(Some(text)) if text.len() > MOST_METADATA => Some(format!(
                "its metadata has {} bytes, and at most {MOST_METADATA} are stored: store the rest elsewhere",
                text.len()
            )),
            Ok(_) => None,
        };
        if let Some(reason) = problem {
            let name = &self.name;
            return Err(Error::Settings(format!(
                "cannot enqueue the batch `{name}`: {reason}"
            )));
        }
        let followers = self.followers.iter();
        followers
            .filter_map(|(_, job)| job.as_ref().ok())
            .try_for_each(check_follower)?;
        self.batches.iter().try_for_each(Batch::check)
    }
}

/// Refuses what only works for a job that is enqueued to run at once.
fn check_follower(job: &NewJob) -> Result<()> {
    let has = [
        (job.row.unique_id.is_some(), "a unique id"),
        (job.row.idempotency_key.is_some(), "an idempotency key"),
        (job.quota.is_some(), "a quota"),
        (job.access.wants_token, "a public token"),
    ];
    match has.iter().find(|(has, _)| *has) {
        None => Ok(()),
        Some((_, what)) => Err(Error::InvalidJob {
            class: job.row.class_name.clone(),
            reason: format!("it follows a batch, and cannot have {what}"),
        }),
    }
}

pub(crate) fn insert(conn: &mut Conn<'_>, batch: Batch) -> Result<EnqueuedBatch> {
    const ACTION: &str = "enqueue the batch";
    let uuid = format!("windlass-{:032x}", fastrand::u128(..));
    let new = NewBatchRow {
        name: &batch.name,
        metadata: batch.metadata.as_ref().ok().and_then(Option::as_deref),
        uuid: &uuid,
    };
    let id = batches::insert(conn, &new).doing(ACTION)?;
    for runs_on in [On::Success, On::Failure, On::Finish] {
        let rows = followers(conn, &batch, runs_on)?;
        flows::follow(conn, id, &rows, runs_on, batch.otherwise(runs_on)).doing(ACTION)?;
    }
    let is_empty = batch.jobs.is_empty() && batch.batches.is_empty();
    let jobs = batch.jobs.into_iter().map(|job| Ok(job?));
    let (jobs, new) = enqueue_in(conn, id, jobs.collect::<Result<Vec<_>>>()?)?;
    flows::fill(conn, id, &new).doing(ACTION)?;
    for inner in batch.batches {
        let inner = insert(conn, inner)?;
        flows::nest(conn, id, inner.id.0).doing(ACTION)?;
    }
    if is_empty || new.is_empty() {
        flows::end_if_empty(conn, id).doing(ACTION)?;
    }
    Ok(EnqueuedBatch {
        id: BatchId(id),
        jobs,
    })
}

/// Returns the rows of the jobs that follow on an outcome.
fn followers(conn: &mut Conn<'_>, batch: &Batch, runs_on: On) -> Result<Vec<NewRow>> {
    let jobs = batch.followers.iter().filter(|(on, _)| *on == runs_on);
    let rows = jobs.map(|(_, job): &(_, ToAdd)| job.clone()?.into_row());
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    refuse_named(conn, &mut rows)?;
    refuse_unknown(conn, &rows)?;
    rank_by_time(conn, &mut rows).doing("read the time")?;
    Ok(rows)
}
