//! Which rows the checks read, and what becomes of a check that fails.

use crate::admin::finding::{Finding, Verdict, finding};
use crate::error::{Error, Result};

/// Which rows the checks read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckScope {
    /// All. What cannot be checked is a warning.
    All,
    /// All, in a transaction with a time limit: what cannot be checked is an error.
    #[cfg(feature = "web")]
    AllInTime,
    /// The newest of each table, so that the time does not grow with the size of the tables; with a
    /// time limit too.
    #[cfg(any(feature = "top", feature = "web"))]
    Newest,
}

impl CheckScope {
    /// Returns the finding of a check that failed.
    ///
    /// # Errors
    /// The error itself, if it may be that of the time limit: the other checks fail as well then.
    pub(super) fn unchecked(self, check: &'static str, error: Error) -> Result<Finding> {
        match self {
            CheckScope::All => {
                let says = format!("could not be checked: {error}");
                Ok(finding(check, Verdict::Warning, says))
            }
            #[cfg(any(feature = "top", feature = "web"))]
            _ => Err(error),
        }
    }

    /// Returns what was read; if it failed, nothing, or the error itself.
    pub(super) fn or_nothing<T: Default>(self, read: Result<T>) -> Result<T> {
        match self {
            CheckScope::All => Ok(read.unwrap_or_default()),
            #[cfg(any(feature = "top", feature = "web"))]
            _ => read,
        }
    }
}
