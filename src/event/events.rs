//! What happened: to whom it matters, and one log line each.

use crate::job::id::JobId;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// Something that happened to a job or a process.
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
    /// A process ended in good order.
    Deregistered {
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// A process has begun to stop: it claims nothing more.
    Stopping {
        /// `Worker`, `Dispatcher` or `Supervisor`.
        kind: &'a str,
    },
    /// A worker has taken a job. It begins as soon as a thread gets to it, or
    /// is released when a stop comes first.
    Claimed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// Its queue.
        queue: &'a str,
        /// The claim.
        claim: i64,
    },
    /// A thread begins to perform a job.
    Started {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// A job finished.
    Finished {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// How long it ran.
        ran: Duration,
    },
    /// A job failed for good.
    Failed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// How long it ran.
        ran: Duration,
        /// The kind of its error.
        kind: &'a str,
        /// The message of its error, as it is kept with the job.
        message: &'a str,
    },
    /// An attempt failed, and the job is tried again.
    Retried {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// How long it ran.
        ran: Duration,
        /// The kind of its error.
        kind: &'a str,
        /// The message of its error, as it is kept among its attempts.
        message: &'a str,
        /// How long until the next attempt.
        delay: Duration,
    },
    /// A job asked to be run later.
    Snoozed {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// How much later.
        delay: Duration,
    },
    /// A job ended by its own word, without having failed.
    Discarded {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// The kind of the reason.
        kind: &'a str,
        /// The message of the reason, as it is kept among its attempts.
        message: &'a str,
    },
    /// A job has overrun its timeout and the grace, and still runs. What will
    /// become of it is written down with its claim.
    TimedOut {
        /// The job.
        job: JobId,
        /// Its class.
        class: &'a str,
        /// How long it has run.
        ran: Duration,
        /// Whether the process ends for its sake.
        ends_process: bool,
    },
    /// A job was cancelled while a process held it.
    Cancelled {
        /// The job.
        job: JobId,
        /// Its class; empty where a supervisor ended it, which knows none.
        class: &'a str,
    },
    /// Claims were given back without having run to an end.
    Released {
        /// How many.
        count: usize,
        /// Why.
        why: &'a str,
    },
    /// The end of a job came too late: its claim belonged to somebody else.
    Fenced {
        /// The job.
        job: JobId,
        /// The claim that was lost.
        claim: i64,
    },
    /// Scheduled executions became ready.
    Dispatched {
        /// How many.
        count: usize,
    },
    /// A concurrency key had a free slot that nobody was about to give to its
    /// blocked jobs, as when a row was deleted by hand. They go on now.
    Overlooked {
        /// The key.
        key: &'a str,
    },
    /// A recurring task was due, and its job enqueued.
    Ticked {
        /// The task's key.
        task: &'a str,
        /// When it was due.
        tick: DateTime<Utc>,
        /// The job.
        job: JobId,
    },
    /// A tick of a recurring task was dropped, because the job of the one
    /// before it had not ended.
    TickDropped {
        /// The task's key.
        task: &'a str,
        /// When it was due.
        tick: DateTime<Utc>,
    },
    /// Ticks of a recurring task had no job, because no scheduler was there
    /// to fire them in time.
    TicksMissed {
        /// The task's key.
        task: &'a str,
        /// When the first of them was due.
        since: DateTime<Utc>,
    },
    /// A recurring task is not fired, or not as this program has it.
    TaskRefused {
        /// Which, and why.
        reason: &'a str,
    },
    /// The supervisor took away what had been kept for long enough.
    Cleared {
        /// How many finished jobs.
        finished: usize,
        /// How many failed jobs.
        failed: usize,
        /// How many results.
        results: usize,
    },
    /// A process lost its registration, or could not beat for too long.
    Lost {
        /// Its name.
        name: &'a str,
        /// Why.
        why: &'a str,
    },
    /// A dead process was pruned and its claims recovered.
    Pruned {
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// How it died.
        how: &'a str,
        /// How many jobs are ready again.
        released: usize,
        /// How many wait for a while first.
        delayed: usize,
        /// How many failed.
        failed: usize,
    },
    /// A job was running when its process died.
    Stalled {
        /// The job.
        job: JobId,
        /// What became of it: `released`, `delayed` or `failed`.
        outcome: &'a str,
    },
    /// The supervisor started a child program.
    ChildStarted {
        /// Its process id.
        pid: u32,
    },
    /// A child program ended.
    ChildExited {
        /// Its process id.
        pid: u32,
        /// How it ended.
        how: &'a str,
    },
    /// A child program ends again and again, soon after each start: somebody
    /// should look at it. Told from the fifth time in a row on.
    CrashLoop {
        /// The program.
        program: &'a str,
        /// How often in a row it has ended soon, or could not be started.
        exits: u32,
        /// How long until the next start.
        delay: Duration,
    },
    /// A worker makes room for a new one: it claims no more, and ends when its
    /// jobs have.
    Recycling {
        /// Why.
        why: &'a str,
    },
    /// A worker or supervisor was told to claim no more.
    Quieted,
    /// A worker or supervisor was told to claim again.
    Resumed,
    /// A supervisor stopped without recovering the jobs of a child, because the
    /// database was away. The next supervisor recovers them.
    LeftBehind {
        /// The process id of the child.
        pid: u32,
        /// How it ended: `was killed by signal 9`, `exited with code 75`.
        how: &'a str,
    },
    /// A loop could not reach the database, and keeps trying.
    Unreachable {
        /// What was tried.
        action: &'a str,
        /// What the database answered.
        reason: &'a str,
    },
    /// The database is lost for good: a SQLite file that was removed,
    /// replaced or corrupted, or tables that are missing. The process stops.
    Broken {
        /// What happened, and what to do.
        reason: &'a str,
    },
}
