//! Plain outcomes: the rows that the end of a run writes.

use crate::db::Conn;
use crate::laboratory::plain::statement::{Prepared, render};
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// The statements of an outcome, each about the list of jobs `$1`.
pub(crate) type PlainOutcome = &'static [&'static str];

const FINISH: &str = "UPDATE plain_jobs SET finished_at = {now}, updated_at = {now} WHERE id {in}";

const COUNT: &str =
    "UPDATE plain_jobs SET attempts = attempts + 1, updated_at = {now} WHERE id {in}";

const END_CLAIM: &str = "DELETE FROM plain_claimed WHERE job_id {in}";

const READY: &str = "INSERT INTO plain_ready (job_id, queue_name, priority, created_at) \
     SELECT value, 'default', 0, {now} FROM {list}";

/// Both attempts and failed executions take a message for each job.
const ATTEMPT: &str = "INSERT INTO plain_attempts (job_id, claim_id, attempt, outcome, kind, message, \
       started_at, process_name, hostname, pid, ended_at) \
     SELECT value, value, 1, 'failed', 'error', message, {now}, 'worker-1-0123456789abcdef', 'localhost', 1, {now} \
     FROM {list with messages}";

const DISCARDED_ATTEMPT: &str = "INSERT INTO plain_attempts (job_id, claim_id, attempt, outcome, kind, message, \
       started_at, process_name, hostname, pid, ended_at) \
     SELECT value, value, 1, 'discarded', 'error', message, {now}, 'worker-1-0123456789abcdef', 'localhost', 1, {now} \
     FROM {list with messages}";

const FINISH_AND_COUNT: &str = "UPDATE plain_jobs SET finished_at = {now}, updated_at = {now}, \
     attempts = attempts + 1 WHERE id {in}";

pub(crate) const KEEP: PlainOutcome = &[FINISH, END_CLAIM];

pub(crate) const DELETE: PlainOutcome = &["DELETE FROM plain_jobs WHERE id {in}", END_CLAIM];

pub(crate) const RETRY: PlainOutcome = &[COUNT, READY, ATTEMPT, END_CLAIM];

pub(crate) const SNOOZE: PlainOutcome = &[COUNT, READY, END_CLAIM];

pub(crate) const FAIL: PlainOutcome = &[
    COUNT,
    "INSERT INTO plain_failed (job_id, error, created_at) \
     SELECT value, '{\"exception_class\":\"error\",\"message\":\"' || message || '\",\"backtrace\":[]}', {now} \
     FROM {list with messages}",
    ATTEMPT,
    END_CLAIM,
];

pub(crate) const DISCARD: PlainOutcome = &[FINISH_AND_COUNT, DISCARDED_ATTEMPT, END_CLAIM];

pub(crate) const KEEP_RESULT: PlainOutcome = &[
    FINISH,
    "INSERT INTO plain_results (job_id, class_name, outcome, result, attempt, finished_at, expires_at) \
     SELECT value, 'windlass_bench_nothing', 'succeeded', message, 1, {now}, {now} FROM {list with messages}",
    END_CLAIM,
];

pub(crate) const KEEP_UNIQUE: PlainOutcome = &[
    FINISH,
    "DELETE FROM plain_unique WHERE job_id {in}",
    END_CLAIM,
];

pub(crate) const KEEP_STEPS: PlainOutcome = &[
    FINISH,
    "DELETE FROM plain_steps WHERE job_id {in}",
    END_CLAIM,
];

/// The work that each job does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PerJob {
    Nothing,
    /// One row, in a commit of its own.
    Insert,
    /// One row and that of a step, in a transaction.
    Step,
    /// One row and the end of the job, in a transaction.
    Finish,
}

impl PerJob {
    pub(crate) fn perform(self, conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
        match self {
            PerJob::Nothing => Ok(()),
            PerJob::Insert => insert_effect(conn, job),
            PerJob::Step => conn.transaction(|conn| {
                insert_effect(conn, job)?;
                for_job(
                    conn,
                    "INSERT INTO plain_steps (job_id, name, value, created_at) VALUES ($1, 'insert', 'null', {now})",
                    job,
                )
            }),
            PerJob::Finish => conn.transaction(|conn| {
                insert_effect(conn, job)?;
                for_job(
                    conn,
                    "UPDATE plain_jobs SET finished_at = {now}, updated_at = {now} WHERE id = $1",
                    job,
                )?;
                for_job(conn, "DELETE FROM plain_claimed WHERE job_id = $1", job)
            }),
        }
    }
}

/// Inserts a row into the application's table.
pub(crate) fn insert_effect(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    for_job(conn, "INSERT INTO plain_effects (job_id) VALUES ($1)", job)
}

fn for_job(conn: &mut Conn<'_>, text: &str, job: i64) -> QueryResult<()> {
    let text = render(conn, text);
    match conn {
        Conn::Postgres(conn) => Prepared(diesel::sql_query(text).bind::<BigInt, _>(job)).run(*conn),
        Conn::Sqlite(conn) => Prepared(diesel::sql_query(text).bind::<BigInt, _>(job)).run(*conn),
    }
}
