//! How the threads and the queues of a running worker are changed.

pub(crate) mod job_threads;
pub(crate) mod tuning;
