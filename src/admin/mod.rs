//! Queries and changes of jobs, queues and processes.

pub(crate) mod audited_changes;
pub(crate) mod batches;
pub(crate) mod change;
pub(crate) mod classes;
pub(crate) mod details;
pub(crate) mod doctor;
pub(crate) mod duties;
pub(crate) mod edit;
pub(crate) mod explain;
pub(crate) mod flows;
pub(crate) mod groups;
pub(crate) mod job_info;
#[cfg(feature = "web")]
pub(crate) mod job_list;
pub(crate) mod jobs;
#[cfg(any(feature = "top", feature = "web"))]
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the pages use the rest")
)]
pub(crate) mod now;
pub(crate) mod pairs;
pub(crate) mod queues;
pub(crate) mod rate;
pub(crate) mod secrets;
#[cfg(feature = "web")]
pub(crate) mod timeline;
pub(crate) mod walk;
