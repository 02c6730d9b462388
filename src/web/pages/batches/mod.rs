//! Batches: how far they are, what follows them, and changes of all their jobs.

pub(crate) mod change;
pub(crate) mod confirm;
pub(crate) mod list;
pub(crate) mod one;
pub(crate) mod view;
