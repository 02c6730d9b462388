//! Read-only queries: of jobs, batches, queues, processes and their history.

pub mod batches;
pub mod explain;
pub mod filter;
pub(crate) mod flows;
pub mod history;
pub mod job_view;
pub mod jobs;
pub mod ready;
pub mod status;
pub(crate) mod ticks;
