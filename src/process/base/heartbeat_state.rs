//! What a process remembers about its row.

use crate::process::base::registration::Registrations;
use std::time::Instant;

/// What the threads of a process share about its row.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatState {
    pub(crate) registrations: Registrations,
    pub(crate) is_leaving: bool,
    /// What the row of the current registration says.
    pub(crate) says: Description,
    /// When a heartbeat got no answer, until the next one succeeds.
    pub(crate) missed_at: Option<Instant>,
}

/// What the row of a process says about it, and may change.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) metadata: String,
    pub(crate) channel: Option<String>,
}
