//! The health of processes, as probes ask for it.

mod command;
mod handle;
