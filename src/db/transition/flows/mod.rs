//! Batches, and the jobs that wait for batches and jobs.
//!
//! A batch is over when no row of `solid_queue_batch_executions` is left. That is decided by a promotion, in a
//! transaction of its own: the transactions that end the last jobs may not see each other. So is whether a job waits any
//! longer, for others or for an event.

pub(crate) mod admit;
pub(crate) mod leave;
pub(crate) mod wake;
