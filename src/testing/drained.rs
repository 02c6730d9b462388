//! What `drain` performed, and assertions about it.

use crate::db::table::job_logs::LogLine;
use crate::job::id::JobId;
use std::collections::BTreeMap;
use std::time::Duration;

/// With more runs than this, a job must be enqueueing itself endlessly.
const MOST: usize = 10_000;

/// The outcome of a job that was performed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It finished.
    Finished,
    /// It failed permanently, with an error of this kind and text.
    Failed(String, String),
    /// The attempt failed with an error of this kind and text; the next follows after this delay.
    Retried(String, String, Duration),
    /// It was discarded or cancelled, for this kind of reason and text.
    Discarded(String, String),
    /// It asked to run again after this delay.
    Snoozed(Duration),
    /// The database did not answer a call of Windlass, with an error of this kind and text. The run does not count, and
    /// the next follows after this delay.
    Interrupted(String, String, Duration),
    /// It waits at this step, and runs again when the wait is over.
    Waits(String),
    /// Its claim was lost during the run, for example because its own code deleted it.
    Lost,
    /// A [`Fault`](crate::testing::Fault) ended the process in the run, and a supervisor recovered
    /// the job.
    Crashed,
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Performed {
    /// The job.
    pub id: JobId,
    /// Its class.
    pub class_name: String,
    /// The outcome.
    pub outcome: RunOutcome,
    /// What the job logged with [`Context::log`](crate::Context::log).
    pub logs: Vec<LogLine>,
}

/// The result of performing all jobs that were ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a job may have failed: see `assert_all_finished`"]
pub struct Drained {
    /// All runs, in order.
    pub runs: Vec<Performed>,
}

impl Drained {
    /// Returns how many jobs finished.
    pub fn finished(&self) -> usize {
        self.runs
            .iter()
            .filter(|run| run.outcome == RunOutcome::Finished)
            .count()
    }

    /// Asserts that exactly `count` jobs ran, and that all of them finished.
    ///
    /// # Panics
    /// If the assertion fails; the message contains the errors.
    #[track_caller]
    pub fn assert_all_finished(&self, count: usize) {
        let others = self
            .runs
            .iter()
            .filter(|run| run.outcome != RunOutcome::Finished);
        let others: Vec<_> = others.collect();
        assert!(
            others.is_empty(),
            "these jobs have not finished: {others:#?}"
        );
        assert_eq!(
            self.runs.len(),
            count,
            "the number of runs differs: {:#?}",
            self.runs
        );
    }
}

impl Drained {
    /// Asserts that exactly `count` jobs ran, and that the last run of each that kept its claim
    /// finished. Earlier runs may have failed, crashed or snoozed.
    ///
    /// # Panics
    /// If the assertion fails; the message contains all runs.
    #[track_caller]
    pub fn assert_all_finished_in_the_end(&self, count: usize) {
        let mut last = BTreeMap::new();
        for run in &self.runs {
            if run.outcome != RunOutcome::Lost {
                last.insert(run.id.0, &run.outcome);
            }
        }
        assert!(
            last.values()
                .all(|outcome| **outcome == RunOutcome::Finished),
            "the last run of a job has not finished: {:#?}",
            self.runs
        );
        assert_eq!(
            last.len(),
            count,
            "the number of jobs differs: {:#?}",
            self.runs
        );
    }

    pub(crate) fn add(&mut self, run: Performed) {
        self.runs.push(run);
        assert!(
            self.runs.len() < MOST,
            "{MOST} jobs ran and more are ready: does `{}` enqueue itself endlessly?",
            self.runs[self.runs.len() - 1].class_name
        );
    }
}
