//! What a page shows of one job beside its explanation.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::MaybeLossy;
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

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
    /// When its last wait for a time ended, or ends.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    /// How long it holds its unique id, if it does.
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
    /// Whether it waits for others, others wait for it, or it belongs to a batch.
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
