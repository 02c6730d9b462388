//! What a process adds to the history.

pub(crate) mod clearing;
pub(crate) mod folding;
pub(crate) mod store;
