//! What people and programs ask about jobs, queues and processes, and what they
//! do to them.

pub(crate) mod details;
pub(crate) mod doctor;
pub(crate) mod doctor_processes;
pub(crate) mod explain;
pub(crate) mod finding;
pub(crate) mod job_info;
pub(crate) mod jobs;
pub(crate) mod queues;
pub(crate) mod status;
