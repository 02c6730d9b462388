//! The ceiling: plain statements that move the data of a job, without a framework.

pub(crate) mod by_sql;
pub(crate) mod claim;
pub(crate) mod enqueue;
pub(crate) mod outcome;
pub(crate) mod recurring;
pub(crate) mod ruby;
pub(crate) mod statement;
pub(crate) mod tables;
