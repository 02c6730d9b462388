//! The delivery of a job, and its limits in time.

use crate::db::Conn;
use crate::db::query::explain;
use crate::db::table::expiries;
use crate::job::policy::Policy;
use crate::job::policy::delivery::Delivery;
use chrono::{DateTime, Utc};
use diesel::QueryResult;

/// What [`explain`](crate::explain()) says of them.
#[derive(Debug, Default)]
pub(crate) struct JobLimits {
    pub(crate) expires_at: Option<DateTime<Utc>>,
    pub(crate) retry_until: Option<DateTime<Utc>>,
    pub(crate) delivery: Option<Delivery>,
}

impl JobLimits {
    /// Reads those of a job. One that has ended has only its delivery.
    pub(crate) fn of(conn: &mut Conn<'_>, id: i64, is_open: bool) -> QueryResult<Self> {
        let Some(row) = explain::limits(conn, id)? else {
            return Ok(JobLimits::default());
        };
        let policy = Policy::of_columns(row.policy.as_deref(), None, row.at_most_once);
        let mut limits = JobLimits {
            delivery: Some(policy.delivery.unwrap_or_default()),
            ..JobLimits::default()
        };
        if is_open {
            let last = policy.last_retry(row.created_at, row.scheduled_at);
            limits.retry_until = last.map(|time| time.and_utc());
            if policy.expiry.is_some() {
                limits.expires_at = expiries::of_job(conn, id)?.map(|time| time.and_utc());
            }
        }
        Ok(limits)
    }
}
