//! Queries and changes of jobs, queues and processes.

pub(crate) mod audited_changes;
pub mod batches;
pub mod change;
pub mod classes;
pub mod details;
pub(crate) mod edit;
pub mod explain;
pub mod flows;
pub mod groups;
pub mod job_info;
pub mod jobs;
pub mod limits;
pub(crate) mod pairs;
pub mod queues;
pub mod rate;
pub mod secrets;
pub mod tenants;
pub(crate) mod walk;
