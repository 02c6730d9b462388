//! Batches, and the jobs that wait for them.
//!
//! A batch is over when no row of `solid_queue_batch_executions` is left. That is decided by a promotion, in a
//! transaction of its own: the transactions that end the last jobs may not see each other. So is the wait of a job for an
//! event: the transaction that emits it, and the one that lets the job wait, may not see each other.

pub(crate) mod admit;
pub(crate) mod complete;
pub(crate) mod emit;
pub(crate) mod enqueue;
pub(crate) mod leave;
pub(crate) mod memo;
pub(crate) mod park;
pub(crate) mod wake;
