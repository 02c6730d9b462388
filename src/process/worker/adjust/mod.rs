//! How the threads and the queues of a running worker are changed.

pub(crate) mod crew;
pub(crate) mod tuning;
