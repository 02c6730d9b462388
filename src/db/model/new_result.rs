//! Results to store.

use crate::db::conn::sql::micros;
use crate::db::model::outcome::ResultOutcome;
use serde::Serialize;
use std::time::Duration;

/// How long a result is kept by default.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

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
        (job_id, attempt): (i64, u32),
        class_name: &'a str,
        unique_id: Option<&'a str>,
        (text, problem): (Option<&'a str>, Option<&'a str>),
        keep: Option<Duration>,
    ) -> Option<Self> {
        let is_worth_it =
            keep.is_some() || unique_id.is_some() || text.is_some() || problem.is_some();
        (is_worth_it && keep != Some(Duration::ZERO)).then(|| {
            NewResult(
                job_id,
                unique_id,
                class_name,
                ResultOutcome::Succeeded,
                text,
                problem,
                i32::try_from(attempt).unwrap_or(i32::MAX),
                micros(keep.unwrap_or(KEEP)),
            )
        })
    }

    /// Returns the result to store for a job that ended otherwise, unless its policy keeps none.
    /// `keep_result` is in milliseconds.
    pub(crate) fn of_failed(
        (job_id, attempt): (i64, i32),
        class_name: &'a str,
        unique_id: Option<&'a str>,
        (outcome, error): (ResultOutcome, &'a str),
        keep_result: Option<u64>,
    ) -> Option<Self> {
        let keep = micros(keep_result.map_or(KEEP, Duration::from_millis));
        (keep > 0).then_some(NewResult(
            job_id,
            unique_id,
            class_name,
            outcome,
            None,
            Some(error),
            attempt,
            keep,
        ))
    }
}
