//! The rows that the checks read, and the handling of a check that fails.

use std::time::Duration;
use windlass::{Error, Result};

/// The rows that the checks read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckScope {
    /// All rows. A check that fails is a warning.
    All,
    /// All, in a transaction with a time limit: what cannot be checked is an error.
    AllInTime,
    /// The newest of each table, so that the time does not grow with the size of the tables; with a
    /// time limit too.
    Newest,
}

impl CheckScope {
    /// Returns the finding of a check that failed.
    ///
    /// # Errors
    /// The error itself, if it may be that of the time limit: the other checks fail as well then.
    pub(crate) fn unchecked(self, check: &'static str, error: Error) -> Result<Finding> {
        match self {
            CheckScope::All => {
                let says = format!("could not be checked: {error}");
                Ok(finding(check, Verdict::Warning, says))
            }
            _ => Err(error),
        }
    }

    /// Returns what was read; if it failed, nothing, or the error itself.
    pub(crate) fn or_nothing<T: Default>(self, read: Result<T>) -> Result<T> {
        match self {
            CheckScope::All => Ok(read.unwrap_or_default()),
            _ => read,
        }
    }
}

// --- A finding of `doctor`, and its verdict ---

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything is in order.
    Fine,
    /// Jobs run, but may be late or stop soon.
    Warning,
    /// Jobs are lost, stuck or rejected.
    Problem,
}

/// The result of one check of [`doctor`](crate::doctor).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The check's name: `schema`, `places` and so on.
    pub check: &'static str,
    /// The severity of the result.
    pub verdict: Verdict,
    /// The finding in words, and what to do about it.
    pub says: String,
    /// The ids of the first few jobs affected.
    pub jobs: Vec<i64>,
}

/// A process without a heartbeat for longer is dead, unless configured otherwise.
pub(crate) const ALIVE: Duration = Duration::from_secs(60);

pub(crate) fn finding(check: &'static str, verdict: Verdict, says: impl Into<String>) -> Finding {
    Finding {
        check,
        verdict,
        says: says.into(),
        jobs: Vec::new(),
    }
}
