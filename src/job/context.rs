//! The context of a run.

use crate::clock;
use crate::db::model::claim::{Claimed, Fence, FinishedRow};
use crate::db::model::extras::Traceparent;
use crate::db::table::claimed::Progress;
use crate::db::{Database, DbConnection, Typed};
use crate::error::Result;
use crate::job::JobId;
use crate::job::bounds::MAX_STEP;
use crate::job::error::Interrupted;
use crate::job::policy::Policy;
use crate::job::run_log::{Cover, clean};
use crate::job::running::{Signals, Steps};
use chrono::{DateTime, NaiveDateTime, Utc};
use log::Level;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One run of a job, as the framework sees it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) job: Arc<Claimed>,
    pub(crate) job_id: i64,
    pub(crate) fence: Fence,
    pub(crate) batch_id: Option<i64>,
    pub(crate) attempt: u32,
    /// The policies of the enqueue, the type and the program combined.
    pub(crate) policy: Policy,
    pub(crate) enqueued_at: NaiveDateTime,
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    pub(crate) trace: RunTrace,
    pub(crate) signals: Signals,
    pub(crate) database: Database,
    /// The choice to keep or delete the job's row when the job finishes.
    pub(crate) finished: FinishedRow,
    pub(crate) steps: Steps,
    /// The longest time-out of a wait for an event.
    pub(crate) longest_wait: Duration,
}

/// The context that a job receives in [`Job::perform`](crate::Job::perform).
///
/// It dereferences to the application's state: `cx.deliver(..)` calls a method of the state. If a
/// later version adds a method with the same name to this type, that method is called instead.
/// `cx.state().deliver(..)` always calls the application's method.
///
/// ```
/// use windlass::{Context, JobResult};
///
/// fn import(cx: &Context<'_, ()>) -> JobResult {
///     cx.log(format!("attempt {} of job {}", cx.attempt(), cx.job_id()));
///     for row in 0..100 {
///         cx.check()?; // a stop, a timeout or a cancel ends the job here
///         cx.progress(f64::from(row), "rows"); // in percent
///     }
///     Ok(())
/// }
/// ```
pub struct Context<'a, S: ?Sized> {
    state: &'a S,
    run: &'a Run,
    /// It belongs to a function around the job, which may not finish it.
    pub(crate) is_around: bool,
    /// Hides secrets in what the job logs and reports.
    pub(crate) cover: Cover<'a>,
    /// The most bytes of a step's value.
    pub(crate) max_step: usize,
}

impl<'a, S: ?Sized> Context<'a, S> {
    pub(crate) fn new(state: &'a S, run: &'a Run) -> Self {
        Context {
            state,
            run,
            is_around: false,
            cover: Cover::default(),
            max_step: MAX_STEP,
        }
    }

    pub(crate) fn covered(self, cover: Cover<'a>) -> Self {
        Context { cover, ..self }
    }

    /// Sets the maximum size of a step's value.
    pub(crate) fn with_steps_of(self, bytes: usize) -> Self {
        Context {
            max_step: bytes,
            ..self
        }
    }

