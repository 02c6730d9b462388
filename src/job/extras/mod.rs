//! What a job carries beside its arguments, and which callers may enqueue it or see it.

pub(crate) mod access;
pub(crate) mod internal;
pub(crate) mod locked;
