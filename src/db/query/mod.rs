//! Read-only queries: for status pages, lists, `explain` and `doctor`.

#[cfg(feature = "cli")]
pub(crate) mod connection_limit;
pub(crate) mod details;
pub(crate) mod doctor;
pub(crate) mod explain;
#[cfg(feature = "web")]
pub(crate) mod frame;
pub(crate) mod job_info;
pub(crate) mod jobs;
pub(crate) mod status;
pub(crate) mod ticks;
