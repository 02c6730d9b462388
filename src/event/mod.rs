//! Events of a process, with subscribers, log lines and hooks.

pub mod logging;

use crate::error::{Error, Result};
use crate::job::JobId;
use chrono::{DateTime, Utc};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

// --- Events: what happened and to which job or process, with one log line each ---

/// An event of a job or a process.
///
/// ```
/// use windlass::Event;
/// use windlass::hooks::Subscriber;
///
/// let subscriber = Subscriber::new(|event| match event {
///     Event::Failed { job, class, .. } => println!("job {job} of {class} has failed"),
///     Event::Pruned { .. } => println!("a process has died"),
///     _ => {}
/// });
/// # let _ = subscriber;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A process was registered.
    Registered {
        /// `Worker`, `Dispatcher`, `Scheduler` or `Supervisor`.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// A process stopped normally.
    Deregistered {
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// A process has started to stop and claims no more jobs.
    Stopping {
        /// `Worker`, `Dispatcher` or `Supervisor`.
        kind: &'a str,
    },
    /// A worker claimed a job. The job starts as soon as a thread is free, or is released if a stop comes first.
    Claimed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
    },
    /// A thread starts to perform a job.
    Started {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
    },
    /// A job finished.
    Finished {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The duration of the run.
        ran: Duration,
    },
    /// A job failed permanently.
    Failed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The duration of the run.
        ran: Duration,
        /// The kind of its error.
        kind: &'a str,
        /// The message of its error, as stored with the job.
        message: &'a str,
    },
    /// An attempt failed, and the job will be retried.
    Retried {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The duration of the run.
        ran: Duration,
        /// The kind of its error.
        kind: &'a str,
        /// The message of its error, as stored with its attempts.
        message: &'a str,
        /// The delay until the next attempt.
        delay: Duration,
    },
    /// A job asked to run again later.
    Snoozed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The delay until its next run.
        delay: Duration,
    },
    /// A job waits at a step, and runs again when the wait is over.
    Parked {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The name of the step.
        step: &'a str,
    },
    /// A job was discarded by its code, its concurrency key, or its expiry. It has not failed.
    Discarded {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue; empty if it did not run in this process.
        queue: &'a str,
        /// The number of the attempt; 0 if it did not run in this process.
        attempt: u32,
        /// The claim; 0 if it did not run in this process.
        claim: i64,
        /// The kind of the reason.
        kind: &'a str,
        /// The message of the reason, as stored with its attempts.
        message: &'a str,
    },
    /// A job has exceeded its timeout and the grace, and is still running. Its outcome is stored with its claim.
    TimedOut {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim.
        claim: i64,
        /// The duration of the run so far.
        ran: Duration,
        /// True if the process exits because of it.
        ends_process: bool,
    },
    /// A job was cancelled while a process held it.
    Cancelled {
        /// The job.
        job: JobId,
        /// Its class; empty if a supervisor ended it, which does not read it.
        class: &'a str,
        /// Its queue; empty if it did not run in this process.
        queue: &'a str,
        /// The number of the attempt; 0 if it did not run in this process.
        attempt: u32,
        /// The claim; 0 if it did not run in this process.
        claim: i64,
    },
    /// Claims were released before their jobs completed.
    Released {
        /// The number of claims.
        count: usize,
        /// The reason.
        why: &'a str,
    },
    /// A job ended too late: its claim had been taken over.
    Fenced {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The claim that was lost.
        claim: i64,
    },
    /// Scheduled executions became ready.
    Dispatched {
        /// The number of executions.
        count: usize,
    },
    /// A concurrency key had a free slot and blocked jobs that no process was about to promote, for
    /// example after a row was deleted by hand. The jobs continue now.
    Overlooked {
        /// The key.
        key: &'a str,
    },
    /// A recurring task was due, and its job was enqueued.
    Ticked {
        /// The task's key.
        task: &'a str,
        /// The time at which it was due.
        tick: DateTime<Utc>,
        /// The job.
        job: JobId,
    },
    /// A tick of a recurring task was dropped because the job of the previous tick had not ended.
    TickDropped {
        /// The task's key.
        task: &'a str,
        /// The time at which it was due.
        tick: DateTime<Utc>,
    },
    /// Ticks of a recurring task had no job because no scheduler was running to fire them in time.
    TicksMissed {
        /// The task's key.
        task: &'a str,
        /// The time at which the first missed tick was due.
        since: DateTime<Utc>,
    },
    /// A recurring task is not fired, or not with this program's definition.
    TaskRefused {
        /// The task and the reason.
        reason: &'a str,
    },
    /// The supervisor deleted jobs and results whose retention was over.
    Cleared {
        /// The number of finished jobs.
        finished: usize,
        /// The number of failed jobs.
        failed: usize,
        /// The number of results.
        results: usize,
    },
    /// A process lost its registration, or could not send a heartbeat for too long.
    Lost {
        /// Its name.
        name: &'a str,
        /// The reason.
        why: &'a str,
    },
    /// A dead process was pruned and its claims recovered.
    Pruned {
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// The cause of its death, such as `sent no heartbeat for too long`.
        how: &'a str,
        /// The number of jobs that are ready again.
        released: usize,
        /// The number of jobs that become ready after a delay.
        delayed: usize,
        /// The number of failed jobs.
        failed: usize,
    },
    /// A job was running when its process died.
    Stalled {
        /// The job.
        job: JobId,
        /// Its outcome: `released`, `delayed` or `failed`.
        outcome: &'a str,
    },
    /// The supervisor started a child program.
    ChildStarted {
        /// Its process id.
        pid: u32,
    },
    /// A child program exited.
    ChildExited {
        /// Its process id.
        pid: u32,
        /// The kind of exit, such as `exited with code 75`.
        how: &'a str,
    },
    /// A child program repeatedly exits soon after its start: at least five times in a row. Examine it.
    CrashLoop {
        /// The program.
        program: &'a str,
        /// The number of consecutive times that it exited early or could not be started.
        exits: u32,
        /// The delay until the next start.
        delay: Duration,
    },
    /// A supervisor starts to replace its child programs one by one, because of SIGHUP or
    /// [`Handle::restart_children`](crate::Handle::restart_children).
    RolloutStarted {
        /// The number of its child programs.
        children: usize,
    },
    /// A supervisor has replaced all its child programs.
    RolloutFinished {
        /// The number of its child programs.
        children: usize,
    },
    /// A supervisor no longer replaces its child programs, because a new one did not start. The others run on.
    RolloutStopped {
        /// The reason.
        why: &'a str,
    },
    /// A worker is being replaced by a new one: it claims no more, and exits when its jobs have ended.
    Recycling {
        /// The reason.
        why: &'a str,
    },
    /// A worker or supervisor became quiet and claims no more jobs.
    Quieted,
    /// A worker or supervisor resumed claiming.
    Resumed,
    /// A supervisor could not recover the jobs of a child: the database was unavailable. The next one does.
    LeftBehind {
        /// The process id of the child.
        pid: u32,
        /// The kind of exit, such as `was killed by signal 9` or `exited with code 75`.
        how: &'a str,
    },
    /// A loop could not reach the database, and keeps trying.
    Unreachable {
        /// The action that was tried.
        action: &'a str,
        /// The error that the database reported.
        reason: &'a str,
    },
    /// The process stops: a SQLite file was removed, replaced or corrupted, or tables are missing.
    Broken {
        /// The problem, and what to do.
        reason: &'a str,
    },
}

