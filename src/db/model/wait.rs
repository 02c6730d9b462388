//! What a job waits for between two of its runs.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A wait at a step of a job, which gives its thread and claim back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepWait {
    /// The name of the step.
    pub(crate) step: String,
    pub(crate) until: WaitUntil,
}

/// What ends a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitUntil {
    /// The time.
    Pause(Duration),
    /// An event, or a time-out.
    Event { name: String, timeout: Duration },
    /// The ends of jobs and batches, with which the job is connected already. The value of the step names them.
    Joined(String),
}

/// The value of a step whose wait timed out. That of an event is an array with its payload.
pub(crate) const TIMED_OUT: &str = "null";
