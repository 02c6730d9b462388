//! Jobs that wait for others: batches, and what follows them.

pub(crate) mod batch;
