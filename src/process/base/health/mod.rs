//! Whether a process is healthy, for probes and load balancers.

pub(crate) mod beside;
pub(crate) mod state;
pub(crate) mod turns;
