//! What waits for what, and what is passed on.

pub(crate) mod edges;
pub(crate) mod inputs;
pub(crate) mod nodes;
