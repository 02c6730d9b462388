//! The processes: workers, dispatchers, schedulers, supervisors, and what they share.

pub mod base;
pub mod dispatcher;
pub mod scheduler;
pub mod supervisor;
pub(crate) mod upkeep;
pub mod worker;
