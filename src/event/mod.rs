//! Events of a process, with subscribers, log lines and hooks.

pub mod hooks;
pub mod logging;

use crate::job::JobId;
use chrono::{DateTime, Utc};
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
