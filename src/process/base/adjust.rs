//! What can be changed of a process while it runs.

use crate::error::Result;
use crate::queue::QueueSelector;

/// A running process whose settings can be changed.
pub(crate) trait Adjust: std::fmt::Debug + Send + Sync {
    /// Changes how many jobs run at once.
    ///
    /// # Errors
    /// Returns an error if the number is impossible, or the process stops.
    fn threads(&self, threads: usize) -> Result<()>;

    /// Changes the queues to claim from.
    ///
    /// # Errors
    /// Returns an error if there are none, or the process stops.
    fn queues(&self, queues: Vec<QueueSelector>) -> Result<()>;
}
