//! Commands about what operators do: the audit, operations on many jobs, and groups of failed jobs.

pub(crate) mod audit;
pub(crate) mod operations;
