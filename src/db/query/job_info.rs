//! One job as its enqueuer sees it, put together from all tables.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::extras::Extras;
use crate::db::model::outcome;
use crate::db::query::jobs;
use crate::db::table::claimed::{Note, Progress};
use crate::db::table::jobs::is_of_ruby;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

/// The row of a job, ended or not, with its executions and last attempt.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct EnqueuedJobRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    /// The number of its runs, including a current run.
    #[diesel(sql_type = BigInt)]
    pub(crate) runs: i64,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    /// True if its class is a Ruby class.
    #[diesel(sql_type = Bool)]
    pub(crate) of_ruby: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_claimed: bool,
    #[diesel(sql_type = Nullable<Text>)]
    note: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) failed_at: Option<NaiveDateTime>,
    /// The outcome of the last unsuccessful attempt.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) last_outcome: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    last_error: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

impl EnqueuedJobRow {
    pub(crate) fn has_failed(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Returns why it failed, or why its last attempt did.
    pub(crate) fn error(&self) -> Option<String> {
        match (&self.error, &self.last_error) {
            (Some(error), _) => Some(outcome::in_words(error)),
            (None, last) => last.clone(),
        }
    }

    /// Returns its tags.
    pub(crate) fn tags(&self) -> Vec<String> {
        Extras::of_policy(self.policy.as_deref()).tags
    }

    /// Returns the version of its arguments.
    pub(crate) fn arguments_version(&self) -> u32 {
        Extras::of_policy(self.policy.as_deref()).arguments_version()
    }

    /// Returns the progress that the job itself reported.
    pub(crate) fn progress(&self) -> Option<Progress> {
        Note::of_column(self.note.as_deref()).progress
    }
}

/// Reads a job. `None` if its row does not exist, or not any more.
pub(crate) fn job(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<EnqueuedJobRow>> {
    let [succeeded, claimed, other] =
        [JobState::Finished, JobState::Claimed, JobState::Failed].map(jobs::runs);
    let text = format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, j.attempts, j.policy, j.unique_id, {of_ruby} AS of_ruby, \
         CASE WHEN c.id IS NOT NULL THEN {claimed} WHEN j.finished_at IS NULL \
           OR a.outcome IN ('cancelled', 'discarded') THEN {other} ELSE {succeeded} END AS runs, \
         {{moment j.finished_at}} AS finished_at, c.id IS NOT NULL AS is_claimed, c.note, \
         {{moment s.scheduled_at}} AS scheduled_at, f.error, {{moment f.created_at}} AS failed_at, \
         a.outcome AS last_outcome, a.kind || ': ' || a.message AS last_error \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_claimed_executions c ON c.job_id = j.id \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id \
         LEFT JOIN solid_queue_failed_executions f ON f.job_id = j.id \
         LEFT JOIN windlass_attempts a ON a.id = (SELECT max(l.id) FROM windlass_attempts l WHERE l.job_id = j.id) \
         WHERE j.id = $1",
        of_ruby = is_of_ruby("j"),
    );
    Statement::new(text).bind(job).get_result(conn).optional()
}

/// The stored result of a job.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct StoredResult {
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) outcome: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) result: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) error: Option<String>,
    #[diesel(sql_type = Integer)]
    pub(crate) attempt: i32,
    #[diesel(sql_type = Timestamp)]
    pub(crate) finished_at: NaiveDateTime,
}

/// Returns the result of a job, unless it has expired.
pub(crate) fn kept(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<StoredResult>> {
    let text = "SELECT class_name, unique_id, outcome, result, error, attempt, finished_at FROM windlass_results \
         WHERE job_id = $1 AND expires_at > {now}";
    Statement::new(text).bind(job).get_result(conn).optional()
}

#[derive(QueryableByName)]
struct Newest {
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
}

/// Returns the job enqueued last with this unique id, of those that still have a row.
pub(crate) fn with_unique_id(conn: &mut Conn<'_>, name: &str) -> QueryResult<Option<i64>> {
    let text = "SELECT max(id) AS id FROM (SELECT max(id) AS id FROM solid_queue_jobs WHERE unique_id = $1 \
         UNION ALL SELECT max(job_id) FROM windlass_results WHERE unique_id = $1 AND expires_at > {now}) AS known";
    Statement::new(text)
        .bind(name)
        .get_result::<Newest>(conn)
        .map(|row| row.id)
}
