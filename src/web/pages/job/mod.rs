//! One job, and what can be done to it.

pub(crate) mod actions;
pub(crate) mod change;
pub(crate) mod confirm;
pub(crate) mod facts;
pub(crate) mod show;
pub(crate) mod steps;
pub(crate) mod timeline;
