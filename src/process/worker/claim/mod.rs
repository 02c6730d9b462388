//! How a worker claims: when, how many jobs, and from which queues.

pub(crate) mod assigner;
pub(crate) mod claim_gate;
pub(crate) mod class_filter;
pub(crate) mod plan;
pub(crate) mod poller;
pub(crate) mod queues;
pub(crate) mod scan_cursors;
pub(crate) mod wakeups;
