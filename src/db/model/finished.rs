//! Finished jobs: what they leave behind.

use crate::db::model::claim::{Claimed, EqualJobs, NextJobs};
use crate::db::model::new_result::{NewOutput, NewResult, ResultOf};
use std::time::Duration;

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
