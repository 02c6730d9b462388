//! The dispatcher: makes scheduled jobs ready when they are due, and promotes
//! blocked ones.

pub(crate) mod builder;
pub(crate) mod overdue;
pub(crate) mod turns;
