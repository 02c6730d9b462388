//! The tables of operators' actions: the audit, and operations on many jobs.

pub(crate) mod audit;
pub(crate) mod operations;
