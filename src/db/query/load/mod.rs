//! The load at one moment, for pages that must be quick on every database: no statement reads more
//! than a fixed number of rows, whatever the size of the tables.
//!
//! Each table of executions is read by itself. Counts stop at a limit, and say so.

pub(crate) mod fleet;
pub(crate) mod keys;
pub(crate) mod queues;
pub(crate) mod tasks;
pub(crate) mod totals;
