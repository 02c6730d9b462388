//! Who changed what: the default actor, and reading the audit.

pub(crate) mod actor;
pub(crate) mod log;
