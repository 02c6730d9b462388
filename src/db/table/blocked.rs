//! `solid_queue_blocked_executions`: jobs that wait for a slot of their
//! concurrency key, and how they get one.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::id_list;
use crate::db::conn::sql::{Execution, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::table::semaphores::{FOR_EVER, NOT_AT_ALL};
use crate::db::table::unique_jobs::AGAIN;
use crate::db::table::wanted_keys::{self, Key, keys};
use diesel::prelude::*;

/// Until when a job waits, by its own columns. One that has begun before does
/// wait, and is never thrown away half done; one of Rails is left to Rails,
/// which looks for expired ones.
fn expires_at() -> String {
    format!(
        "CASE WHEN concurrency_limit IS NULL THEN {{now}} \
         WHEN concurrency_on_conflict = 'discard' AND last_claim_id IS NULL AND attempts = 0 AND crash_count = 0 \
         THEN {{time '{NOT_AT_ALL}'}} ELSE {{time '{FOR_EVER}'}} END"
    )
}

/// Blocks those of these jobs that have a concurrency key.
pub(crate) fn insert(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, concurrency_key, {}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $1}} AND concurrency_key IS NOT NULL ORDER BY id ON CONFLICT (job_id) DO NOTHING \
         RETURNING concurrency_key",
        expires_at()
    );
    let rows: Vec<Key> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    wanted_keys::want(conn, &keys(rows))
}

/// What a statement that inserts jobs returns of them for [`limited_ctes`].
pub(crate) const RETURNING: &str = "id, queue_name, priority, class_name, at_most_once, scheduled_at, concurrency_key, concurrency_limit, \
     concurrency_on_conflict, last_claim_id, attempts, crash_count, max_crashes";

/// What a statement of Postgres that inserts jobs does with those of them that
/// are due and have a limit: they are blocked, and their keys wanted. `jobs`
/// gives the jobs; `wanted` is what their keys are to be called.
pub(crate) fn limited_ctes(jobs: &str, wanted: &str) -> String {
    let due = format!(
        "FROM {jobs} WHERE concurrency_key IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= {{now}})"
    );
    format!(
        "limited AS (INSERT INTO solid_queue_blocked_executions \
           (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
           SELECT id, queue_name, priority, concurrency_key, {}, {{now}} {due} ORDER BY id), \
         {wanted} AS (INSERT INTO windlass_wanted_keys (key) SELECT DISTINCT concurrency_key {due} RETURNING 1)",
        expires_at()
    )
}

/// What a claim of Postgres does with those of `gone`, ready executions without
/// a class, whose jobs have a limit: `over` has their ids. They are blocked, and
/// their keys `wanted`.
pub(crate) fn sorted_out_ctes(gone: &str) -> String {
    format!(
        "over AS MATERIALIZED (SELECT j.id, j.queue_name, j.priority, j.concurrency_key, {} AS expires_at \
           FROM {gone} g JOIN solid_queue_jobs j ON j.id = g.job_id \
           WHERE g.class_name IS NULL AND {HAS_LIMIT}), \
         limited AS (INSERT INTO solid_queue_blocked_executions \
           (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
           SELECT id, queue_name, priority, concurrency_key, expires_at, {{now}} FROM over ORDER BY id \
           ON CONFLICT (job_id) DO NOTHING), \
         wanted AS (INSERT INTO windlass_wanted_keys (key) SELECT DISTINCT concurrency_key FROM over RETURNING 1)",
        expires_at()
    )
}

/// The same on SQLite, for ready executions by their ids: returns their jobs.
pub(crate) fn sort_out(conn: &mut Conn<'_>, ready: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "DELETE FROM solid_queue_ready_executions WHERE id IN {{in $1}} AND job_id IN ( \
           SELECT j.id FROM solid_queue_ready_executions r JOIN solid_queue_jobs j ON j.id = r.job_id \
           WHERE r.id IN {{in $1}} AND {HAS_LIMIT}) RETURNING job_id"
    );
    let over: Vec<Execution> = Statement::new(text).bind(id_list(ready)).load(conn)?;
    let over = job_ids(over);
    if !over.is_empty() {
        insert(conn, &over)?;
    }
    Ok(over)
}

/// Whether the job `j` has a limit of Windlass.
pub(crate) const HAS_LIMIT: &str =
    "j.concurrency_limit IS NOT NULL AND j.concurrency_key IS NOT NULL";

/// Lets a job wait until another has ended.
pub(crate) fn block(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, $1, '{FOR_EVER}', created_at FROM solid_queue_jobs WHERE id = $2"
    );
    Statement::new(text).bind(AGAIN).bind(job).execute(conn)
}
