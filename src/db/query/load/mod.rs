//! The load at one moment, for pages that must be quick on every database: no statement reads more
//! than a fixed number of rows, whatever the size of the tables.
//!
//! Each table of executions is read by itself. Counts stop at a limit, and say so.

pub mod fleet;
pub mod keys;
pub mod queues;
pub mod tasks;
pub mod totals;
