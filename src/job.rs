//! What a job is: the trait, what it sees while it runs, how it may end.

use crate::clock;
use crate::concurrency::Concurrency;
use crate::db::claimed::{Fence, Finished};
use crate::db::{AsConn, Database, DbConnection, Typed};
use crate::enqueue::{Enqueued, NewJob};
use crate::error::Result;
use crate::live::Live;
use crate::outcome::{Interrupted, JobError, JobResult};
use crate::policy::Policy;
use crate::step::Steps;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The id of a job: its row in `solid_queue_jobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

/// How long a process may trust its claims: until a while after its last
/// heartbeat, counted from when that beat was *sent*, so that a slow answer
/// does not lengthen the trust.
#[derive(Debug)]
pub(crate) struct Lease {
    lasts: Duration,
    /// Milliseconds since boot.
    renewed: AtomicU64,
    lost: AtomicBool,
}

impl Lease {
    /// A lease that begins now.
    pub(crate) fn new(lasts: Duration) -> Self {
        let lease = Lease {
            lasts,
            renewed: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        };
        lease.renew(clock::since_boot());
        lease
    }

    /// A heartbeat that was sent at `sent` has been accepted.
    pub(crate) fn renew(&self, sent: Duration) {
        let sent = u64::try_from(sent.as_millis()).unwrap_or(u64::MAX);
        self.renewed.store(sent, Ordering::Relaxed);
    }

    /// Gives it up for good. False: it was lost before.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::Relaxed)
    }

    /// Whether it was given up or has run out.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) || self.has_run_out()
    }

    /// Whether too much time has passed since the last heartbeat.
    pub(crate) fn has_run_out(&self) -> bool {
        self.age() > self.lasts
    }

    /// How long it lasts without another heartbeat.
    pub(crate) fn left(&self) -> Duration {
        self.lasts.saturating_sub(self.age())
    }

    /// The time since the last heartbeat that was accepted.
    pub(crate) fn age(&self) -> Duration {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::Relaxed));
        clock::since_boot().saturating_sub(renewed)
    }
}

/// What a process tells the jobs it runs.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) live: Arc<Live>,
}

/// One run of a job: what the framework knows about it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) job_id: i64,
    pub(crate) fence: Fence,
    pub(crate) class_name: String,
    pub(crate) unique_id: Option<String>,
    pub(crate) queue_name: String,
    pub(crate) attempt: u32,
    /// Of the enqueue, the type and the program together.
    pub(crate) policy: Policy,
    pub(crate) enqueued_at: NaiveDateTime,
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    pub(crate) signals: Signals,
    pub(crate) database: Database,
    /// What becomes of the job's row when it finishes.
    pub(crate) finished: Finished,
    pub(crate) steps: Steps,
}

/// What a job sees while it runs.
///
/// It dereferences to the application's state: `cx.deliver(..)` calls a method
/// of it. Should a later version give this type a method of the same name, that
/// one is called; `cx.state().deliver(..)` always means the application's.
pub struct Context<'a, S: ?Sized> {
    state: &'a S,
    run: &'a Run,
}

impl<'a, S: ?Sized> Context<'a, S> {
    pub(crate) fn new(state: &'a S, run: &'a Run) -> Self {
        Context { state, run }
    }

    /// What the application lent to this type of job.
    pub fn state(&self) -> &'a S {
        self.state
    }

    /// The job's id.
    pub fn job_id(&self) -> JobId {
        JobId(self.run.job_id)
    }

    /// The claim's id. It grows with every run of a job, and is never used
    /// twice: hand it to outside systems as a fencing number, so that they
    /// can refuse a run that was overtaken.
    pub fn claim_id(&self) -> i64 {
        self.run.fence.claim_id
    }

    /// The class name under which the job was stored.
    pub fn class_name(&self) -> &'a str {
        &self.run.class_name
    }

    /// The job's queue.
    pub fn queue_name(&self) -> &'a str {
        &self.run.queue_name
    }

    /// 1 for the first attempt. Runs that were cut short by a stop or a crash
    /// do not count, and neither do those that snoozed.
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// When the job was enqueued, by the database's clock.
    pub fn enqueued_at(&self) -> DateTime<Utc> {
        self.run.enqueued_at.and_utc()
    }

    /// Not before when the job was to run, if a time was given.
    pub fn scheduled_at(&self) -> Option<DateTime<Utc>> {
        self.run.scheduled_at.map(|time| time.and_utc())
    }

    /// The tick of the recurring task for which the job was enqueued: the time
    /// at which it was due, however late it is. For one that was run by hand,
    /// when that was. `None`: the job is of no recurring task.
    pub fn tick(&self) -> Option<DateTime<Utc>> {
        self.run.policy.tick.as_ref().map(|tick| tick.at)
    }

    /// The key of the recurring task that enqueued the job.
    pub fn recurring_task(&self) -> Option<&'a str> {
        self.run.policy.tick.as_ref().map(|tick| tick.task.as_str())
    }

    /// Whether the process is asked to stop: a long job may end early with
    /// [`Interrupted::Stopping`](crate::Interrupted::Stopping), which gives it
    /// back, or go on for `shutdown_timeout`.
    pub fn is_stopping(&self) -> bool {
        self.run.signals.stopping.load(Ordering::Relaxed)
    }

    /// Whether the process lost its claim, so that the job may be running
    /// elsewhere too. Ask before an effect that must not happen twice.
    pub fn is_lost(&self) -> bool {
        self.run.signals.lease.is_lost()
    }

    /// Whether somebody asked for the job to be cancelled; learnt with a
    /// heartbeat, so some seconds later.
    pub fn is_cancelled(&self) -> bool {
        self.run.signals.live.is_cancelled()
    }

    pub(crate) fn signals(&self) -> &'a Signals {
        &self.run.signals
    }

    pub(crate) fn run(&self) -> &'a Run {
        self.run
    }

    /// Returns a connection from the worker's pool, to work or to enqueue with.
    ///
    /// While the database is away, this waits up to 5 minutes, and ends
    /// earlier when the process stops or [`check`](Self::check) is an error.
    ///
    /// # Errors
    /// - [`Error::Connect`](crate::Error::Connect) when no connection becomes
    ///   free within 30 seconds, or can be opened within 5 minutes.
    /// - [`Error::GaveUp`](crate::Error::GaveUp) when the job should end before
    ///   that. Pass it on with `?`: the job then ends as interrupted, not as
    ///   failed because of the database.
    pub fn connection(&self) -> Result<DbConnection> {
        let check = || {
            self.check()?;
            if self.is_stopping() {
                return Err(Interrupted::Stopping);
            }
            Ok(())
        };
        self.run.database.get_patiently(check)
    }

    /// The same as Diesel's own type, to be passed on as `&mut *conn`.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// use diesel::prelude::*;
    /// use windlass::{Context, Job, JobResult};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Activate { user: i64 }
    ///
    /// impl Job for Activate {
    ///     const NAME: &'static str = "activate";
    ///     type State = ();
    ///     type Output = ();
    ///     fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///         let conn = &mut *cx.postgres()?;
    ///         diesel::sql_query("UPDATE users SET active = true WHERE id = $1")
    ///             .bind::<diesel::sql_types::BigInt, _>(self.user)
    ///             .execute(conn)?;
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`connection`](Self::connection), and when the database of the
    /// queue is SQLite.
    #[cfg(feature = "postgres")]
    pub fn postgres(&self) -> Result<crate::db::TypedPostgres> {
        Typed::new(self.connection()?)
    }

    /// The same as Diesel's own type, to be passed on as `&mut *conn`; see
    /// `postgres` for an example.
    ///
    /// # Errors
    /// As for [`connection`](Self::connection), and when the database of the
    /// queue is Postgres.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(&self) -> Result<crate::db::TypedSqlite> {
        Typed::new(self.connection()?)
    }
}

impl<S: ?Sized> Deref for Context<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.state
    }
}

impl<S: ?Sized> fmt::Debug for Context<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("run", self.run)
            .finish_non_exhaustive()
    }
}
