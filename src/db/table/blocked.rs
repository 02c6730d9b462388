//! `solid_queue_blocked_executions`: jobs that wait for a slot of their concurrency key.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Execution, Id, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::gate_line::GateLine;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{
    IN_ORDER, ORDERED, UNIQUE_SUCCESSOR, WAITS_AT_GATE, waits_for_others_sql,
};
use crate::db::table::semaphores::{DOES_NOT_WAIT, NEVER_EXPIRES};
use crate::db::table::wanted_keys::{self, GATE, NewRequest, SEMAPHORE};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use std::collections::BTreeSet;

/// Returns an expression for the end of a job's wait, from its own columns.
///
/// A job that has run before waits, and is never discarded half done. A job of Rails keeps the
/// expiry of Rails, whose dispatcher looks for expired ones.
fn expires_at() -> String {
    format!(
        "CASE WHEN gate IS NOT NULL THEN {{time '{NEVER_EXPIRES}'}} WHEN concurrency_slots IS NULL THEN {{now}} \
         WHEN concurrency_conflict = 'discard' AND last_claim_id IS NULL AND attempts = 0 AND crash_count = 0 \
         THEN {{time '{DOES_NOT_WAIT}'}} ELSE {{time '{NEVER_EXPIRES}'}} END"
    )
}

/// Returns an expression for the priority of a blocked execution, from the columns of its job.
fn rank(on_conflict: &str, priority: &str) -> String {
    format!("CASE WHEN {on_conflict} = '{ORDERED}' THEN {IN_ORDER} ELSE {priority} END")
}

fn own_rank() -> String {
    rank("concurrency_conflict", "priority")
}

/// Returns a condition: no job comes before the blocked execution `b` of `key` that is locked, and so
/// was skipped, if it has to be in order.
pub(crate) fn is_in_turn(key: &str) -> String {
    format!(
        "(b.priority > {IN_ORDER} OR b.job_id = (SELECT first.job_id FROM solid_queue_blocked_executions first \
           WHERE first.concurrency_key = {key} AND first.expires_at >= {{time '{DOES_NOT_WAIT}'}} \
           ORDER BY first.priority, first.job_id LIMIT 1))"
    )
}

/// Blocks those of the jobs that have a concurrency key.
pub(crate) fn insert_blocked(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at) \
         SELECT id, queue_name, {}, {}, gate, {}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $1}} AND {} ORDER BY id ON CONFLICT (job_id) DO NOTHING \
         RETURNING concurrency_key, gate",
        own_rank(),
        own_key(),
        expires_at(),
        has_gate(""),
    );
    let rows: Vec<BlockedUnder> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let requests: BTreeSet<NewRequest> = rows.into_iter().map(BlockedUnder::request).collect();
    wanted_keys::request(conn, requests)
}

/// The key, or the line, under which a job is blocked.
#[derive(QueryableByName)]
struct BlockedUnder {
    #[diesel(sql_type = Text)]
    concurrency_key: String,
    #[diesel(sql_type = Nullable<Text>)]
    gate: Option<String>,
}

impl BlockedUnder {
    fn request(self) -> NewRequest {
        match self.gate {
            Some(line) => NewRequest::Gate(line),
            None => NewRequest::Key(self.concurrency_key),
        }
    }
}

/// Returns an expression for the concurrency key of a blocked execution, from the columns of its job.
fn own_key() -> String {
    format!("CASE WHEN gate IS NULL THEN concurrency_key ELSE '{WAITS_AT_GATE}' END")
}

/// Returns the columns of a request for the key or the line of a job, in the order `key, kind, name`.
fn own_request() -> String {
    format!(
        "CASE WHEN gate IS NULL THEN concurrency_key END, CASE WHEN gate IS NOT NULL THEN '{GATE}' END, gate"
    )
}

/// The columns of inserted jobs that a statement returns for [`limited_ctes`].
pub(crate) const RETURNING: &str = "id, queue_name, priority, class_name, at_most_once, scheduled_at, concurrency_key, concurrency_slots, \
     concurrency_conflict, gate, last_claim_id, attempts, crash_count, max_crashes";

/// Returns the CTEs of a Postgres statement that inserts jobs. They block the jobs in `jobs` that
/// are due and have a limit, and request the promotion of their keys, in a CTE named `wanted`.
pub(crate) fn limited_ctes(jobs: &str, wanted: &str) -> String {
    due_ctes(
        &format!("{jobs} WHERE (scheduled_at IS NULL OR scheduled_at <= {{now}}) AND"),
        wanted,
    )
}

/// Returns the same for jobs that are all due. `jobs` ends with `WHERE`, or with a condition and
/// `AND`.
pub(crate) fn due_ctes(jobs: &str, wanted: &str) -> String {
    let due = format!("FROM {jobs} {}", has_gate(""));
    format!(
        "limited AS (INSERT INTO solid_queue_blocked_executions \
           (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at) \
           SELECT id, queue_name, {}, {}, gate, {}, {{now}} {due} ORDER BY id ON CONFLICT (job_id) DO NOTHING), \
         {wanted} AS (INSERT INTO windlass_wanted_keys (key, kind, name) SELECT DISTINCT {} {due} RETURNING 1)",
        own_rank(),
        own_key(),
        expires_at(),
        own_request(),
    )
}

