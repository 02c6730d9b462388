//! A finding of `doctor`, and its verdict.

use std::time::Duration;

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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
    /// How serious the result is.
    pub verdict: Verdict,
    /// What was found, and what to do about it.
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
