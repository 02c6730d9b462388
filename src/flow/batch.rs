//! Batches: jobs that belong together, and jobs that follow when all of them have ended.

use crate::db::model::extras::{On, Otherwise};
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::batches::{self, NewBatchRow};
use crate::db::transition::enqueue::rank::rank_by_time;
use crate::db::transition::enqueue::{all_or_none, flows};
use crate::db::{AsConn, Conn, own, query};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::class::Job;
use crate::job::context::Context;
use crate::job::error::JobError;
use crate::job::extras::{refuse_named, refuse_unknown};
use crate::job::new_job::NewJob;
use crate::job::new_job::enqueue::{enqueue_in, keep_open};
use crate::job::{BatchId, Enqueued};
use crate::queue::check_name;
use chrono::{DateTime, Utc};
use serde::Serialize;

/// Jobs that belong together, and jobs that are enqueued with them and run when all of them have ended.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, NewJob};
/// # #[derive(Serialize, Deserialize)] struct Import { file: String }
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # #[derive(Serialize, Deserialize)] struct Report { of: String }
/// # impl Job for Report {
/// #     const NAME: &'static str = "report";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::Batch;
///
/// let batch = Batch::new("import")
///     .add(["a.csv", "b.csv"].map(|file| NewJob::new(&Import { file: file.into() })))
///     .on_success(&Report { of: "the import".into() })
///     .enqueue(&mut conn)?;
/// assert_eq!(batch.jobs.len(), 2);
/// assert_eq!(batch.id.status(&mut conn)?.open, 2);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// A job leaves its batch when it has finished, failed for good, been cancelled, discarded or deleted. Retries and
/// snoozes keep it. The batch is over when none is left. It has then *failed* if a job has failed or was cancelled, and
/// *succeeded* otherwise.
///
/// Of the jobs that follow, those that fit the outcome run, each once. The others are deleted; see
/// [`wait_for_retries`](Self::wait_for_retries) for an exception.
#[derive(Debug, Clone)]
#[must_use = "a batch is enqueued by `enqueue`"]
pub struct Batch {
    name: String,
    metadata: Result<Option<String>, String>,
    jobs: Vec<ToAdd>,
    batches: Vec<Batch>,
    followers: Vec<(On, ToAdd)>,
    waits_for_retries: bool,
    max_metadata: usize,
}

/// A job to add, or why there is none.
type ToAdd = Result<NewJob, InvalidArguments>;

/// A job whose arguments could not be written as JSON.
#[derive(Debug, Clone)]
struct InvalidArguments {
    class: String,
    reason: String,
}

impl InvalidArguments {
    fn of(error: Error) -> Self {
        match error {
            Error::InvalidJob { class, reason } => InvalidArguments { class, reason },
            error => InvalidArguments {
                class: "a job of a batch".to_owned(),
                reason: error.to_string(),
            },
        }
    }
}

impl From<InvalidArguments> for Error {
    fn from(InvalidArguments { class, reason }: InvalidArguments) -> Self {
        Error::InvalidJob { class, reason }
    }
}

impl Batch {
    /// Creates an empty batch. The name is for people, and many batches may have the same. It has 1 to 255 ASCII letters,
    /// digits and `_` `.` `:` `/` `-`, and no blank.
    pub fn new(name: impl Into<String>) -> Self {
        Batch {
            name: name.into(),
            metadata: Ok(None),
            jobs: Vec::new(),
            batches: Vec::new(),
            followers: Vec::new(),
            waits_for_retries: false,
            max_metadata: MOST_METADATA,
        }
    }

    /// Adds jobs. They may be of different types.
    ///
    /// A job that exists already, by its unique id or idempotency key, does not join the batch.
    #[allow(clippy::should_implement_trait, reason = "a batch is no number")]
    pub fn add<J: ToNewJob>(mut self, jobs: impl IntoIterator<Item = J>) -> Self {
        self.jobs.extend(jobs.into_iter().map(to_add));
        self
    }

    /// Adds a batch, which is enqueued with this one. This one is over when that one is too, and has failed if that one
    /// has.
    pub fn add_batch(mut self, batch: Batch) -> Self {
        self.batches.push(batch);
        self
    }

    /// Enqueues a job with the batch that runs when the batch has succeeded.
    ///
    /// It cannot have a unique id, an idempotency key, a quota, a public token or a batch of its own.
    pub fn on_success(self, job: impl ToNewJob) -> Self {
        self.follow(On::Success, job)
    }

    /// Enqueues a job with the batch that runs when the batch has failed, after all of its jobs have ended.
    pub fn on_failure(self, job: impl ToNewJob) -> Self {
        self.follow(On::Failure, job)
    }

