//! Live updates: one thread renders what viewers have open, once for all of them, and sends what has
//! changed. Nothing runs while no page is open.

pub(crate) mod fragments;
pub(crate) mod hub;
pub(crate) mod seen;
pub(crate) mod topic;
