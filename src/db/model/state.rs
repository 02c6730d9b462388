//! Where a job is.

use serde::Serialize;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// A worker may claim it.
    Ready,
    /// It waits for its time.
    Scheduled,
    /// It waits for others of its concurrency key.
    Blocked,
    /// A process holds it.
    Claimed,
    /// It failed and waits for a person.
    Failed,
    /// It has ended with success.
    Finished,
    /// It was cancelled.
    Cancelled,
    /// It has ended by its own word, without having failed.
    Discarded,
}

impl JobState {
    /// All whose jobs have an execution, in the order in which a job goes
    /// through them, which is the order of locks too.
    pub(crate) const WITH_EXECUTION: [JobState; 5] = [
        JobState::Claimed,
        JobState::Scheduled,
        JobState::Blocked,
        JobState::Ready,
        JobState::Failed,
    ];

    /// The table of its executions. Finished jobs have none, and of those that
    /// were cancelled or discarded their last attempt tells.
    pub(crate) fn table(self) -> &'static str {
        match self {
            JobState::Ready => "solid_queue_ready_executions",
            JobState::Scheduled => "solid_queue_scheduled_executions",
            JobState::Blocked => "solid_queue_blocked_executions",
            JobState::Claimed => "solid_queue_claimed_executions",
            JobState::Failed => "solid_queue_failed_executions",
            JobState::Finished => "solid_queue_jobs",
            JobState::Cancelled | JobState::Discarded => "windlass_attempts",
        }
    }
}
