//! The statements of the console. All of them read.
//!
//! No statement for a page reads more than a fixed number of rows, so pages stay quick on a database of any size: each
//! table of executions is read by itself, counts stop at a limit and say so, lists go along an index by id, and a filter
//! without an index looks at a window of them.

pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod frame;
pub(crate) mod job_search;
pub(crate) mod job_window;
pub(crate) mod keys;
pub(crate) mod named;
pub(crate) mod newest_job;
pub(crate) mod presence;
pub(crate) mod queues;
pub(crate) mod tasks;
pub(crate) mod totals;
