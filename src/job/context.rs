//! What a job sees of its run.

use crate::clock;
use crate::db::model::claim::{Fence, Finished};
use crate::db::table::progress::Progress;
use crate::db::{Database, DbConnection, Typed};
use crate::error::Result;
use crate::job::error::Interrupted;
use crate::job::id::JobId;
use crate::job::lease::Lease;
use crate::job::policy::Policy;
use crate::job::running::Live;
use crate::job::step_memory::Steps;
use chrono::{DateTime, NaiveDateTime, Utc};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    pub fn postgres(&self) -> Result<crate::db::conn::typed::TypedPostgres> {
        Typed::new(self.connection()?)
    }

    /// The same as Diesel's own type, to be passed on as `&mut *conn`; see
    /// `postgres` for an example.
    ///
    /// # Errors
    /// As for [`connection`](Self::connection), and when the database of the
    /// queue is Postgres.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(&self) -> Result<crate::db::conn::typed::TypedSqlite> {
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

impl Signals {
    /// Whether the job was told of this interruption, or could see for itself
    /// that it is so. What was told need not hold any more: a heartbeat may
    /// have got through in the end.
    pub(crate) fn has_raised(&self, interrupted: Interrupted) -> bool {
        let live = &self.live;
        live.raised.load(Ordering::Relaxed) & interrupted.bit() != 0
            || match interrupted {
                Interrupted::Lost => self.lease.is_lost(),
                Interrupted::Stopping => self.stopping.load(Ordering::Relaxed),
                Interrupted::Cancelled => live.is_cancelled(),
                Interrupted::TimedOut => live.has_timed_out(),
            }
    }
}

impl<S: ?Sized> Context<'_, S> {
    /// For a loop in a long job: whether it should go on.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// # fn notify(_user: u64) {}
    /// #[derive(Serialize, Deserialize)]
    /// struct NotifyAll { users: Vec<u64> }
    ///
    /// impl Job for NotifyAll {
    ///     const NAME: &'static str = "notify_all";
    ///     type State = ();
    ///     type Output = ();
    ///     fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///         for user in self.users {
    ///             cx.check()?; // ends here when somebody cancels the job, or its time is over
    ///             notify(user);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Why the job should end; pass it on with `?`.
    pub fn check(&self) -> Result<(), Interrupted> {
        let signals = self.signals();
        signals.live.check(&signals.lease)
    }

    /// Sleeps, and wakes at once when [`check`](Self::check) would be an
    /// error: for a job that waits for something. While the process stops it
    /// sleeps on, until the shutdown timeout is over: to end before, ask
    /// [`is_stopping`](Self::is_stopping) now and then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// # fn is_there() -> bool { true }
    /// # #[derive(Serialize, Deserialize)]
    /// # struct AwaitFile;
    /// # impl Job for AwaitFile {
    /// #     const NAME: &'static str = "await_file";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     while !is_there() {
    ///         cx.sleep(Duration::from_secs(1))?;
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the job should end; pass it on with `?`.
    pub fn sleep(&self, duration: Duration) -> Result<(), Interrupted> {
        let signals = self.signals();
        signals
            .live
            .sleep(clock::deadline(duration), &signals.lease)
    }

    /// When the job's time is over, by the monotonic clock; `None` if its
    /// policy has no [`timeout`](crate::Policy::timeout).
    pub fn deadline(&self) -> Option<Instant> {
        self.signals().live.deadline()
    }

    /// How much of its time the job has left, zero when it is over: a limit
    /// for what it asks of others. `None` if its policy has no
    /// [`timeout`](crate::Policy::timeout).
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline()?;
        Some(deadline.saturating_duration_since(clock::instant()))
    }

    /// Tells how far the job is, in percent (0 to 100) and in words (at most
    /// 500 bytes, the rest is cut). It costs nothing: the next heartbeat of
    /// the process carries the newest, if it has changed, and so it can be
    /// some seconds old for those who [read](crate::processes) it.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Context, Job, JobResult};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Import { lines: Vec<String> }
    /// # impl Job for Import {
    /// #     const NAME: &'static str = "import";
    /// #     type State = ();
    /// #     type Output = ();
    /// fn perform(self, cx: &Context<'_, ()>) -> JobResult {
    ///     let all = self.lines.len();
    ///     for (done, line) in self.lines.iter().enumerate() {
    ///         cx.progress(100.0 * done as f64 / all as f64, format!("{done} of {all} lines"));
    ///         // ...
    /// #       let _ = line;
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn progress(&self, percent: f64, message: impl Into<String>) {
        self.signals()
            .live
            .tell(Progress::new(percent, message.into()));
    }
}
