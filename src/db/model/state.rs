//! The states of a job.

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// A worker may claim it.
    Ready,
    /// It waits for its time.
    Scheduled,
    /// It waits for other jobs of its concurrency key.
    Blocked,
    /// A process holds it.
    Claimed,
    /// It failed permanently, and is kept until it is retried or discarded.
    Failed,
    /// It finished successfully.
    Finished,
    /// It was cancelled.
    Cancelled,
    /// It ended on its own request, without a failure.
    Discarded,
}

impl JobState {
    /// All states whose jobs have an execution, in the order in which a job goes through them.
    /// Locks are taken in this order too.
    pub(crate) const WITH_EXECUTION: [JobState; 5] = [
        JobState::Claimed,
        JobState::Scheduled,
        JobState::Blocked,
        JobState::Ready,
        JobState::Failed,
    ];

    /// The states of waiting jobs.
    pub(crate) const WAITING: [JobState; 3] =
        [JobState::Scheduled, JobState::Blocked, JobState::Ready];

    /// Returns the table of its executions. Finished jobs have none; jobs that were cancelled or
    /// discarded are found by their last attempt.
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
