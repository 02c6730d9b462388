//! The health of processes, as probes ask for it.

#[cfg(feature = "cli")]
mod command;
mod handle;
