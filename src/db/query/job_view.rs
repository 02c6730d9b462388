//! A job with what all tables store about it, read by one statement for one job or for many.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, Lossy, MaybeId, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::extras::{BareArguments, Extras, MaybeBareArguments};
use crate::db::model::outcome;
use crate::db::query::jobs::runs;
use crate::db::table::claimed::Note;
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

/// The longest texts that are read, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimits {
    /// Longer arguments are left out.
    arguments: i32,
    /// Longer errors are cut. With 0, results are left out too.
    outcome: i32,
}

impl TextLimits {
    /// All texts are read whole. The limit is also added to a position, so it is not the highest number.
    pub(crate) const WHOLE: TextLimits = TextLimits {
        arguments: i32::MAX - 1,
        outcome: i32::MAX - 1,
    };

    /// Errors and results are read whole, and no arguments.
    pub(crate) const OUTCOME: TextLimits = TextLimits {
        arguments: 0,
        ..Self::WHOLE
    };

    /// For the rows of a list.
    pub const LIST: TextLimits = TextLimits {
        arguments: 20_000,
        outcome: 20_000,
    };

    /// No texts are read.
    pub const NONE: TextLimits = TextLimits {
        arguments: 0,
        outcome: 0,
    };
}

/// A job that has a row.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct JobView {
    #[diesel(sql_type = BigInt)]
    pub job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub queue_name: String,
    #[diesel(sql_type = Integer)]
    pub priority: i32,
    /// As JSON, unless another program wrote other text. `None` if they are too long to be read.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub arguments: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub policy: Option<String>,
    /// The number of its unsuccessful attempts.
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Nullable<Integer>)]
    pub max_attempts: Option<i32>,
    #[diesel(sql_type = Integer)]
    pub crash_count: i32,
    #[diesel(sql_type = Nullable<Integer>)]
    pub max_crashes: Option<i32>,
    #[diesel(sql_type = Bool)]
    pub at_most_once: bool,
    /// The number of its runs, including a current run.
    #[diesel(sql_type = BigInt)]
    pub runs: i64,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) unique_id: Option<String>,
    /// The scope of its unique id, if it holds that.
    #[diesel(sql_type = Nullable<Text>)]
    pub scope: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub idempotency_key: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub concurrency_key: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub concurrency_slots: Option<i32>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub on_conflict: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub active_job_id: Option<String>,
    /// The recurring task that enqueued it, and the time of the tick.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub task_key: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub run_at: Option<NaiveDateTime>,
    /// The batch that it belongs to, and the first one that it follows.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub batch_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub follows: Option<i64>,
    /// True if it waits for others, others wait for it, or it belongs to a batch.
    #[diesel(sql_type = Bool)]
    pub has_flow: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub created_at: Option<NaiveDateTime>,
    /// The time at which its last wait for a time ended, or ends.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub finished_at: Option<NaiveDateTime>,
    /// The time until which its result is kept.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub result_until: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_ready: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub ready_at: Option<NaiveDateTime>,
    /// The time at which a scheduled job is due.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub due_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub blocked_key: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub blocked_at: Option<NaiveDateTime>,
    /// The job with the same unique id that has to end first.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub after_job_id: Option<i64>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_claimed: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub claimed_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) cancel_requested_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    note: Option<String>,
    /// The process that holds it, unless that has no row.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) process_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub hostname: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub pid: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) heartbeat_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_failed: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub failed_at: Option<NaiveDateTime>,
    /// The error of a failed job, as JSON or other text.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub failure: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub fingerprint: Option<String>,
    /// The outcome of its last unsuccessful attempt, and its error.
    #[diesel(sql_type = Nullable<Text>)]
    last_outcome: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    last_error: Option<String>,
    /// The time of the read, by the database's clock.
    #[diesel(sql_type = Timestamp)]
    pub now: NaiveDateTime,
}

