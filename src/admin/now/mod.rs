//! The present, as pages and the terminal show it: the processes, and the queues with their verdicts.

pub(crate) mod fleet;
pub(crate) mod member;
pub(crate) mod queues;
pub(crate) mod verdict;
