//! `windlass_unique_jobs`: which job holds a unique id.
//!
//! The row is the constraint and the lock; whether it still counts follows
//! from where its job stands. So nothing has to be given up when a job is
//! claimed or ends, and who claims, ends or clears jobs never waits for a
//! transaction that enqueues one. Only those that enqueue or retry jobs wait
//! for these rows, in the order of the unique ids, before they lock anything
//! of a job that waits.

pub(crate) const WAITING: [&str; 3] = [READY, "solid_queue_scheduled_executions", BLOCKED];

pub(crate) const READY: &str = "solid_queue_ready_executions";

pub(crate) const BLOCKED: &str = "solid_queue_blocked_executions";

/// The concurrency key of executions that wait for the job before them. Ruby
/// releases only those of keys that its own jobs have.
pub(crate) const AGAIN: &str = "windlass/again";