// --- Application code that runs when processes start, stop and exit ---

/// The worker, dispatcher, scheduler or supervisor for which a hook is called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// `Worker`, `Dispatcher`, `Scheduler` or `Supervisor`.
    pub kind: &'static str,
    /// The host it runs on.
    pub hostname: String,
    /// The id of the operating system process.
    pub pid: u32,
}

/// Functions to call when a process starts, stops and exits. Each kind may be added several times;
/// they run in that order.
///
/// | hook | when | where |
/// |---|---|---|
/// | [`on_start`](Hooks::on_start) | the settings and the tables were checked; nothing is registered or claimed yet | on the thread that starts it |
/// | [`on_stop`](Hooks::on_stop) | a stop has started, whatever its cause; jobs still run | during the stop, on a thread of its own |
/// | [`on_exit`](Hooks::on_exit) | everything has ended: the jobs, the heartbeat and the process row | on a thread of its own |
///
/// A process that is killed runs none. A panic in a hook is logged, and the other hooks still run.
/// The process waits up to 5 s each for the hooks of `on_stop` and of `on_exit`, then exits without
/// them.
///
/// ```
/// use windlass::Hooks;
/// let hooks = Hooks::new()
///     .on_start(|process| {
///         println!("a {} of process {} starts", process.kind, process.pid);
///         Ok(())
///     })
///     .on_stop(|_| println!("no new jobs from now on"))
///     .on_exit(|_| println!("done"));
/// # let _ = hooks;
/// ```
#[derive(Clone, Default)]
#[must_use = "hooks are called once a process has them"]
pub struct Hooks {
    start: Vec<Arc<Start>>,
    stop: Vec<Arc<HookFn>>,
    exit: Vec<Arc<HookFn>>,
}

type Start =
    dyn Fn(&ProcessInfo) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

type HookFn = dyn Fn(&ProcessInfo) + Send + Sync;

impl Hooks {
    /// Creates an empty set of hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that runs before the process registers and claims anything. If it returns an
    /// error, the process does not start and returns [`Error::Hook`](crate::Error::Hook).
    pub fn on_start(
        mut self,
        hook: impl Fn(&ProcessInfo) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.start.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs when a stop has started, while jobs still run.
    pub fn on_stop(mut self, hook: impl Fn(&ProcessInfo) + Send + Sync + 'static) -> Self {
        self.stop.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs when everything has ended.
    pub fn on_exit(mut self, hook: impl Fn(&ProcessInfo) + Send + Sync + 'static) -> Self {
        self.exit.push(Arc::new(hook));
        self
    }

    pub(crate) fn has_stop(&self) -> bool {
        !self.stop.is_empty()
    }

    pub(crate) fn has_exit(&self) -> bool {
        !self.exit.is_empty()
    }

    /// Runs the hooks until the first error.
    pub(crate) fn run_start(&self, process: &ProcessInfo) -> Result<()> {
        for hook in &self.start {
            let refused = caught("on_start", process, || hook(process));
            if let Some(Err(source)) = refused {
                let kind = process.kind;
                return Err(Error::Hook { kind, source });
            }
        }
        Ok(())
    }

    pub(crate) fn run_stop(&self, process: &ProcessInfo) {
        for hook in &self.stop {
            caught("on_stop", process, || hook(process));
        }
    }

    pub(crate) fn run_exit(&self, process: &ProcessInfo) {
        for hook in &self.exit {
            caught("on_exit", process, || hook(process));
        }
    }
}

/// Returns `None` if it panicked, which is logged and stops there.
fn caught<T>(hook: &str, process: &ProcessInfo, work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work));
    let payload: Box<dyn Any + Send> = match result {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    let kind = process.kind;
    log::error!(hook, kind; "a hook of {hook} panicked; the {kind} continues");
    // The payload's own destructor may panic as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    None
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("start", &self.start.len())
            .field("stop", &self.stop.len())
            .field("exit", &self.exit.len())
            .finish()
    }
}
