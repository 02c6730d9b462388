//! Events of a process, with subscribers, log lines and hooks.

pub(crate) mod events;
pub(crate) mod hooks;
pub(crate) mod logging;
