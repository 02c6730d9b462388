//! The rows of a list of jobs: each with its state, and why it is in it.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::{Id, Lossy, MaybeLossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::extras::{BareArguments, MaybeBareArguments};
use crate::db::query::jobs::runs;
use crate::db::table::jobs::is_of_ruby;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text, Timestamp};

/// The longest arguments and errors that a list reads, in characters.
const LONGEST: u32 = 20_000;

/// A job of a list.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct JobLine {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) policy: Option<String>,
    /// The number of its runs.
    #[diesel(sql_type = BigInt)]
    pub(crate) runs: i64,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    /// True if Active Job enqueued it.
    #[diesel(sql_type = Bool)]
    pub(crate) of_ruby: bool,
    /// `None` if they are too long for a list.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub(crate) arguments: Option<String>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    /// Seconds since then.
    #[diesel(sql_type = Double)]
    pub(crate) age_seconds: f64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    is_ready: bool,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    /// Seconds since it was due; negative before.
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) due_seconds: Option<f64>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) blocked_key: Option<String>,
    /// The job with the same unique id that has to end first.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) after_job_id: Option<i64>,
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) claimed_seconds: Option<f64>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) note: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) hostname: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) pid: Option<i32>,
    #[diesel(sql_type = Bool)]
    is_failed: bool,
    /// The error of a failed job, as JSON or other text; cut if it is long.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) error: Option<String>,
    /// The outcome of its last unsuccessful attempt.
    #[diesel(sql_type = Nullable<Text>)]
    outcome: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) last_error: Option<String>,
}

impl JobLine {
    /// Returns its state. `None` if its execution was deleted by hand.
    pub(crate) fn state(&self) -> Option<JobState> {
        Some(match self {
            _ if self.claimed_seconds.is_some() => JobState::Claimed,
            _ if self.is_failed => JobState::Failed,
            _ if self.finished_at.is_some() => match self.outcome.as_deref() {
                Some("cancelled") => JobState::Cancelled,
                Some("discarded") => JobState::Discarded,
                _ => JobState::Finished,
            },
            _ if self.is_ready => JobState::Ready,
            _ if self.scheduled_at.is_some() => JobState::Scheduled,
            _ if self.blocked_key.is_some() => JobState::Blocked,
            _ => return None,
        })
    }
}

/// Reads these jobs, of which there are few; those without a row are left out.
pub(crate) fn lines(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<JobLine>> {
    let [succeeded, claimed, other] =
        [JobState::Finished, JobState::Claimed, JobState::Failed].map(runs);
    let [waited, held, due] =
        ["j.created_at", "c.created_at", "s.scheduled_at"].map(|at| age(conn, at));
    let text = format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, j.policy, j.max_attempts, {of_ruby} AS of_ruby, \
         CASE WHEN c.id IS NOT NULL THEN {claimed} WHEN j.finished_at IS NULL \
           OR a.outcome IN ('cancelled', 'discarded') THEN {other} ELSE {succeeded} END AS runs, \
         CASE WHEN length(j.arguments) <= {LONGEST} THEN j.arguments END AS arguments, \
         coalesce({{moment j.created_at}}, {{now}}) AS created_at, coalesce({waited}, 0) AS age_seconds, \
         {{moment j.finished_at}} AS finished_at, r.id IS NOT NULL AS is_ready, \
         coalesce({{moment s.scheduled_at}}, CASE WHEN s.id IS NOT NULL THEN {{now}} END) AS scheduled_at, {due} AS due_seconds, \
         b.concurrency_key AS blocked_key, u.after_job_id, \
         CASE WHEN c.id IS NOT NULL THEN coalesce({held}, 0) END AS claimed_seconds, c.note, p.hostname, p.pid, \
         f.id IS NOT NULL AS is_failed, substr(f.error, 1, {LONGEST}) AS error, \
         a.outcome, a.kind || ': ' || substr(a.message, 1, 500) AS last_error \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id \
         LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id \
         LEFT JOIN windlass_unique_jobs u ON u.job_id = b.job_id \
         LEFT JOIN solid_queue_claimed_executions c ON c.job_id = j.id \
         LEFT JOIN solid_queue_processes p ON p.id = c.process_id \
         LEFT JOIN solid_queue_failed_executions f ON f.job_id = j.id \
         LEFT JOIN windlass_attempts a ON a.id = (SELECT max(l.id) FROM windlass_attempts l WHERE l.job_id = j.id) \
         WHERE j.id IN {{in $1}} ORDER BY j.id DESC",
        of_ruby = is_of_ruby("j"),
    );
    Statement::new(text).unkept().bind(id_list(jobs)).load(conn)
}

