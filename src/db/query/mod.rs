//! Read-only queries: for status pages, lists, `explain` and `doctor`.

pub mod batches;
pub mod doctor;
pub mod explain;
pub(crate) mod filter;
pub(crate) mod flows;
pub mod frame;
pub(crate) mod history;
pub mod job_view;
pub mod jobs;
pub mod load;
pub mod named;
pub(crate) mod newest_job;
pub mod pages;
pub mod presence;
pub mod status;
