//! Batches: jobs that belong together, and jobs that follow when all of them have ended.

pub(crate) mod add;
pub(crate) mod enqueue;
pub(crate) mod of_job;
pub(crate) mod status;
pub(crate) mod to_job;

use crate::db::model::extras::{On, Otherwise};
use crate::error::{Error, Result};
use crate::flow::batch::to_job::ToNewJob;
use crate::job::new_job::NewJob;
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
    /// It cannot have a unique id, an idempotency key, a quota or a public token.
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

    /// Stores a value with the batch, as JSON of up to 64 KiB.
    pub fn metadata(mut self, value: &impl Serialize) -> Self {
        self.metadata = serde_json::to_string(value)
            .map(Some)
            .map_err(|error| format!("its metadata cannot be written as JSON: {error}"));
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
