//! The processes: workers, dispatchers, schedulers, supervisors, and what they share.

pub(crate) mod base;
pub(crate) mod dispatcher;
pub(crate) mod scheduler;
pub(crate) mod supervisor;
pub(crate) mod upkeep;
pub(crate) mod worker;
