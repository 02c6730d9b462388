//! Unique ids: the job that holds one, and those that wait for it.

pub(crate) mod resolve_conflict;
pub(crate) mod unblock;
