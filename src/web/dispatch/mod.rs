//! The threads that make pages, and the queue before them.

pub(crate) mod queue;
pub(crate) mod sampler;