impl JobView {
    /// Returns its state. `None` if its execution was deleted by hand.
    pub fn state(&self) -> Option<JobState> {
        Some(match self.last_outcome.as_deref() {
            _ if self.is_failed => JobState::Failed,
            Some("cancelled") if self.finished_at.is_some() => JobState::Cancelled,
            Some("discarded") if self.finished_at.is_some() => JobState::Discarded,
            // Attempts that did not succeed may precede one that did.
            _ if self.finished_at.is_some() => JobState::Finished,
            _ if self.is_claimed => JobState::Claimed,
            _ if self.is_ready => JobState::Ready,
            _ if self.due_at.is_some() => JobState::Scheduled,
            _ if self.blocked_key.is_some() => JobState::Blocked,
            _ => return None,
        })
    }

    /// Returns why it failed, or why its last attempt did.
    pub fn error(&self) -> Option<String> {
        match (&self.failure, &self.last_error) {
            (Some(error), _) => Some(outcome::in_words(error)),
            (None, last) => last.clone(),
        }
    }

    /// Returns its tags, its metadata, and the version of its arguments.
    pub fn extras(&self) -> Extras {
        Extras::of_policy(self.policy.as_deref())
    }

    /// Returns what its process noted about the run.
    pub fn note(&self) -> Note {
        Note::of_column(self.note.as_deref())
    }

    /// Returns whether Ruby enqueued it, as [`is_of_ruby`](crate::db::table::jobs::is_of_ruby) does.
    pub fn is_of_ruby(&self) -> bool {
        let id = self.active_job_id.as_deref();
        id.is_some_and(|id| !id.starts_with("windlass-"))
    }

    /// Returns the seconds from a time to the read; negative if it was later, and 0 if it is none of the calendar.
    pub fn seconds_since(&self, time: Option<NaiveDateTime>) -> f64 {
        let passed = time.map_or(TimeDelta::zero(), |time| self.now - time);
        passed.as_seconds_f64()
    }
}

/// Reads these jobs, in the order of the ids; those without a row are left out.
pub fn jobs(conn: &mut Conn<'_>, ids: &[i64], texts: TextLimits) -> QueryResult<Vec<JobView>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found: Vec<JobView> = Statement::new(query())
        .bind(id_list(ids))
        .bind(texts.arguments)
        .bind(texts.outcome)
        .load(conn)?;
    found.sort_by_cached_key(|job| ids.iter().position(|id| *id == job.job_id));
    Ok(found)
}

