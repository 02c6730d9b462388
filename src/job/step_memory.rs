//! The steps of a job, as its current run has them.

use crate::job::error::JobError;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// The steps of a job, as its current run has them.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub(crate) Mutex<Memory>);

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Steps of earlier runs that this run has not reached yet, once they have been read.
    pub(crate) behind: Option<HashMap<String, String>>,
    /// Whether a step of an earlier run was found before they were read.
    pub(crate) has_found_some: bool,
    /// Steps that this run has reached.
    pub(crate) passed: HashSet<String>,
    /// The step at which this run has asked to wait.
    pub(crate) waits_at: Option<String>,
}

impl Steps {
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        let Steps(memory) = self;
        work(&mut memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the step at which the run has asked to wait, if it has.
    pub(crate) fn waits_at(&self) -> Option<String> {
        self.with(|steps| steps.waits_at.clone())
    }
}

/// The error of a job that goes on after it has asked to wait.
pub(crate) fn ignored(step: &str) -> JobError {
    let message = format!(
        "the job went on after its wait at the step `{step}` had started: return the error of the wait with `?`"
    );
    JobError::new("wait_ignored", message).fail()
}
