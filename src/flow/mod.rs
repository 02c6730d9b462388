//! Jobs that wait: for others in batches, for a time, or for events.

pub(crate) mod batch;
pub(crate) mod events;
pub(crate) mod waits;