/// Returns the SELECT of jobs: by their ids, with the longest arguments and the longest outcomes.
///
/// A single value of another table is a query of its own: Postgres takes long to find an order of many joins.
fn query() -> String {
    let [succeeded, claimed, other] =
        [JobState::Finished, JobState::Claimed, JobState::Failed].map(runs);
    format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, \
         j.policy, j.attempts, j.max_attempts, \
         CASE WHEN $2 = 0 THEN NULL WHEN j.arguments IS NULL THEN 'null' WHEN length(j.arguments) <= $2 THEN j.arguments END AS arguments, \
         j.crash_count, j.max_crashes, j.at_most_once, CASE WHEN c.id IS NOT NULL THEN {claimed} \
           WHEN j.finished_at IS NULL OR a.outcome IN ('cancelled', 'discarded') THEN {other} ELSE {succeeded} END AS runs, \
         j.unique_id, (SELECT u.scope FROM windlass_unique_jobs u WHERE u.unique_id = j.unique_id AND u.job_id = j.id) AS scope, \
         j.idempotency_key, j.concurrency_key, j.concurrency_slots, j.concurrency_conflict AS on_conflict, j.active_job_id, \
         (SELECT x.task_key FROM solid_queue_recurring_executions x WHERE x.job_id = j.id) AS task_key, \
         (SELECT {{moment x.run_at}} FROM solid_queue_recurring_executions x WHERE x.job_id = j.id) AS run_at, j.batch_id, \
         (SELECT min(w.parent_batch_id + 0) FROM windlass_edges w WHERE w.child_job_id = j.id) AS follows, \
         (j.batch_id IS NOT NULL OR coalesce(j.has_dependents, false) \
           OR EXISTS (SELECT 1 FROM windlass_edges e WHERE e.child_job_id = j.id)) AS has_flow, \
         {{moment j.created_at}} AS created_at, {{moment j.scheduled_at}} AS scheduled_at, {{moment j.finished_at}} AS finished_at, \
         (SELECT {{moment k.expires_at}} FROM windlass_results k WHERE k.job_id = j.id) AS result_until, \
         r.id IS NOT NULL AS is_ready, {{moment r.created_at}} AS ready_at, \
         coalesce({{moment s.scheduled_at}}, CASE WHEN s.id IS NOT NULL THEN {{now}} END) AS due_at, \
         b.concurrency_key AS blocked_key, {{moment b.created_at}} AS blocked_at, \
         (SELECT u.after_job_id FROM windlass_unique_jobs u WHERE u.unique_id = j.unique_id AND u.job_id = b.job_id) AS after_job_id, \
         c.id IS NOT NULL AS is_claimed, {{moment c.created_at}} AS claimed_at, {{moment c.started_at}} AS started_at, \
         {{moment c.cancel_requested_at}} AS cancel_requested_at, c.note, p.name AS process_name, p.hostname, p.pid, \
         {{moment p.last_heartbeat_at}} AS heartbeat_at, f.id IS NOT NULL AS is_failed, {{moment f.created_at}} AS failed_at, \
         substr(f.error, 1, $3) AS failure, f.fingerprint, \
         a.outcome AS last_outcome, a.kind || ': ' || substr(a.message, 1, $3) AS last_error, {{now}} AS now \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id \
         LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id \
         LEFT JOIN solid_queue_claimed_executions c ON c.job_id = j.id \
         LEFT JOIN solid_queue_processes p ON p.id = c.process_id \
         LEFT JOIN solid_queue_failed_executions f ON f.job_id = j.id \
         LEFT JOIN windlass_attempts a ON a.id = (SELECT max(l.id) FROM windlass_attempts l WHERE l.job_id = j.id) \
         WHERE j.id IN {{in $1}}"
    )
}

// --- What is stored of a job beside its row ---

/// The stored result of a job.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct StoredResult {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
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

/// Returns the results of these jobs that have not expired.
pub(crate) fn results(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    texts: TextLimits,
) -> QueryResult<Vec<StoredResult>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let text = "SELECT job_id, class_name, unique_id, outcome, CASE WHEN $2 > 0 THEN result END AS result, \
         substr(error, 1, $2) AS error, attempt, finished_at FROM windlass_results WHERE job_id IN {in $1} AND expires_at > {now}";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(texts.outcome)
        .load(conn)
}

/// The arguments of a job, with its class and its key: a repeated request has the same.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct StoredArguments {
    #[diesel(sql_type = BigInt)]
    pub job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub class_name: String,
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub arguments: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub idempotency_key: Option<String>,
}

/// Reads the arguments of these jobs.
pub fn arguments(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<StoredArguments>> {
    let text = "SELECT id AS job_id, class_name, coalesce(arguments, 'null') AS arguments, idempotency_key \
         FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)
}

/// Returns those of these jobs that have neither finished nor failed.
pub fn not_ended(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT j.id FROM solid_queue_jobs j WHERE j.id IN {in $1} AND j.finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)";
    let rows: Vec<Id> = Statement::new(text).bind(id_list(ids)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Returns the job enqueued last with this unique id, of those of which something is stored.
pub(crate) fn with_unique_id(conn: &mut Conn<'_>, name: &str) -> QueryResult<Option<i64>> {
    let text = "SELECT max(id) AS id FROM (SELECT max(id) AS id FROM solid_queue_jobs WHERE unique_id = $1 \
         UNION ALL SELECT max(job_id) FROM windlass_results WHERE unique_id = $1 AND expires_at > {now}) AS known";
    let row: MaybeId = Statement::new(text).bind(name).get_result(conn)?;
    Ok(row.id)
}
