//! Ends blocked jobs that do not wait for a slot.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Execution};
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::blocked;
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::semaphores::{
    AT_ONCE, DOES_NOT_WAIT, FreeSlots, held_up_to, limit_of, slot_list,
};
use crate::db::transition::flows::end_waiting::end_waiting;
use diesel::QueryResult;

/// The kind of failure of a job that found no slot and does not wait.
pub(crate) const NO_SLOT: &str = "concurrency_limit";

/// A job that was discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discarded {
    pub(crate) id: i64,
    pub(crate) class_name: String,
    pub(crate) queue_name: String,
    /// The kind of its failure.
    pub(crate) kind: &'static str,
}

impl Discarded {
    pub(crate) fn of(job: EndedJob, kind: &'static str) -> Self {
        Discarded {
            id: job.id,
            class_name: job.class_name,
            queue_name: job.queue_name,
            kind,
        }
    }
}

/// Ends jobs that do not wait, of the keys of which no slot is free.
///
/// On Postgres, the statement that finds the jobs counts the slots once more: since the pick, one may have
/// become free and a job been enqueued after that.
pub(crate) fn discard(conn: &mut Conn<'_>, full: &[FreeSlots]) -> QueryResult<Vec<Discarded>> {
    if full.is_empty() {
        return Ok(Vec::new());
    }
    let late = late(conn, full)?;
    if late.is_empty() {
        return Ok(Vec::new());
    }
    // Where a row of a job is locked, the other keys do not wait for it.
    let jobs = jobs::lock_free(conn, &late)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    blocked::delete(conn, &jobs)?;
    let failure = JobFailure::new(
        NO_SLOT,
        "as many jobs of its concurrency key as may were there already, and it does not wait",
    );
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    let ended = end_waiting(conn, &jobs, attempt, result, &failure)?;
    let ended = ended.into_iter();
    Ok(ended.map(|job| Discarded::of(job, NO_SLOT)).collect())
}

/// Returns jobs of full keys that do not wait, locked: of each key as many as one promotion ends of it.
fn late(conn: &mut Conn<'_>, full: &[FreeSlots]) -> QueryResult<Vec<i64>> {
    let share = (AT_ONCE / full.len() as i64).max(1);
    let late = format!(
        "SELECT job_id FROM solid_queue_blocked_executions WHERE expires_at = {{time '{DOES_NOT_WAIT}'}}"
    );
    let mut jobs: Vec<i64> = match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT b.job_id FROM (SELECT value ->> 0 AS key FROM {{rows $1}}) AS w \
                 CROSS JOIN LATERAL (SELECT greatest({}, 0) AS slots) AS l \
                 CROSS JOIN LATERAL ({late} AND concurrency_key = w.key AND l.slots <= {} LIMIT $2 \
                   FOR UPDATE SKIP LOCKED) AS b",
                limit_of("w.key"),
                held_up_to("w.key", "l.slots"),
            );
            let list = slot_list(full);
            Statement::new(text)
                .unkept()
                .bind(list)
                .bind(share)
                .load(conn)?
        }
        Dialect::Sqlite => {
            let text = format!("{late} AND concurrency_key = $1 LIMIT $2");
            let mut jobs: Vec<Execution> = Vec::new();
            for one in full {
                let statement = Statement::new(&text).bind(&one.key[..]).bind(share);
                jobs.extend(statement.load::<Execution>(conn)?);
            }
            jobs
        }
    }
    .into_iter()
    .map(|row: Execution| row.job_id)
    .collect();
    jobs.sort_unstable();
    Ok(jobs)
}
