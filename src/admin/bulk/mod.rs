//! Changes of many jobs: in batches, each of which has its row in the audit.

pub(crate) mod batches;
pub(crate) mod change;
pub(crate) mod pairs;
pub(crate) mod tags;
