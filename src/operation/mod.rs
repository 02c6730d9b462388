//! Changes of many jobs that survive the death of the process that runs them.

pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod stored;
pub(crate) mod turns;
pub(crate) mod walk;
