//! The steps of a job, as its current run has them.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

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
}