    /// Returns the application's state for this type of job.
    pub fn state(&self) -> &'a S {
        self.state
    }

    /// Returns the job's id.
    pub fn job_id(&self) -> JobId {
        JobId(self.run.job_id)
    }

    /// Returns the claim's id, which grows with every run of a job and is never reused.
    ///
    /// Pass it to external systems as a fencing number, so that they can reject a run that was
    /// superseded.
    pub fn claim_id(&self) -> i64 {
        self.run.fence.claim_id
    }

    /// Returns the class name under which the job was stored.
    pub fn class_name(&self) -> &'a str {
        &self.run.job.class_name
    }

    /// Returns the job's queue.
    pub fn queue_name(&self) -> &'a str {
        &self.run.job.queue_name
    }

    /// Returns the number of this attempt, starting at 1.
    ///
    /// Runs that were cut short by a stop or a crash do not count; neither do runs that snoozed.
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Returns when the job was enqueued, by the database's clock.
    pub fn enqueued_at(&self) -> DateTime<Utc> {
        self.run.enqueued_at.and_utc()
    }

    /// Returns the time before which the job was not to run. Returns `None` if no time was set.
    pub fn scheduled_at(&self) -> Option<DateTime<Utc>> {
        self.run.scheduled_at.map(|time| time.and_utc())
    }

    /// Returns the tick of the recurring task for which the job was enqueued.
    ///
    /// This is the time at which the run was due, even if it is late. For a task that was run by
    /// hand, it is the time of that. Returns `None` if the job does not belong to a recurring task.
    pub fn tick(&self) -> Option<DateTime<Utc>> {
        self.run.policy.tick.as_ref().map(|tick| tick.at)
    }

    /// Returns the key of the recurring task that enqueued the job, or `None` if there is none.
    pub fn recurring_task(&self) -> Option<&'a str> {
        self.run.policy.tick.as_ref().map(|tick| tick.task.as_str())
    }

    /// Returns `true` once the process is stopping.
    ///
    /// A long job can return [`Interrupted::Stopping`](crate::Interrupted::Stopping), which
    /// releases it, or continue for up to `shutdown_timeout`.
    pub fn is_stopping(&self) -> bool {
        self.run.signals.stopping.load(Ordering::Relaxed)
    }

    /// Returns `true` if the process lost its claim, so that the job may also be running elsewhere.
    /// Check this before an effect that must not happen twice.
    pub fn is_lost(&self) -> bool {
        self.run.signals.lease.is_lost()
    }

    /// Returns `true` once cancellation of the job was requested. The request reaches
    /// the process with a heartbeat, so some seconds later.
    pub fn is_cancelled(&self) -> bool {
        self.run.signals.live.is_cancelled()
    }

    pub(crate) fn signals(&self) -> &'a Signals {
        &self.run.signals
    }

    pub(crate) fn run(&self) -> &'a Run {
        self.run
    }

    /// Returns a connection from the worker's pool, for work or for enqueueing.
    ///
    /// While the database is unavailable, this waits for up to 5 min. It returns earlier if the
    /// process stops or [`check`](Self::check) returns an error.
    ///
    /// # Errors
    /// - [`Error::Connect`](crate::Error::Connect) if no connection becomes free within 30 s, or
    ///   none can be opened within 5 min.
    /// - [`Error::GaveUp`](crate::Error::GaveUp) if the job should stop before that. Return it with
    ///   `?`: the job then counts as interrupted, not as failed.
    pub fn connection(&self) -> Result<DbConnection> {
        let check = || {
            self.check()?;
            if self.is_stopping() {
                return Err(Interrupted::Stopping);
            }
            Ok(())
        };
        self.run.database.get_or_wait(check)
    }

    /// Returns a connection as Diesel's own type, which you pass on as `&mut *conn`.
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
    /// As for [`connection`](Self::connection), and if the queue's database is SQLite.
    #[cfg(feature = "postgres")]
    pub fn postgres(&self) -> Result<crate::db::conn::typed::TypedPostgres> {
        Typed::new(self.connection()?)
    }

    /// Returns a connection as Diesel's own type, which you pass on as `&mut *conn`. See `postgres`
    /// for an example.
    ///
    /// # Errors
    /// As for [`connection`](Self::connection), and if the queue's database is Postgres.
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

