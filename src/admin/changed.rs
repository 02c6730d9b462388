//! What a change did to jobs.

use crate::db::transition::operate::RetriedJobs;
use serde::{Deserialize, Serialize};

/// The result of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Changed {
    /// The number of changed jobs.
    pub changed: u64,
    /// The number of jobs that a process holds. `Cancel` asked these to stop; other changes left
    /// them as they are.
    pub running: u64,
    /// The number of jobs not cancelled because a Ruby process runs them.
    pub in_ruby: u64,
    /// The number of jobs not retried because they are at-most-once.
    pub at_most_once: u64,
    /// The number of jobs not retried because another job now holds their unique id.
    pub id_taken: u64,
    /// The number of jobs that moved or ended before they were reached, or are in a state to which
    /// the change does not apply.
    pub passed_over: u64,
}

impl Changed {
    /// Returns the number of jobs examined.
    #[cfg(feature = "cli")]
    pub(crate) fn looked_at(&self) -> u64 {
        self.changed + self.left() + self.passed_over
    }

    /// Returns the number of jobs left unchanged for a reason.
    pub(crate) fn left(&self) -> u64 {
        self.running + self.in_ruby + self.at_most_once + self.id_taken
    }

    /// Returns the same, for what is printed.
    #[cfg(feature = "cli")]
    pub(crate) fn left_alone(&self) -> u64 {
        self.in_ruby + self.at_most_once + self.id_taken
    }

    pub(crate) fn of_retry(retried: &RetriedJobs, count: u64) -> Self {
        let mut done = Changed {
            changed: retried.ready.len() as u64,
            at_most_once: retried.risky.len() as u64,
            id_taken: retried.replaced.len() as u64,
            ..Changed::default()
        };
        done.passed_over = count - done.changed - done.left();
        done
    }

    pub(crate) fn add(&mut self, other: Changed) {
        self.changed += other.changed;
        self.running += other.running;
        self.in_ruby += other.in_ruby;
        self.at_most_once += other.at_most_once;
        self.id_taken += other.id_taken;
        self.passed_over += other.passed_over;
    }
}