/// Returns the CTEs of a Postgres statement that block the new jobs of `job`, all due and with the
/// limit that the parameters of `columns` name, and request the promotion of their keys in `wanted`.
/// `key` is the key of one job, `keys` selects those of all.
pub(crate) fn fresh_ctes(columns: &JobColumns, key: &str, keys: &str) -> String {
    let on_conflict = columns.parameter("concurrency_conflict");
    format!(
        "limited AS (INSERT INTO solid_queue_blocked_executions \
           (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
           SELECT id, {}, {}, {key}, CASE WHEN {} = 'discard' THEN {{time '{DOES_NOT_WAIT}'}} \
             ELSE {{time '{NEVER_EXPIRES}'}} END, {{now}} FROM job), \
         wanted AS (INSERT INTO windlass_wanted_keys (key) {keys} FROM job RETURNING 1)",
        columns.parameter("queue_name"),
        rank(&on_conflict, &columns.parameter("priority")),
        on_conflict,
    )
}

/// Returns the CTEs of a Postgres claim that block jobs with a limit whose ready execution has no
/// class.
///
/// `gone` has the deleted executions. `over` returns the ids of the blocked ones, and their keys
/// are requested in `wanted`, with the slots that Ruby has taken of semaphores to make them ready: only the
/// limit of Windlass counts from now on.
pub(crate) fn sorted_out_ctes(gone: &str) -> String {
    format!(
        "over AS MATERIALIZED (SELECT j.id, j.queue_name, {} AS priority, j.concurrency_key, j.gate, {} AS expires_at \
           FROM {gone} g JOIN solid_queue_jobs j ON j.id = g.job_id \
           WHERE g.class_name IS NULL AND {has_limit}), \
         limited AS (INSERT INTO solid_queue_blocked_executions \
           (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at) \
           SELECT id, queue_name, priority, {}, gate, expires_at, {{now}} FROM over ORDER BY id \
           ON CONFLICT (job_id) DO NOTHING), \
         wanted AS (INSERT INTO windlass_wanted_keys (key, kind, name, target_id, amount) \
           SELECT DISTINCT {}, CAST(NULL AS bigint), CAST(NULL AS bigint) FROM over \
           UNION ALL SELECT NULL, '{SEMAPHORE}', NULL, s.id, count(*) FROM over \
             JOIN solid_queue_semaphores s ON s.key = over.concurrency_key GROUP BY s.id RETURNING 1)",
        rank("j.concurrency_conflict", "j.priority"),
        expires_at(),
        own_key(),
        own_request(),
        has_limit = has_limit(),
    )
}

/// Does the same on SQLite, for ready executions by their ids, and returns their jobs.
pub(crate) fn sort_out(conn: &mut Conn<'_>, ready: &[i64]) -> QueryResult<Vec<i64>> {
    let text = format!(
        "DELETE FROM solid_queue_ready_executions WHERE id IN {{in $1}} AND job_id IN ( \
           SELECT j.id FROM solid_queue_ready_executions r JOIN solid_queue_jobs j ON j.id = r.job_id \
           WHERE r.id IN {{in $1}} AND {}) RETURNING job_id",
        has_limit()
    );
    let over: Vec<Execution> = Statement::new(text).bind(id_list(ready)).load(conn)?;
    let over = job_ids(over);
    if !over.is_empty() {
        insert_blocked(conn, &over)?;
        let text = "SELECT s.id FROM solid_queue_jobs j JOIN solid_queue_semaphores s ON s.key = j.concurrency_key \
             WHERE j.id IN {in $1}";
        let taken: Vec<Id> = Statement::new(text)
            .uncached()
            .bind(id_list(&over))
            .load(conn)?;
        let given = taken
            .into_iter()
            .map(|row| NewRequest::Semaphore(row.id, 1));
        wanted_keys::request(conn, given)?;
    }
    Ok(over)
}

/// The most jobs of keys that [`take_over`] takes at once.
const TAKEN_OVER: i64 = 500;

