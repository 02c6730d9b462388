//! Results to store.

use crate::db::conn::sql::micros;
use crate::db::model::outcome::ResultOutcome;
use serde::Serialize;
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
}

/// What a job returned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewOutput<'a> {
    /// As JSON.
    pub(crate) text: Option<&'a str>,
    /// Why there is none.
    pub(crate) problem: Option<&'a str>,
}

/// The stored result of a job that has ended, in the order of the columns.
#[derive(Debug, Serialize)]
pub(crate) struct NewResult<'a>(
    pub(crate) i64,
    /// The unique id.
    pub(crate) Option<&'a str>,
    /// The class.
    pub(crate) &'a str,
    pub(crate) ResultOutcome,
    /// The returned value, as JSON.
    pub(crate) Option<&'a str>,
    /// Why it failed, or why it has no value.
    pub(crate) Option<&'a str>,
    /// The attempt that ended it.
    pub(crate) i32,
    /// How many microseconds to keep it.
    pub(crate) i64,
);

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
        (is_worth_it && keep != Some(Duration::ZERO)).then(|| {
            NewResult(
                of.job_id,
                of.unique_id,
                of.class_name,
                ResultOutcome::Succeeded,
                text,
                problem,
                of.attempt,
                micros(keep.unwrap_or(KEEP)),
            )
        })
    }

    /// Returns the result to store for a job that ended otherwise, unless its policy keeps none.
    /// `keep_result` is in milliseconds.
    pub(crate) fn of_failed(
        of: ResultOf<'a>,
        outcome: ResultOutcome,
        error: &'a str,
        keep_result: Option<u64>,
    ) -> Option<Self> {
        let keep = micros(keep_result.map_or(KEEP, Duration::from_millis));
        (keep > 0).then_some(NewResult(
            of.job_id,
            of.unique_id,
            of.class_name,
            outcome,
            None,
            Some(error),
            of.attempt,
            keep,
        ))
    }
}
