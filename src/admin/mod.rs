//! Queries and changes of jobs, queues and processes.

pub(crate) mod audited_changes;
pub mod batches;
pub mod change;
pub mod classes;
pub mod details;
pub mod doctor;
pub mod duties;
pub(crate) mod edit;
pub mod explain;
pub mod flows;
pub mod groups;
pub mod job_info;
pub mod job_list;
pub mod jobs;
pub mod now;
pub(crate) mod pairs;
pub mod queues;
pub mod rate;
pub mod secrets;
pub mod timeline;
pub(crate) mod walk;