    /// Enqueues a job with the batch that runs when the batch is over, whatever its outcome.
    pub fn on_finish(self, job: impl ToNewJob) -> Self {
        self.follow(On::Finish, job)
    }

    fn follow(mut self, runs_on: On, job: impl ToNewJob) -> Self {
        self.followers.push((runs_on, to_add(job)));
        self
    }

    /// Keeps the jobs of [`on_success`](Self::on_success) although the batch has failed: they run when its failed jobs
    /// were retried by hand, and all have succeeded. Such a retry opens the batch again. They are discarded once the batch
    /// is over and no retry can bring that any more: a job was cancelled, a failed one was deleted, or a batch in the batch
    /// has failed. Default: they are deleted, and the batch stays over.
    pub fn wait_for_retries(mut self) -> Self {
        self.waits_for_retries = true;
        self
    }

    /// Stores a value with the batch, as JSON of up to 64 KiB, or of [`max_metadata`](Self::max_metadata).
    pub fn metadata(mut self, value: &impl Serialize) -> Self {
        self.metadata = serde_json::to_string(value)
            .map(Some)
            .map_err(|error| format!("its metadata cannot be written as JSON: {error}"));
        self
    }

    /// Sets the maximum size of the metadata as JSON, in bytes. Default: 64 KiB.
    pub fn max_metadata(mut self, bytes: usize) -> Self {
        self.max_metadata = bytes;
        self
    }

    fn otherwise(&self, runs_on: On) -> Otherwise {
        match self.waits_for_retries && runs_on == On::Success {
            true => Otherwise::Wait,
            false => Otherwise::Drop,
        }
    }
}

fn to_add(job: impl ToNewJob) -> ToAdd {
    job.to_new_job().map_err(InvalidArguments::of)
}

// --- Adding jobs to a batch ---

impl BatchId {
    /// Enqueues jobs that belong to this batch too, all of them or none.
    ///
    /// The batch must not be over: add jobs in the transaction that enqueues the batch, or from a job of the batch. The
    /// batch does not end until the transaction does.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let batch = conn.transaction::<_, windlass::Error, _>(|conn| {
    ///     let batch = Batch::new("import").enqueue(conn)?.id;
    ///     for chunk in ["a", "b"] {
    ///         batch.add(conn, (0..1_000).map(|_| NewJob::of_class("import", format!("\"{chunk}\""))))?;
    ///     }
    ///     Ok(batch)
    /// })?;
    /// assert_eq!(batch.status(&mut conn)?.open, 2_000);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BatchOver`] if the batch is over, [`Error::NoSuchBatch`] if there is none, and those of
    /// [`enqueue_all`](crate::enqueue_all).
    pub fn add<C: AsConn + ?Sized, J: ToNewJob>(
        self,
        conn: &mut C,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Enqueued>> {
        let jobs = jobs.into_iter().map(ToNewJob::to_new_job);
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let enqueued = all_or_none(&mut own(conn), |conn| {
            keep_open(conn, self.0)?;
            let (enqueued, new) = enqueue_in(conn, self.0, jobs)?;
            flows::add(conn, self.0, &new).during("add jobs to the batch")?;
            Ok::<_, Error>(enqueued)
        })?;
        conn.after_enqueue()?;
        Ok(enqueued)
    }
}

// --- Enqueueing batches ---

/// The largest metadata of a batch, in bytes, unless the batch sets another maximum.
pub(crate) const MOST_METADATA: usize = 65_536;

/// The result of enqueueing a [`Batch`].
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
        let enqueued = all_or_none(&mut own(conn), |conn| insert_batch_and_jobs(conn, self))?;
        conn.after_enqueue()?;
        Ok(enqueued)
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name(&self.name, "batch name")?;
        let metadata = self.metadata.as_ref();
        let problem = match metadata {
            Err(reason) => Some(reason.clone()),
            Ok(Some(text)) if text.len() > self.max_metadata => Some(format!(
                "its metadata has {} bytes, and at most {} are stored: store the rest elsewhere, or raise `max_metadata`",
                text.len(),
                self.max_metadata
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
        (job.row.batch_id.is_some(), "a batch of its own"),
    ];
    match has.iter().find(|(has, _)| *has) {
        None => Ok(()),
        Some((_, what)) => Err(Error::InvalidJob {
            class: job.row.class_name.clone(),
            reason: format!("it follows a batch, and cannot have {what}"),
        }),
    }
}

pub(crate) fn insert_batch_and_jobs(conn: &mut Conn<'_>, batch: Batch) -> Result<EnqueuedBatch> {
    const ACTION: &str = "enqueue the batch";
    let uuid = format!("windlass-{:032x}", fastrand::u128(..));
    let new = NewBatchRow {
        name: &batch.name,
        metadata: batch.metadata.as_ref().ok().and_then(Option::as_deref),
        uuid: &uuid,
    };
    let id = batches::create_batch(conn, &new).during(ACTION)?;
    for runs_on in [On::Success, On::Failure, On::Finish] {
        let rows = followers(conn, &batch, runs_on)?;
        flows::follow(conn, id, &rows, runs_on, batch.otherwise(runs_on)).during(ACTION)?;
    }
    let is_empty = batch.jobs.is_empty() && batch.batches.is_empty();
    let jobs = batch.jobs.into_iter().map(|job| Ok(job?));
    let (jobs, new) = enqueue_in(conn, id, jobs.collect::<Result<Vec<_>>>()?)?;
    flows::fill(conn, id, &new).during(ACTION)?;
    for inner in batch.batches {
        let inner = insert_batch_and_jobs(conn, inner)?;
        flows::nest(conn, id, inner.id.0).during(ACTION)?;
    }
    if is_empty || new.is_empty() {
        flows::end_if_empty(conn, id).during(ACTION)?;
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
    rank_by_time(conn, &mut rows).during("read the time")?;
    Ok(rows)
}

// --- The batch of a job that runs ---

impl<S: ?Sized> Context<'_, S> {
    /// Returns the batch of this job. Jobs are added to it by [`BatchId::add`].
    ///
    /// # Errors
    /// If the job belongs to no batch. The job fails for good if you return that.
    pub fn batch(&self) -> std::result::Result<BatchId, JobError> {
        self.run().batch_id.map(BatchId).ok_or_else(|| {
            let message = "this job belongs to no batch: enqueue it with `Batch::add`";
            JobError::new("no_batch", message).fail()
        })
    }
}

// --- The progress of a batch ---

/// The progress of a [`Batch`](crate::Batch).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchStatus {
    /// The batch's id.
    pub id: BatchId,
    /// Its name.
    pub name: String,
    /// Its metadata as JSON.
    pub metadata: Option<String>,
    /// The number of its jobs and of the batches in it, whether they have ended or not. Jobs that were added later are
    /// counted some milliseconds after they were committed.
    pub total: u64,
    /// The number of those that have not ended.
    pub open: u64,
    /// The number of those that have failed or were cancelled.
    pub failures: u64,
    /// The time of its enqueue.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// The time at which the last of its jobs had ended.
    pub finished_at: Option<DateTime<Utc>>,
}

impl BatchStatus {
    /// Returns whether the batch is over.
    pub fn is_over(&self) -> bool {
        self.finished_at.is_some() && self.open == 0
    }

