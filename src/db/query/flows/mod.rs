//! What waits for what, and what is passed on.

pub(crate) mod nodes;
