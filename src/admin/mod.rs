//! Queries and changes of jobs, queues and processes.

pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod changed;
pub(crate) mod classes;
pub(crate) mod details;
pub(crate) mod doctor;
pub(crate) mod doctor_processes;
pub(crate) mod doctor_statistics;
pub(crate) mod edit;
pub(crate) mod explain;
pub(crate) mod finding;
pub(crate) mod groups;
pub(crate) mod job_info;
pub(crate) mod job_logs;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod outsiders;
pub(crate) mod queues;
pub(crate) mod retry_rate;
pub(crate) mod status;
pub(crate) mod wait;