    /// Returns whether a job of it has failed or was cancelled, so far.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

impl BatchId {
    /// Returns how far the batch is. It counts the jobs that have not ended, which takes 0.1 s for a million.
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`] if there is none, or it is not kept any more. Also if the database does not answer or has
    /// no tables.
    pub fn status<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<BatchStatus> {
        let found = query::batches::status(&mut own(conn), self.0).during("read the batch")?;
        let row = found.ok_or(Error::NoSuchBatch { id: self.0 })?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(BatchStatus {
            id: self,
            name: row.name,
            metadata: row.metadata,
            total: count(row.total),
            open: count(row.open),
            failures: count(row.failures),
            enqueued_at: row.enqueued_at.map(|time| time.and_utc()),
            finished_at: row.finished_at.map(|time| time.and_utc()),
        })
    }
}

// --- Members of a batch ---

/// A job that can be added to a [`Batch`](crate::Batch): a job type's value, a [`NewJob`], or the result of
/// [`NewJob::new`].
///
/// ```
/// use windlass::flows::ToNewJob;
/// use windlass::{Batch, NewJob, Result};
///
/// /// Both a job of a type and a `NewJob` can be added.
/// fn add(batch: Batch, job: impl ToNewJob) -> Result<Batch> {
///     Ok(batch.add([job.to_new_job()?]))
/// }
/// add(Batch::new("import"), NewJob::of_class("import", "{}"))?;
/// # Ok::<(), windlass::Error>(())
/// ```
pub trait ToNewJob {
    /// Returns the job.
    ///
    /// # Errors
    /// If its arguments cannot be written as JSON.
    fn to_new_job(self) -> Result<NewJob>;
}

impl ToNewJob for NewJob {
    fn to_new_job(self) -> Result<NewJob> {
        Ok(self)
    }
}

impl ToNewJob for Result<NewJob> {
    fn to_new_job(self) -> Result<NewJob> {
        self
    }
}

impl<J: Job> ToNewJob for &J {
    fn to_new_job(self) -> Result<NewJob> {
        NewJob::new(self)
    }
}
