//! The `Job` trait.

use crate::db::AsConn;
use crate::db::model::extras::FollowUpJob;
use crate::error::Result;
use crate::job::Enqueued;
use crate::job::concurrency::Concurrency;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::new_job::NewJob;
use crate::job::policy::Policy;
use crate::job::policy::quota::Quota;
use crate::job::rate::Rate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// A type of job, whose fields are the job's arguments.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::{Context, Job, JobResult};
///
/// struct Mailer;
/// impl Mailer {
///     fn deliver(&self, _to: &str) -> Result<(), std::io::Error> { Ok(()) }
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
/// }
///
/// impl Job for SendEmail {
///     const NAME: &'static str = "send_email";
///     type State = Mailer;
///     type Output = ();
///
///     fn perform(self, cx: &Context<'_, Mailer>) -> JobResult {
///         cx.deliver(&self.to)?;
///         Ok(())
///     }
/// }
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The class name under which jobs of this type are stored.
    ///
    /// Do not change it while such jobs wait; see [`ALIASES`](Self::ALIASES).
    const NAME: &'static str;
    /// Former names of this type, which are still performed.
    const ALIASES: &'static [&'static str] = &[];
    /// The queue, unless the enqueue sets another.
    const QUEUE: &'static str = "default";
    /// The priority; a smaller number is more important.
    const PRIORITY: i32 = 0;
    /// The maximum size of the arguments as JSON, in bytes. Default: 64 KiB.
    ///
    /// A worker stores it when it starts, with the queue, the priority and what the [`policy`](Self::policy) says of
    /// attempts, crashes and at-most-once delivery. From then on, an enqueue by the name of the class has these as well,
    /// where it leaves them out: by SQL, over HTTP, and by `windlass enqueue`.
    const MAX_ARGUMENTS: usize = 64 * 1024;

    /// The maximum size of the returned value as JSON, in bytes. Default: 64 KiB.
    ///
    /// A job that returns more succeeds, but its result is not kept: its
    /// [`TaskInfo`](crate::jobs::TaskInfo) has an `error` that explains this.
    const MAX_RESULT: usize = 64 * 1024;

    /// The maximum size of the value of a [step](crate::Context::step) as JSON, in bytes. Default: 64 KiB.
    const MAX_STEP: usize = 64 * 1024;

    /// The fields that are secret: `windlass`, its pages, the logs and
    /// [`jobs::find`](crate::jobs::find()) show them as `[hidden]`, in arguments, steps, results and metadata.
    ///
    /// A value that such a field has in the arguments is also replaced in errors, log lines and the progress
    /// of the job, before they are stored. Values of one character are not.
    ///
    /// A name hides every field with this name, at any depth. A name with dots is a path:
    /// `card.number` hides only `number` within `card`. The database still contains the values, so
    /// anyone who can read it sees them.
    ///
    /// A worker records these names when it starts. Until a worker has done so for a class, all
    /// arguments of that class are hidden.
    const REDACT: &'static [&'static str] = &[];

    /// The version of the arguments. Default: 1.
    ///
    /// Raise it if arguments that are already stored do not match the type any more, and convert
    /// those in [`upcast`](Self::upcast). The version is stored with each job. A worker that only
    /// knows an older version releases the job for 30 s at a time, so that a worker of the newer
    /// program can run it; no attempt is used.
    const VERSION: u32 = 1;

    /// True if only the program's own code may enqueue jobs of this type, as values of the type.
    /// Default: `false`.
    ///
    /// `windlass enqueue`, [`NewJob::of_class`](crate::NewJob::of_class) and
    /// [`Registry::new_job`](crate::Registry::new_job) refuse it, so a class name from outside cannot
    /// lead to it. A worker records this when it starts; until one has done so, programs that do not
    /// have the type cannot know it. Configured recurring tasks may use it.
    const INTERNAL: bool = false;

    /// True if a [public token](crate::NewJob::public_token) of such a job also shows its result.
    /// Default: `false`.
    const PUBLIC_RESULT: bool = false;

    /// The application's state, which jobs of this type borrow; `()` for none.
    type State: Send + Sync + 'static;
    /// The value that the job returns; `()` for none. Callers can read it with
    /// [`wait_for`](crate::jobs::wait_for).
    type Output: Serialize;

    /// Does the work of the job.
    ///
    /// An error or a panic makes the attempt fail, and the [`policy`](Self::policy) decides what
    /// happens next. A [`JobError`] can override the policy.
    ///
    /// # Errors
    /// Any error that makes the attempt fail; `?` accepts every error type.
    fn perform(self, cx: &Context<'_, Self::State>) -> JobResult<Self::Output>;

    /// Converts arguments of an older [`VERSION`](Self::VERSION) to those of the current one. It is
    /// called before the arguments are read as this type. Default: they stay as they are.
    ///
    /// Jobs that Ruby enqueued have version 1, as have those enqueued by name without a version.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobError, JobResult};
    /// use serde_json::Value;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Greet { names: Vec<String> }
    ///
    /// impl Job for Greet {
    ///     const NAME: &'static str = "greet";
    ///     const VERSION: u32 = 2;
    ///     type State = ();
    ///     type Output = ();
    ///     // Version 1 had one `name`.
    ///     fn upcast(_version: u32, old: Value) -> Result<Value, JobError> {
    ///         Ok(serde_json::json!({ "names": [old["name"]] }))
    ///     }
    ///     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
    /// }
    /// ```
    ///
    /// The names in [`REDACT`](Self::REDACT) hide fields of all versions: keep the names of former
    /// fields there as long as such jobs are stored.
    ///
    /// # Errors
    /// Any error; the attempt fails with it, and the policy decides what happens next.
    fn upcast(version: u32, arguments: Value) -> Result<Value, JobError> {
        let _ = version;
        Ok(arguments)
    }

    /// Returns how often the job is tried, how long it may run and what is kept of it, unless the
    /// enqueue sets otherwise.
    ///
    /// Default: one attempt, at least once, without a time limit.
    fn policy() -> Policy {
        Policy::new()
    }

    /// Returns the [unique id](crate::NewJob::unique_id), which only one job may hold at a time,
    /// unless the enqueue sets another. Default: `None`.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// #[derive(Serialize, Deserialize)]
    /// struct Sync { customer: u64 }
    ///
    /// impl Job for Sync {
    ///     const NAME: &'static str = "sync";
    ///     type State = ();
    ///     type Output = ();
    ///     fn unique_id(&self) -> Option<String> {
    ///         Some(format!("sync/{}", self.customer))
    ///     }
    ///     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
    /// }
    /// ```
    fn unique_id(&self) -> Option<String> {
        None
    }

    /// Returns the [concurrency limit](Concurrency) of this job, unless the enqueue sets another.
    /// Default: `None`, no limit.
    fn concurrency(&self) -> Option<Concurrency> {
        None
    }

    /// Returns the [rate](Rate) at which jobs with its key start. Default: `None`, no rate.
    fn rate(&self) -> Option<Rate> {
        None
    }

    /// Returns all [rates](Rate) of this job, if it has several. Default: that of [`rate`](Self::rate).
    fn rates(&self) -> Vec<Rate> {
        self.rate().into_iter().collect()
    }

    /// Returns the tenant that this job is for, a text of 1 to 255 bytes without control characters: the customer, for
    /// example. The tenants take turns in a queue whose threads are [shared](crate::tenants). Default: `None`, the job
    /// does not wait for a turn.
    fn tenant(&self) -> Option<String> {
        None
    }

    /// Returns the [quota](Quota) that enqueues of this job count against, unless the enqueue sets
    /// another. Default: that of the [class](Self::class_quota).
    fn quota(&self) -> Option<Quota> {
        Self::class_quota()
    }

    /// Returns the [quota](Quota) of enqueues of this class. Default: `None`, no quota.
    ///
    /// A worker stores it when it starts. From then on, enqueues by the name of the class count
    /// against it too: by SQL, over HTTP, and by `windlass enqueue`.
    fn class_quota() -> Option<Quota> {
        None
    }

    /// Returns the delay before the next attempt, for types that need more than a
    /// [`Backoff`](crate::Backoff).
    ///
    /// `attempt` is the attempt that failed, starting at 1. Returns `None` to use the policy's
    /// back-off.
    fn retry_in(attempt: u32, error: &JobError) -> Option<Duration> {
        let _ = (attempt, error);
        None
    }

    /// Enqueues the job with the defaults of its type, on the given connection.
    ///
    /// If a transaction is open on the connection, the job is part of it: a rollback also removes
    /// the job.
    ///
    /// On SQLite, use `immediate_transaction` for a transaction that enqueues after reading. SQLite
    /// rejects a deferred one immediately if another process writes in between.
    ///
    /// # Errors
    /// If a limit is exceeded (before any SQL is sent) or a statement fails.
    fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued>
    where
        Self: Sized,
    {
        NewJob::new(&self)?.enqueue(conn)
    }
}

impl NewJob {
    /// Sets the quota; it overrides that of the job's type.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Removes the quota of the job's type: this job is neither refused nor counted.
    pub fn without_quota(mut self) -> Self {
        self.quota = None;
        self
    }
}

impl Policy {
    /// Enqueues a job of type `J` when this job has failed permanently, in the same transaction.
    ///
    /// It receives a [`JobFailed`](crate::policies::JobFailed) as its arguments. This also works if a
    /// supervisor detects the failure, even one without the program's code.
    pub fn on_failure<J: Job>(mut self) -> Self {
        self.on_failure = Some(FollowUpJob {
            class: J::NAME.to_owned(),
            queue: J::QUEUE.to_owned(),
            priority: J::PRIORITY,
        });
        self
    }
}
