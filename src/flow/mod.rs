//! Jobs that wait: for others, in batches and flows, for a time, or for events; and the results that they pass on.

pub(crate) mod batch;
pub(crate) mod graph;
pub(crate) mod inputs;
pub(crate) mod undo;
pub mod waits;
