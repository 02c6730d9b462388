//! The tables of batches, of events, and of the jobs that wait for batches, jobs and events.

pub mod batches;
pub(crate) mod edges;
pub(crate) mod events;
pub(crate) mod members;
pub(crate) mod parents;
pub(crate) mod waits;
