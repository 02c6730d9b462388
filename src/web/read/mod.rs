//! What several pages show of the present: the processes, and the queues with their verdicts.

pub(crate) mod concern;
pub(crate) mod concerns;
pub(crate) mod figures;
pub(crate) mod last_hour;
pub(crate) mod places;
pub(crate) mod verdict;
pub(crate) mod watch;
