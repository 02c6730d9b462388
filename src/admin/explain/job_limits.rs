//! The delivery of a job, and its limits in time.

use crate::admin::job_info::{TaskInfo, TaskStatus};
use crate::db::Conn;
use crate::db::query::explain;
use crate::db::table::expiries;
use crate::job::policy::{Delivery, Policy};
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::QueryResult;

/// What [`explain`](crate::explain()) says of them.
#[derive(Debug, Default)]
pub(crate) struct JobLimits {
    pub(crate) expires_at: Option<DateTime<Utc>>,
    pub(crate) retry_until: Option<DateTime<Utc>>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) not_retried: Option<NotRetried>,
}

/// The reason for which a job has failed that may have more attempts than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotRetried {
    /// The outcome of its last run is not known, and it may only run again
    /// [after a known outcome](Delivery::AfterKnownOutcome).
    OutcomeUnknown,
    /// Its process has died too often while it ran.
    Crashed,
    /// The [last time](crate::Policy::retry_until) for an attempt had passed.
    TooLate,
    /// The job or its policy has made its last error final: by [`JobError::fail`](crate::JobError::fail), by what follows a
    /// timeout, or as the next attempt would have been due too late.
    FinalError,
}

impl NotRetried {
    /// Returns the reason for a job that has failed with attempts left.
    fn of(task: &TaskInfo, last: Option<NaiveDateTime>) -> Self {
        let kind = task
            .error
            .as_deref()
            .and_then(|error| error.split(':').next());
        let has_passed =
            |last: NaiveDateTime| task.finished_at.is_none_or(|at| at.naive_utc() > last);
        match kind {
            Some("outcome_unknown") => NotRetried::OutcomeUnknown,
            Some("crashed") => NotRetried::Crashed,
            _ if last.is_some_and(has_passed) => NotRetried::TooLate,
            _ => NotRetried::FinalError,
        }
    }
}

impl JobLimits {
    /// Reads those of a job. One that has ended has only its delivery.
    pub(crate) fn of(conn: &mut Conn<'_>, task: &TaskInfo, is_open: bool) -> QueryResult<Self> {
        let id = task.job_id.0;
        let Some(row) = explain::limits(conn, id)? else {
            return Ok(JobLimits::default());
        };
        let policy = Policy::of_columns(row.policy.as_deref(), row.max_attempts, row.at_most_once);
        let mut limits = JobLimits {
            delivery: Some(policy.delivery.unwrap_or_default()),
            max_attempts: policy.max_attempts,
            ..JobLimits::default()
        };
        let last = policy.last_retry(row.created_at, row.scheduled_at);
        let has_left = policy.max_attempts.is_some_and(|most| task.attempt < most);
        if task.status == TaskStatus::Failed && has_left {
            limits.not_retried = Some(NotRetried::of(task, last));
        }
        if is_open {
            limits.retry_until = last.map(|time| time.and_utc());
            if policy.expiry.is_some() {
                limits.expires_at = expiries::of_job(conn, id)?.map(|time| time.and_utc());
            }
        }
        Ok(limits)
    }
}
