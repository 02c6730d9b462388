//! `windlass_unique_jobs`: which job holds a unique id.
//!
//! The row is the constraint and the lock; whether it is still valid follows from the state of its
//! job. So a claim or the end of a job does not have to free anything, and neither claims, ends nor
//! clearing ever wait for a transaction that enqueues. Only transactions that enqueue or retry jobs
//! wait for these rows, in the order of the unique ids, before they lock an execution of a waiting
//! job.

pub(crate) const WAITING: [&str; 3] = [READY, "solid_queue_scheduled_executions", BLOCKED];

pub(crate) const READY: &str = "solid_queue_ready_executions";

pub(crate) const BLOCKED: &str = "solid_queue_blocked_executions";

/// The concurrency key of executions that wait for the job before them. Ruby releases only keys of
/// its own jobs.
pub(crate) const UNIQUE_SUCCESSOR: &str = "windlass/again";
