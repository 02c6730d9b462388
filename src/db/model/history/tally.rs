//! How many jobs ended, and how.

use crate::db::model::history::histogram::Histogram;
use crate::db::model::outcome::{AttemptOutcome, Ending};
use serde::Serialize;
use std::time::Duration;

/// How many runs and jobs ended in some time, and how. Each end is in exactly one of the counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Jobs that finished.
    pub finished: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Runs that failed, after which the job is retried.
    pub retried: u64,
    /// Jobs that ended without success and have not failed: discarded by their code or by an
    /// operator, expired, or without a slot of their concurrency key.
    pub discarded: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Runs that the death of their process ended, after which the job runs again.
    pub crashed: u64,
    /// How long the jobs had been ready before their runs started, by the database's clock. Only runs
    /// that a worker itself has ended are in it.
    pub wait: Histogram,
    /// How long the runs took. Only runs that a worker itself has ended are in it.
    pub run: Histogram,
}

impl Tally {
    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        for (count, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *count = count.saturating_add(more);
        }
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }

    /// Returns the sum of all counts.
    pub fn ended(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::saturating_add)
    }

    /// Returns whether nothing ended.
    pub fn is_empty(&self) -> bool {
        self.ended() == 0 && self.wait.is_empty() && self.run.is_empty()
    }

    pub(crate) fn counts(&self) -> [u64; 6] {
        [
            self.finished,
            self.failed,
            self.retried,
            self.discarded,
            self.crashed,
            self.cancelled,
        ]
    }

    pub(crate) fn counts_mut(&mut self) -> [&mut u64; 6] {
        [
            &mut self.finished,
            &mut self.failed,
            &mut self.retried,
            &mut self.discarded,
            &mut self.crashed,
            &mut self.cancelled,
        ]
    }

    /// Counts an end.
    pub(crate) fn add(&mut self, end: CountedEnd) {
        let count = match end {
            CountedEnd::Finished => &mut self.finished,
            CountedEnd::Failed => &mut self.failed,
            CountedEnd::Retried => &mut self.retried,
            CountedEnd::Discarded => &mut self.discarded,
            CountedEnd::Cancelled => &mut self.cancelled,
            CountedEnd::Crashed => &mut self.crashed,
        };
        *count = count.saturating_add(1);
    }
}

/// An end that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedEnd {
    Finished,
    Failed,
    Retried,
    Discarded,
    Cancelled,
    Crashed,
}

impl CountedEnd {
    /// Returns how an ending counts. A run that is to be continued is no end.
    pub(crate) fn of(ending: &Ending) -> Option<Self> {
        match ending {
            Ending::Fail(_) => Some(CountedEnd::Failed),
            Ending::Retry(..) => Some(CountedEnd::Retried),
            Ending::Discard(_) | Ending::Expire(_) => Some(CountedEnd::Discarded),
            Ending::Cancel(_) => Some(CountedEnd::Cancelled),
            Ending::Snooze(_) | Ending::Park(_) | Ending::Release(..) | Ending::GiveBack { .. } => {
                None
            }
        }
    }

    /// Returns how a recorded attempt counts.
    pub(crate) fn of_attempt(outcome: AttemptOutcome) -> Option<Self> {
        Some(match outcome {
            AttemptOutcome::Failed => CountedEnd::Failed,
            AttemptOutcome::Retried => CountedEnd::Retried,
            AttemptOutcome::Discarded => CountedEnd::Discarded,
            AttemptOutcome::Cancelled => CountedEnd::Cancelled,
            AttemptOutcome::Crashed => CountedEnd::Crashed,
            AttemptOutcome::Interrupted | AttemptOutcome::Released => return None,
        })
    }
}

/// How long a run waited for its start, and then took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunSpan {
    /// `None` if it is unknown since when the job was ready.
    pub(crate) waited: Option<Duration>,
    pub(crate) ran: Duration,
}

impl Tally {
    /// Counts the end of a run.
    pub(crate) fn add_run(&mut self, end: CountedEnd, run: RunSpan) {
        self.add(end);
        if let Some(waited) = run.waited {
            self.wait.record(waited);
        }
        self.run.record(run.ran);
    }
}
