//! What a job is: the trait, what it sees while it runs, how it may end.

use crate::db::AsConn;
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::Hook;
use crate::error::{Error, Result};
use crate::job::concurrency::Concurrency;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::new_job::{Enqueued, NewJob};
use crate::job::policy::Policy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A type of job: its arguments are the fields of the type that implements it.
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
    /// The class name under which jobs of this type are stored. It stays the
    /// same while such jobs wait; see [`ALIASES`](Self::ALIASES).
    const NAME: &'static str;
    /// Former names of this type, still performed.
    const ALIASES: &'static [&'static str] = &[];
    /// The queue, unless one enqueue says otherwise.
    const QUEUE: &'static str = "default";
    /// Smaller is more important.
    const PRIORITY: i32 = 0;
    /// How many bytes the arguments may take as JSON.
    const MAX_ARGUMENTS: usize = 64 * 1024;

    /// How many bytes what it returns may take as JSON. A job that returns
    /// more has succeeded, but its result is not kept: instead of it, the
    /// [`TaskInfo`](crate::TaskInfo) has an `error` that says so.
    const MAX_RESULT: usize = 64 * 1024;

    /// The fields of the arguments that are secret: `windlass`, the logs and
    /// [`job_details`](crate::job_details) print them as `[hidden]`. A name
    /// hides the fields of this name at any depth; with dots, as in
    /// `card.number`, only those within such fields. They are stored as they
    /// are: a reader of the database sees them.
    ///
    /// A worker writes the names down when it starts; the arguments of classes
    /// that no worker has named are hidden as a whole.
    const REDACT: &'static [&'static str] = &[];

    /// What the application lends to jobs of this type; `()` for nothing.
    type State: Send + Sync + 'static;
    /// What performing gives; `()` for nothing. Whoever enqueued the job can
    /// ask for it, see [`wait_for`](crate::wait_for).
    type Output: Serialize;

    /// Does the work. An error or a panic is a failed attempt, after which the
    /// [`policy`](Self::policy) decides; a [`JobError`] may decide itself.
    ///
    /// # Errors
    /// Whatever goes wrong; `?` works on any error.
    fn perform(self, cx: &Context<'_, Self::State>) -> JobResult<Self::Output>;

    /// How often it is tried, how long it may take, and what is kept of it,
    /// unless one enqueue says otherwise. Default: one attempt, at least
    /// once, without a time limit.
    fn policy() -> Policy {
        Policy::new()
    }

    /// What only one job at a time may be about, see
    /// [`NewJob::unique_id`](crate::NewJob::unique_id), unless one enqueue
    /// says otherwise. Default: nothing.
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

    /// How many jobs of which key may be under way at once, see
    /// [`Concurrency`], unless one enqueue says otherwise. Default: no limit.
    fn concurrency(&self) -> Option<Concurrency> {
        None
    }

    /// How long to wait before the next attempt, for a type that knows better
    /// than a [`Backoff`](crate::Backoff); `attempt` is the one that failed, 1
    /// the first. `None`: as the policy says.
    fn retry_in(attempt: u32, error: &JobError) -> Option<Duration> {
        let _ = (attempt, error);
        None
    }

    /// Enqueues the job with the defaults of its type, on the caller's own
    /// connection and in the caller's own transaction, if there is one: a
    /// rollback takes the job along.
    ///
    /// On SQLite, begin a transaction that enqueues after reading with
    /// `immediate_transaction`: a deferred one is refused at once when
    /// another process writes in between.
    ///
    /// # Errors
    /// When a limit is broken (nothing was sent then) or a statement fails.
    fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued>
    where
        Self: Sized,
    {
        NewJob::new(&self)?.enqueue(conn)
    }
}

impl NewJob {
    /// Takes the job's arguments and the defaults of its type.
    ///
    /// # Errors
    /// When the arguments cannot be written as JSON.
    pub fn new<J: Job>(job: &J) -> Result<Self> {
        let arguments = serde_json::to_string(job).map_err(|error| Error::InvalidJob {
            class: J::NAME.to_owned(),
            reason: format!("its arguments cannot be written as JSON: {error}"),
        })?;
        let (class, queue) = (J::NAME.to_owned(), J::QUEUE.to_owned());
        let mut row = NewRow::new(class, arguments, queue, J::PRIORITY);
        row.unique_id = job.unique_id();
        Ok(NewJob {
            row,
            policy: J::policy(),
            concurrency: job.concurrency(),
            max_arguments: J::MAX_ARGUMENTS,
            is_text: false,
        })
    }
}

impl Policy {
    /// When the job has failed for good, enqueues a job of type `J` in the
    /// same transaction, whoever notices: also a supervisor that has none of
    /// the program's code. It gets a [`JobFailed`] as its arguments.
    pub fn on_failure<J: Job>(mut self) -> Self {
        self.on_failure = Some(Hook {
            class: J::NAME.to_owned(),
            queue: J::QUEUE.to_owned(),
            priority: J::PRIORITY,
        });
        self
    }
}
