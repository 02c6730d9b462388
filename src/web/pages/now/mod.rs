//! What several pages show of the present: the processes, and the queues with their verdicts.

pub(crate) mod concern;
pub(crate) mod concerns;
pub(crate) mod fleet;
pub(crate) mod member;
pub(crate) mod queues;
pub(crate) mod verdict;
