//! The roles of the other processes of a benchmark.

use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// The settings of a worker in a process of its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) threads: u32,
    /// The number of runs after which it is done.
    pub(crate) runs: u64,
    /// True if the rows of finished jobs are deleted.
    pub(crate) delete: bool,
    pub(crate) dispatcher: bool,
    #[serde(deserialize_with = "kept")]
    pub(crate) queue: QueueText,
}

/// A name by which serde does not see that it lives for ever.
type QueueText = &'static str;

/// Keeps a text for as long as the process lives, which has one part.
fn kept<'de, D: Deserializer<'de>>(text: D) -> Result<QueueText, D::Error> {
    Ok(String::deserialize(text)?.leak())
}

/// The part of another process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Role {
    /// It performs jobs.
    Worker(Setup),
    /// It serves pages, and logs statements that take longer.
    Server { slow: Option<Duration> },
}

/// The environment variable with the [`Role`] of a process.
pub(crate) const ROLE: &str = "WINDLASS_LABORATORY_ROLE";