/// The arguments of a job.
#[derive(Debug, QueryableByName)]
pub(crate) struct LineArguments {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub(crate) arguments: String,
}

/// Reads the arguments of these jobs.
pub(crate) fn arguments(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<LineArguments>> {
    let text = "SELECT id AS job_id, class_name, coalesce(arguments, 'null') AS arguments FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text).unkept().bind(id_list(jobs)).load(conn)
}

// --- The facts of one job for its page ---

/// The columns of a job, and what other tables know of it.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct JobFacts {
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Integer)]
    pub(crate) crash_count: i32,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_crashes: Option<i32>,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) idempotency_key: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) concurrency_key: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) concurrency_slots: Option<i32>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) on_conflict: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) active_job_id: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
    /// The time at which its last wait for a time ended, or ends.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    /// The scope of its unique id, if it holds one.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) scope: Option<String>,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) task_key: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) ready_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) blocked_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) claimed_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) result_until: Option<NaiveDateTime>,
    /// The error of a failed job, as JSON or other text.
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeLossy)]
    pub(crate) error: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) failed_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) fingerprint: Option<String>,
    /// The batch that it belongs to, and the first one that it follows.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) batch_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) follows: Option<i64>,
    /// True if it waits for others, others wait for it, or it belongs to a batch.
    #[diesel(sql_type = Bool)]
    pub(crate) has_flow: bool,
}

impl JobFacts {
    /// Returns whether Ruby enqueued the job, as [`is_of_ruby`](crate::db::table::jobs::is_of_ruby) does.
    pub(crate) fn is_of_ruby(&self) -> bool {
        let id = self.active_job_id.as_deref();
        id.is_some_and(|id| !id.starts_with("windlass-"))
    }
}

/// Reads the facts of a job. `None` if its row does not exist.
pub(crate) fn facts(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<JobFacts>> {
    let text = "SELECT j.max_attempts, j.crash_count, j.max_crashes, j.at_most_once, j.policy, j.idempotency_key, \
         j.concurrency_key, j.concurrency_slots, j.concurrency_conflict AS on_conflict, j.active_job_id, \
         {moment j.created_at} AS created_at, {moment j.scheduled_at} AS scheduled_at, u.scope, x.task_key, \
         {moment x.run_at} AS run_at, {moment r.created_at} AS ready_at, {moment b.created_at} AS blocked_at, \
         {moment c.created_at} AS claimed_at, {moment c.started_at} AS started_at, {moment k.expires_at} AS result_until, \
         substr(f.error, 1, 100000) AS error, {moment f.created_at} AS failed_at, f.fingerprint, j.batch_id, \
         (SELECT min(w.parent_batch_id + 0) FROM windlass_edges w WHERE w.child_job_id = j.id) AS follows, \
         (j.batch_id IS NOT NULL OR coalesce(j.has_dependents, false) \
           OR EXISTS (SELECT 1 FROM windlass_edges e WHERE e.child_job_id = j.id)) AS has_flow \
         FROM solid_queue_jobs j LEFT JOIN windlass_unique_jobs u ON u.job_id = j.id AND u.unique_id = j.unique_id \
         LEFT JOIN solid_queue_recurring_executions x ON x.job_id = j.id \
         LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id \
         LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id \
         LEFT JOIN solid_queue_claimed_executions c ON c.job_id = j.id \
         LEFT JOIN windlass_results k ON k.job_id = j.id \
         LEFT JOIN solid_queue_failed_executions f ON f.job_id = j.id WHERE j.id = $1 LIMIT 1";
    Statement::new(text)
        .unkept()
        .bind(job)
        .get_result(conn)
        .optional()
}

// --- The jobs of an enqueue, and those that have not ended ---

/// The fields with which a job was enqueued.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct SentJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub(crate) arguments: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) idempotency_key: Option<String>,
}

/// Returns what these jobs were enqueued as.
pub(crate) fn sent(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<SentJob>> {
    let text = "SELECT id, class_name, arguments, idempotency_key FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(ids)).unkept().load(conn)
}

/// Returns those of these jobs that have neither finished nor failed.
pub(crate) fn not_ended(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT j.id FROM solid_queue_jobs j WHERE j.id IN {in $1} AND j.finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)";
    let rows: Vec<Id> = Statement::new(text).bind(id_list(ids)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}
