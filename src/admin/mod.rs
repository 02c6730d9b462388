//! Queries and changes of jobs, queues and processes.

pub(crate) mod cancel;
pub(crate) mod changed;
pub(crate) mod details;
pub(crate) mod doctor;
pub(crate) mod doctor_processes;
pub(crate) mod explain;
pub(crate) mod finding;
pub(crate) mod job_info;
pub(crate) mod job_limits;
pub(crate) mod jobs;
pub(crate) mod queues;
pub(crate) mod status;
pub(crate) mod wait;
