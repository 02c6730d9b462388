//! The states of a job.

use crate::db::model::claim::{Claimed, EqualJobs, NextJobs};
use crate::db::model::outcome::{NewOutput, NewResult, ResultOf};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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

// --- Finished jobs: what they leave behind ---

/// What becomes of the slots of concurrency keys that the jobs which finish hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySlots<'n> {
    /// They hold none.
    None,
    /// They become free, and a promotion is requested.
    Free,
    /// The same process claims the next jobs of the keys.
    PassOn(&'n NextJobs, EqualJobs),
}

impl KeySlots<'_> {
    pub(crate) fn of(is_limited: bool) -> Self {
        match is_limited {
            true => KeySlots::Free,
            false => KeySlots::None,
        }
    }
}

/// A finished job with something to store or to delete.
#[derive(Debug)]
pub(crate) struct FinishedJob<'a> {
    pub(crate) claim_id: i64,
    /// Its result to store, if any.
    pub(crate) result: Option<NewResult<'a>>,
    /// The job, if it has a unique id: others may wait for it.
    pub(crate) named: Option<i64>,
    /// Whether it may have recorded steps, which are deleted.
    pub(crate) has_steps: bool,
    /// Whether it belongs to a batch.
    pub(crate) has_batch: bool,
}

impl<'a> FinishedJob<'a> {
    /// Returns the traces of a run.
    pub(crate) fn new(
        job: &'a Claimed,
        output: NewOutput<'a>,
        keep_result: Option<Duration>,
        has_steps: bool,
    ) -> Self {
        let unique_id = job.unique_id.as_deref();
        let of = ResultOf {
            job_id: job.job_id,
            attempt: job.attempts.max(0).saturating_add(1),
            class_name: &job.class_name,
            unique_id,
            batch_id: job.batch_id,
        };
        FinishedJob {
            claim_id: job.claim_id,
            result: NewResult::of_finished(of, output, keep_result),
            named: unique_id.map(|_| job.job_id),
            has_steps,
            has_batch: job.batch_id.is_some(),
        }
    }

    /// Returns whether there is more to do than to finish it.
    pub(crate) fn leaves_traces(&self) -> bool {
        self.result.is_some() || self.named.is_some() || self.has_steps || self.has_batch
    }
}
