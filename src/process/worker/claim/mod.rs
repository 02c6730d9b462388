//! The claims of a worker: their time, their size and their queues.

pub(crate) mod assigner;
pub(crate) mod claim_gate;
pub(crate) mod class_filter;
pub(crate) mod plan;
pub(crate) mod poller;
pub(crate) mod queues;
pub(crate) mod scan_cursors;
pub(crate) mod wakeups;
