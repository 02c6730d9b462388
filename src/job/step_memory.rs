//! What a run knows of the steps of its job.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// What a run knows of the steps of its job.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub(crate) Mutex<Memory>);

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Those of earlier runs that are still ahead, once they have been read.
    pub(crate) behind: Option<HashMap<String, String>>,
    /// Those that this run has come by.
    pub(crate) passed: HashSet<String>,
}