/// Blocks jobs with a limit of Windlass anew that Ruby has blocked by its own: these would wait for its semaphore. Requests
/// another promotion of their keys.
pub(crate) fn take_over(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let of_key = format!(
        "FROM solid_queue_blocked_executions b WHERE b.concurrency_key = w.key AND b.expires_at < {{time '{DOES_NOT_WAIT}'}} \
         AND (SELECT j.concurrency_slots FROM solid_queue_jobs j WHERE j.id = b.job_id) IS NOT NULL"
    );
    let limited = "(SELECT value ->> 0 AS key FROM {rows $1}) AS w WHERE (SELECT 1 FROM solid_queue_jobs l \
         WHERE l.concurrency_key = w.key AND l.concurrency_slots IS NOT NULL LIMIT 1) = 1";
    let text = match conn.dialect() {
        Dialect::Postgres => format!(
            "SELECT b.job_id FROM (SELECT w.key FROM {limited}) AS w CROSS JOIN LATERAL \
             (SELECT b.job_id {of_key} ORDER BY b.job_id + 0 LIMIT $2 {{lock skip of b}}) AS b LIMIT $2"
        ),
        // It has no LATERAL, and no other connection writes.
        Dialect::Sqlite => format!(
            "SELECT b.job_id FROM (SELECT w.key FROM {limited}) AS w CROSS JOIN solid_queue_blocked_executions b \
             WHERE b.id IN (SELECT b.id {of_key}) LIMIT $2"
        ),
    };
    let jobs: Vec<Execution> = Statement::new(text)
        .uncached()
        .bind(wanted_keys::key_list(keys))
        .bind(TAKEN_OVER)
        .load(conn)?;
    let jobs = job_ids(jobs);
    if jobs.is_empty() {
        return Ok(());
    }
    delete(conn, &jobs)?;
    insert_blocked(conn, &jobs)
}

/// Returns a condition: a job has a concurrency key. One of blanks only is none, for Solid Queue as well.
pub(crate) fn has_key(key: &str) -> String {
    format!("(coalesce(trim({key}), '') <> '')")
}

/// Returns a condition: a job has a rate or a concurrency key, so that it waits until a promotion lets it through. `of` is
/// the prefix of its columns.
pub(crate) fn has_gate(of: &str) -> String {
    let has_key = has_key(&format!("{of}concurrency_key"));
    format!("({of}gate IS NOT NULL OR {has_key})")
}

/// Returns a condition: the job `j` has a limit or a rate of Windlass.
fn has_limit() -> String {
    let has_key = has_key("j.concurrency_key");
    format!("(j.gate IS NOT NULL OR (j.concurrency_slots + 0 IS NOT NULL AND {has_key}))")
}

/// Deletes the blocked executions of jobs.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}

#[derive(QueryableByName)]
struct GoneLine {
    #[diesel(sql_type = Nullable<Text>)]
    gate: Option<String>,
}

/// Deletes blocked executions of jobs that wait no longer. Others of their lines, or of an ordered key, may have waited behind
/// them: for a rate until the first has the tokens that it costs.
pub(crate) fn take(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1} RETURNING gate";
    let gone: Vec<GoneLine> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let lines: BTreeSet<String> = gone.into_iter().filter_map(|row| row.gate).collect();
    let keys = lines.iter().filter_map(|line| GateLine::of(line).limit);
    wanted_keys::request_promotion(conn, &keys.collect())?;
    wanted_keys::request(conn, lines.into_iter().map(NewRequest::Gate))
}

#[derive(QueryableByName)]
struct ReplacedExecution {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Bool)]
    waits: bool,
}

/// Replaces the blocked execution of a job that waits for a slot by a new one. A job that waits is not discarded
/// afterwards: it may have failed, and a retry by hand has set its counts back.
pub(crate) fn renew(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = format!(
        "DELETE FROM solid_queue_blocked_executions WHERE job_id = $1 AND (gate IS NOT NULL OR NOT {}) \
         RETURNING job_id, expires_at = {{time '{NEVER_EXPIRES}'}} AS waits",
        waits_for_others_sql("concurrency_key")
    );
    let gone: Vec<ReplacedExecution> = Statement::new(text).uncached().bind(job).load(conn)?;
    let Some(ReplacedExecution { job_id, waits }) = gone.into_iter().next() else {
        return Ok(());
    };
    insert_blocked(conn, &[job_id])?;
    if !waits {
        return Ok(());
    }
    let text = format!(
        "UPDATE solid_queue_blocked_executions SET expires_at = {{time '{NEVER_EXPIRES}'}} WHERE job_id = $1"
    );
    Statement::new(text).uncached().bind(job_id).execute(conn)
}

/// Makes each job wait until another has ended.
pub(crate) fn block(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, $1, '{NEVER_EXPIRES}', created_at FROM solid_queue_jobs WHERE id IN {{in $2}} ORDER BY id"
    );
    Statement::new(text)
        .bind(UNIQUE_SUCCESSOR)
        .bind(id_list(jobs))
        .execute(conn)
}

/// Deletes those blocked executions of jobs that [`insert_blocked`] makes again, and gives the others another
/// queue: those of Rails, and those that wait until another job has ended. Returns the jobs of the
/// deleted ones.
pub(crate) fn take_for_queue(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    queue: &str,
) -> QueryResult<Vec<i64>> {
    let text = format!(
        "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {{in $1}} AND (gate IS NOT NULL OR NOT {} \
         AND (SELECT j.concurrency_slots FROM solid_queue_jobs j WHERE j.id = job_id) IS NOT NULL) \
         RETURNING job_id",
        waits_for_others_sql("concurrency_key")
    );
    let taken: Vec<Execution> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let text = "UPDATE solid_queue_blocked_executions SET queue_name = $1 WHERE job_id IN {in $2}";
    Statement::new(text)
        .bind(queue)
        .bind(id_list(jobs))
        .execute(conn)?;
    Ok(job_ids(taken))
}
