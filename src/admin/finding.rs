//! A finding of `doctor`, and its verdict.

use std::time::Duration;

/// How something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Jobs run, but perhaps late, or not for long.
    Warning,
    /// Jobs are lost, stuck or refused.
    Problem,
}

/// What one check of [`doctor`] found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The check's name: `schema`, `places` and so on.
    pub check: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What was found, and what to do about it.
    pub says: String,
    /// The first few of the jobs that it is about.
    pub jobs: Vec<i64>,
}

/// A heartbeat older than this is a dead process, unless told otherwise.
pub(crate) const ALIVE: Duration = Duration::from_secs(60);

pub(crate) fn finding(check: &'static str, verdict: Verdict, says: impl Into<String>) -> Finding {
    Finding {
        check,
        verdict,
        says: says.into(),
        jobs: Vec::new(),
    }
}