impl<S: ?Sized> Context<'_, S> {
    /// Returns an error if the job should stop; for loops in long jobs.
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
    ///             cx.check()?; // ends here once the job is cancelled or times out
    ///             notify(user);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The reason to stop, an [`Interrupted`]. Return it with `?`.
    pub fn check(&self) -> Result<(), Interrupted> {
        let signals = self.signals();
        signals.live.check(&signals.lease)
    }

    /// Sleeps for `duration`, and wakes immediately if [`check`](Self::check) would return an
    /// error.
    ///
    /// While the process stops, the sleep continues until the shutdown timeout. To stop earlier,
    /// check [`is_stopping`](Self::is_stopping) now and then.
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
    /// The reason to stop, an [`Interrupted`]. Return it with `?`.
    pub fn sleep(&self, duration: Duration) -> Result<(), Interrupted> {
        let signals = self.signals();
        signals
            .live
            .sleep(clock::deadline(duration), &signals.lease)
    }

    /// Returns when the job times out, by the monotonic clock.
    ///
    /// Returns `None` if its policy has no [`timeout`](crate::Policy::timeout).
    pub fn deadline(&self) -> Option<Instant> {
        self.signals().live.deadline()
    }

    /// Returns the time left until the job times out, zero once it has.
    ///
    /// Use it as a limit for calls to other systems. Returns `None` if its policy has no
    /// [`timeout`](crate::Policy::timeout).
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline()?;
        Some(deadline.saturating_duration_since(clock::instant()))
    }

    /// Reports the job's progress: a percentage from 0 to 100 and a text of at most 500 bytes,
    /// longer ones are cut.
    ///
    /// The call sends no SQL. The next heartbeat of the process stores the latest progress if it
    /// has changed, so [readers](crate::processes::list) see it some seconds late.
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
        let message = self.cover.hide(message.into());
        self.signals().live.tell(Progress::new(percent, message));
    }
}

// --- The attributes of the span of a run ---

/// The values that the span of a run needs beside those of the run itself.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(
    not(feature = "otel"),
    allow(dead_code, reason = "only spans read all of it")
)]
pub(crate) struct RunTrace {
    /// The trace context of the enqueue.
    pub(crate) origin: Option<Traceparent>,
    /// True if the job was due at once, and this is its first run.
    pub(crate) follows_enqueue: bool,
    /// True if the span contains the messages of errors.
    pub(crate) exports_messages: bool,
}

impl RunTrace {
    pub(crate) fn of(job: &Claimed, exports_messages: bool) -> Self {
        RunTrace {
            origin: Traceparent::parse(&job.traceparent),
            follows_enqueue: job.attempts == 0
                && !job.has_run
                && job.scheduled_at.is_none_or(|at| at <= job.created_at),
            exports_messages,
        }
    }
}

// --- Log lines of a job ---

impl<S: ?Sized> Context<'_, S> {
    /// Adds a line to the job's own log, at the level `info`; see [`log_at`](Self::log_at).
    ///
    /// ```
    /// # use windlass::{Function, Registry, testing};
    /// const IMPORT: Function<Vec<String>> = Function::new("import");
    /// let registry = Registry::new().function(IMPORT, |lines, cx| {
    ///     cx.log(format!("{} lines to import", lines.len()));
    ///     // ...
    ///     Ok(())
    /// });
    /// # testing::perform_by(&registry, &IMPORT.job(&vec![])?).unwrap();
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn log(&self, text: impl AsRef<str>) {
        self.log_at(Level::Info, text);
    }

    /// Adds a line to the job's own log, which is kept as long as the job, and shown by `windlass
    /// jobs show --logs` and [`jobs::find`](crate::jobs::find()). A text with line breaks is several
    /// lines.
    ///
    /// The call sends no SQL. The next heartbeat of the process stores the lines, or else the end of
    /// the run; the lines since the last heartbeat are lost in a crash. The lines of a run that lost
    /// its claim are not stored, except those that a heartbeat stored before.
    ///
    /// The newest 1,000 lines of a run with together 64 KiB are kept, and the last 10 runs of a job
    /// that logged anything. A line is cut after 4 KiB. Control characters are replaced, and so are the
    /// values of [secret fields](crate::Job::REDACT). Everything else is stored as it is: do not log
    /// other secrets.
    ///
    /// The lines also go to the crate `log`, at the same level and with the target
    /// `windlass::job`.
    pub fn log_at(&self, level: Level, text: impl AsRef<str>) {
        let text = clean(&self.cover.hide(text.as_ref().to_owned()));
        let live = &self.signals().live;
        live.log.add(live.age(), level, &text);
        let (job, class, queue) = (self.job_id().0, self.class_name(), self.queue_name());
        let (attempt, claim) = (self.attempt(), self.claim_id());
        for line in text.lines() {
            log::log!(target: "windlass::job", level, job, class, queue, attempt, claim; "job {job} ({class}) logs: {line}");
        }
    }
}
