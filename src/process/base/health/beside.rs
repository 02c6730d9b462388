//! What a program runs beside a process, to answer for it: a server of probes.

use crate::error::Result;
use crate::process::base::health::state::Health;
use std::fmt::Debug;

/// It is prepared before the process starts, so that an address that is in use fails before any job is
/// claimed.
pub(crate) trait RunsBeside: Debug + Send + Sync {
    /// # Errors
    /// If it cannot run.
    fn prepare(&self) -> Result<Box<dyn PreparedBeside>>;
}

/// It runs until what [`start`](Self::start) returns is dropped.
pub(crate) trait PreparedBeside {
    /// # Errors
    /// If it cannot run.
    fn start(self: Box<Self>, health: Health) -> Result<Box<dyn RunningBeside>>;
}

/// It ends when it is dropped.
pub(crate) trait RunningBeside: Debug + Send + Sync {}
