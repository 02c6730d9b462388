//! Lists and counts of selected jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::extras::Extras;
use crate::db::model::state::JobState;
use crate::db::query::filter::{Filter, conditions, joined};
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use serde::Serialize;

/// The number of jobs of a class and a queue in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, QueryableByName)]
#[non_exhaustive]
pub struct JobCount {
    /// Their class.
    #[diesel(sql_type = Text)]
    pub class_name: String,
    /// Their queue.
    #[diesel(sql_type = Text)]
    pub queue_name: String,
    /// Whether they may run at most once.
    #[diesel(sql_type = Bool)]
    pub at_most_once: bool,
    /// The number of jobs.
    #[diesel(sql_type = BigInt)]
    pub count: i64,
}

/// Counts the jobs of a state.
pub(crate) fn counts(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
) -> QueryResult<Vec<JobCount>> {
    let wanted = conditions(conn.dialect(), state, filter);
    let text = format!(
        "SELECT j.class_name, j.queue_name, j.at_most_once, count(*) AS count FROM {} WHERE true{} \
         GROUP BY j.class_name, j.queue_name, j.at_most_once ORDER BY j.class_name, j.queue_name",
        joined(state),
        wanted.text
    );
    Statement::new(text).bind_all(wanted.params).load(conn)
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobSummary {
    /// Its id.
    pub job_id: i64,
    /// Its class.
    pub class_name: String,
    /// Its queue.
    pub queue_name: String,
    /// A smaller number is more important.
    pub priority: i32,
    /// Its state.
    pub state: JobState,
    /// How many times it has run since it was enqueued or retried, including a current run.
    ///
    /// A run counts whether it succeeded, failed, was cancelled, or ended with the death of its
    /// process. Runs that were released by a stop, and those that snoozed, do not count.
    pub attempts: i32,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it entered its state; for a scheduled job, when it is due.
    pub at: DateTime<Utc>,
    /// Why it failed.
    pub error: Option<String>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(QueryableByName)]
struct SummaryRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = BigInt)]
    attempts: i64,
    #[diesel(sql_type = Timestamp)]
    created_at: NaiveDateTime,
    #[diesel(sql_type = Timestamp)]
    at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

/// Returns an expression for how many times a job `j` in this state has run. Rows of successful
/// jobs count neither the last attempt nor crashes, as that would cost every job a write: the
/// crashes since the last failure are looked up.
pub(crate) fn runs(state: JobState) -> &'static str {
    match state {
        JobState::Finished => {
            "(CAST(j.attempts AS bigint) + 1 + (SELECT count(*) FROM windlass_attempts a WHERE a.job_id = j.id \
             AND a.outcome = 'crashed' AND a.id > coalesce((SELECT max(l.id) FROM windlass_attempts l \
             WHERE l.job_id = j.id AND l.outcome = 'failed'), 0)))"
        }
        JobState::Claimed => "(CAST(j.attempts AS bigint) + j.crash_count + 1)",
        _ => "(CAST(j.attempts AS bigint) + j.crash_count)",
    }
}

/// Returns the jobs of a state: failed and finished ones newest first, all others in the order in
/// which they run.
pub(crate) fn list(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    limit: usize,
) -> QueryResult<Vec<JobSummary>> {
    let (at, order) = match state {
        JobState::Ready => ("e.created_at", "e.priority, e.job_id"),
        JobState::Scheduled => ("e.scheduled_at", "e.scheduled_at, e.priority, e.job_id"),
        JobState::Blocked => ("e.created_at", "e.priority, e.job_id"),
        JobState::Claimed => ("e.created_at", "e.id"),
        JobState::Failed => ("e.created_at", "e.id DESC"),
        JobState::Finished => ("e.finished_at", "e.id DESC"),
        JobState::Cancelled | JobState::Discarded => ("e.ended_at", "e.id DESC"),
    };
    let error = match state {
        JobState::Failed => "e.error",
        JobState::Cancelled | JobState::Discarded => "e.kind || ': ' || e.message",
        _ => "NULL",
    };
    let runs = runs(state);
    let mut wanted = conditions(conn.dialect(), state, filter);
    let limit = wanted.param(limit as i64);
    let text = format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, j.policy, {runs} AS attempts, \
         coalesce({{moment j.created_at}}, {{now}}) AS created_at, coalesce({{moment {at}}}, {{now}}) AS at, {error} AS error FROM {} WHERE true{} ORDER BY {order} LIMIT {limit}",
        joined(state),
        wanted.text
    );
    let rows: Vec<SummaryRow> = Statement::new(text).bind_all(wanted.params).load(conn)?;
    let jobs = rows.into_iter().map(|row| JobSummary {
        job_id: row.job_id,
        class_name: row.class_name,
        queue_name: row.queue_name,
        priority: row.priority,
        state,
        attempts: i32::try_from(row.attempts).unwrap_or(i32::MAX),
        created_at: row.created_at.and_utc(),
        at: row.at.and_utc(),
        error: match state {
            JobState::Failed => row
                .error
                .map(|error| crate::db::model::outcome::in_words(&error)),
            _ => row.error,
        },
        tags: Extras::of_policy(row.policy.as_deref()).tags,
    });
    Ok(jobs.collect())
}
