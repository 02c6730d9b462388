//! Jobs that wait for others: batches, flows, and the results that they pass on.

pub(crate) mod batch;
pub(crate) mod graph;
pub(crate) mod inputs;
