//! What operators do: the audit, and operations on many jobs.

pub(crate) mod audit;
pub(crate) mod operations;
