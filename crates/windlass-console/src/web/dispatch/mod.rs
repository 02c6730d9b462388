//! The threads that make pages, and the queue before them.

pub(crate) mod operations;
pub(crate) mod queue;
pub(crate) mod routes;
pub(crate) mod sampler;
