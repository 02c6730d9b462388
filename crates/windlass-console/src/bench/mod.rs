//! `windlass bench`: how fast this database moves jobs.

pub(crate) mod command;
pub(crate) mod figures;
pub(crate) mod kinds;
pub(crate) mod place;
