//! Results to store.

use crate::db::conn::dialect::micros;
use crate::db::model::claim::FinishedRow;
use crate::db::model::outcome::ResultOutcome;
use std::time::Duration;

/// How long a result is kept by default.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

/// The job of a result, and the attempt that ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultOf<'a> {
    pub(crate) job_id: i64,
    pub(crate) attempt: i32,
    pub(crate) class_name: &'a str,
    pub(crate) unique_id: Option<&'a str>,
    pub(crate) batch_id: Option<i64>,
}

/// What a job returned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewOutput<'a> {
    /// As JSON.
    pub(crate) text: Option<&'a str>,
    /// Why there is none.
    pub(crate) problem: Option<&'a str>,
}

/// The stored result of a job that has ended.
#[derive(Debug)]
pub(crate) struct NewResult<'a> {
    pub(crate) of: ResultOf<'a>,
    pub(crate) outcome: ResultOutcome,
    /// The returned value, as JSON.
    pub(crate) text: Option<&'a str>,
    /// Why it failed, or why it has no value.
    pub(crate) error: Option<&'a str>,
    /// How many microseconds to keep it.
    pub(crate) keep: i64,
}

impl<'a> NewResult<'a> {
    /// Returns the result to store for a job that has finished. Without `keep`, there is none for
    /// jobs that return nothing and have no unique id: their row is enough.
    pub(crate) fn of_finished(
        of: ResultOf<'a>,
        output: NewOutput<'a>,
        keep: Option<Duration>,
    ) -> Option<Self> {
        let NewOutput { text, problem } = output;
        let is_worth_it =
            keep.is_some() || of.unique_id.is_some() || text.is_some() || problem.is_some();
        (is_worth_it && keep != Some(Duration::ZERO)).then(|| NewResult {
            of,
            outcome: ResultOutcome::Succeeded,
            text,
            error: problem,
            keep: micros(keep.unwrap_or(KEEP)),
        })
    }

    /// Returns the result to store for a job that ended otherwise. Without `keep_result`, which is
    /// in milliseconds, there is none for a job without a unique id whose row is kept: that row, its
    /// failed execution and its last attempt are enough.
    pub(crate) fn of_failed(
        of: ResultOf<'a>,
        outcome: ResultOutcome,
        error: &'a str,
        keep_result: Option<u64>,
        row: FinishedRow,
    ) -> Option<Self> {
        let is_worth_it =
            keep_result.is_some() || of.unique_id.is_some() || row == FinishedRow::Delete;
        let keep = micros(keep_result.map_or(KEEP, Duration::from_millis));
        (is_worth_it && keep > 0).then_some(NewResult {
            of,
            outcome,
            text: None,
            error: Some(error),
            keep,
        })
    }
}
