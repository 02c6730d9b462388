//! Ends the claims of jobs that have finished: in bulk, since every job passes here.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{EndedClaim, FinishedRow, NextClaims};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::table::claimed::{self, EndedClaims, OnLocked, claim_ids};
use crate::db::table::flows::members::{self, LEAVE};
use crate::db::table::results::{self, notify_waiters};
use crate::db::table::steps;
use crate::db::transition::claim::next::{claim_next, end_and_claim_next};
use diesel::prelude::*;
use std::collections::HashSet;

/// Ends the claims of jobs that have finished, and returns those that were still held; the others
/// belong to another process now.
#[cfg(all(test, feature = "internal-tests"))]
pub(crate) fn finish(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    finished: FinishedRow,
    slots: KeySlots<'_>,
) -> QueryResult<Vec<i64>> {
    let end = JobsEnd::new(finished, slots);
    let written = finish_by(conn, process_id, claims, end, OnLocked::Wait)?;
    Ok(written.accepted)
}

/// Like [`finish`], but skips claims that another transaction has locked.
pub(crate) fn finish_free(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    finished: FinishedRow,
    slots: KeySlots<'_>,
) -> QueryResult<EndedClaims> {
    let end = JobsEnd::new(finished, slots);
    finish_by(conn, process_id, claims, end, OnLocked::Skip)
}

/// The treatment of the jobs whose claims end.
#[derive(Debug, Clone, Copy)]
struct JobsEnd<'n> {
    finished: FinishedRow,
    slots: KeySlots<'n>,
    /// True if some may have steps, which are deleted.
    have_steps: bool,
    /// True if some belong to a batch.
    have_batches: bool,
}

impl<'n> JobsEnd<'n> {
    fn new(finished: FinishedRow, slots: KeySlots<'n>) -> Self {
        JobsEnd {
            finished,
            slots,
            have_steps: false,
            have_batches: false,
        }
    }
}

fn finish_by(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    end: JobsEnd<'_>,
    locks: OnLocked,
) -> QueryResult<EndedClaims> {
    let (accepted, next) = match conn.dialect() {
        Dialect::Postgres => match (claims, locks, end.slots) {
            (&[claim], OnLocked::Wait, KeySlots::None | KeySlots::Free) => (
                finish_one(conn, process_id, claim, end)?,
                NextClaims::default(),
            ),
            _ => finish_in_one_statement(conn, process_id, claims, end, locks)?,
        },
        Dialect::Sqlite => conn.join_transaction(|conn| {
            let ended = claimed::end_rows(conn, process_id, claims, OnLocked::Wait)?;
            finish_jobs(conn, &ended, end.finished)?;
            if end.have_steps {
                steps::remove(conn, &job_ids(&ended))?;
            }
            if end.have_batches {
                members::leave(conn, &job_ids(&ended))?;
            }
            let next = match end.slots {
                KeySlots::PassOn(next, equal) => claim_next(conn, process_id, &ended, next, equal)?,
                KeySlots::None | KeySlots::Free => {
                    claimed::request_promotion(conn, &ended)?;
                    NextClaims::default()
                }
            };
            QueryResult::Ok((claim_ids(ended), next))
        })?,
    };
    let mut written = match EndedClaims::of(conn, process_id, claims, accepted.clone(), locks) {
        Err(_) if must_return(conn, &next) => EndedClaims::with_the_rest_busy(claims, accepted),
        written => written?,
    };
    written.next = next;
    Ok(written)
}

/// Returns whether a statement in autocommit has claimed jobs. The caller must get to know them, even
/// if a further statement fails; it tries again what is left.
fn must_return(conn: &mut Conn<'_>, next: &NextClaims) -> bool {
    !next.jobs.is_empty() && !conn.is_in_transaction()
}

/// Like [`finish`], for jobs with results, unique ids or steps: in the same transaction it stores
/// results, makes the jobs that waited for them runnable, and deletes their steps. In a transaction of
/// the caller it makes no savepoint: the caller rolls back if it fails.
pub(crate) fn finish_and_keep(
    conn: &mut Conn<'_>,
    process_id: i64,
    jobs: Vec<FinishedJob<'_>>,
    finished: FinishedRow,
    slots: KeySlots<'_>,
) -> QueryResult<Vec<i64>> {
    let written = finish_and_keep_by(conn, process_id, jobs, finished, slots, OnLocked::Wait)?;
    Ok(written.accepted)
}

/// Like [`finish_and_keep`], but skips claims that another transaction has locked.
pub(crate) fn finish_and_keep_free(
    conn: &mut Conn<'_>,
    process_id: i64,
    jobs: Vec<FinishedJob<'_>>,
    finished: FinishedRow,
    slots: KeySlots<'_>,
) -> QueryResult<EndedClaims> {
    finish_and_keep_by(conn, process_id, jobs, finished, slots, OnLocked::Skip)
}

fn finish_and_keep_by(
    conn: &mut Conn<'_>,
    process_id: i64,
    jobs: Vec<FinishedJob<'_>>,
    finished: FinishedRow,
    slots: KeySlots<'_>,
    locks: OnLocked,
) -> QueryResult<EndedClaims> {
    let end = JobsEnd {
        finished,
        slots,
        have_steps: jobs.iter().any(|job| job.has_steps),
        have_batches: jobs.iter().any(|job| job.has_batch),
    };
    conn.join_transaction(|conn| {
        let claims: Vec<i64> = jobs.iter().map(|job| job.claim_id).collect();
        let written = finish_by(conn, process_id, &claims, end, locks)?;
        let accepted: HashSet<i64> = written.accepted.iter().copied().collect();
        let (mut results, mut named) = (Vec::new(), Vec::new());
        for job in jobs {
            if accepted.contains(&job.claim_id) {
                results.extend(job.result);
                named.extend(job.named);
            }
        }
        results::store_results(conn, &results)?;
        if !named.is_empty() {
            crate::db::transition::unique::unblock(conn, &named)?;
        }
        Ok(written)
    })
}

/// Finishes one job on Postgres, mostly in the transaction of its work, whose connection is the application's: a list
/// would be planned for each job anew there.
fn finish_one(
    conn: &mut Conn<'_>,
    process_id: i64,
    claim: i64,
    end: JobsEnd<'_>,
) -> QueryResult<Vec<i64>> {
    let text = format!(
        "{} {RETURNED}",
        ending("", "c.id = $1 AND c.process_id + 0 = $2", end)
    );
    let ended: Vec<Id> = Statement::new(text)
        .bind(claim)
        .bind(process_id)
        .load(conn)?;
    Ok(ended.into_iter().map(|row| row.id).collect())
}

/// Finishes on Postgres in one statement in autocommit, with the rows locked in order and then
/// deleted by their ctid, without a second index lookup. For `+ 0` see the module of claims.
///
/// A row that was changed between the start of the statement and its lock, by a cancel request for
/// example, has moved by then and is not found. The second statement ends the claims that the first
/// has left out, if they are still held.
fn finish_in_one_statement(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    end: JobsEnd<'_>,
    locks: OnLocked,
) -> QueryResult<(Vec<i64>, NextClaims)> {
    let by = |what: &str| {
        format!(
            "SELECT {what} FROM solid_queue_claimed_executions \
             WHERE id = ANY ($1) AND process_id + 0 = $2 ORDER BY id + 0 FOR UPDATE{}",
            locks.skip()
        )
    };
    let by_spot = &*by("ctid AS spot");
    let spot = "c.ctid = ANY (ARRAY(SELECT spot FROM held))";
    let (mut ended, mut next) = finish_where(conn, process_id, claims, end, by_spot, spot)?;
    if ended.len() < claims.len() {
        let found: HashSet<i64> = ended.iter().copied().collect();
        let rest = claims.iter().copied().filter(|id| !found.contains(id));
        let rest: Vec<i64> = rest.collect();
        let by_id = &*by("id");
        let id = "c.id = ANY (ARRAY(SELECT id FROM held))";
        match finish_where(conn, process_id, &rest, end, by_id, id) {
            Ok(more) => {
                ended.extend(more.0);
                next.jobs.extend(more.1.jobs);
                next.has_requested |= more.1.has_requested;
            }
            Err(_) if must_return(conn, &next) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((ended, next))
}

/// Returns the CTEs of what only some jobs need.
fn also_done(end: JobsEnd<'_>) -> String {
    let mut ctes = String::new();
    if end.slots == KeySlots::Free {
        ctes.push_str(&format!("wanted AS ({}), ", claimed::request_sql("ended")));
    }
    if end.have_steps {
        ctes.push_str(
            "steps AS (DELETE FROM windlass_steps WHERE job_id = ANY (ARRAY(SELECT job_id FROM ended))), ",
        );
    }
    if end.have_batches {
        ctes.push_str(&format!("left_batch AS ({LEAVE}), "));
    }
    ctes
}

fn finish_where(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    end: JobsEnd<'_>,
    held: &str,
    is_held: &str,
) -> QueryResult<(Vec<i64>, NextClaims)> {
    let held = format!("held AS MATERIALIZED ({held}), ");
    let ending = ending(&held, is_held, end);
    if let KeySlots::PassOn(next, equal) = end.slots {
        return end_and_claim_next(conn, &ending, claims, process_id, next, equal);
    }
    let text = format!("{ending} {RETURNED}");
    let ended = Statement::new(text).bind(claims).bind(process_id);
    let ended: Vec<Id> = ended.load(conn)?;
    let ended = ended.into_iter().map(|row| row.id).collect();
    Ok((ended, NextClaims::default()))
}

/// The claims that a statement has ended.
const RETURNED: &str = "SELECT claim_id AS id FROM ended WHERE (SELECT * FROM woken) IS NOT NULL";

/// Returns the CTEs that end the claims `c` which meet a condition, and what that means for their jobs. They come after
/// those in `held`.
fn ending(held: &str, is_held: &str, end: JobsEnd<'_>) -> String {
    let jobs = match end.finished {
        FinishedRow::Keep => {
            "UPDATE solid_queue_jobs j SET finished_at = {now}, updated_at = {now}, crash_count = 0, \
             last_claim_id = ended.claim_id FROM ended WHERE j.id = ended.job_id"
        }
        FinishedRow::Delete => {
            "DELETE FROM solid_queue_jobs WHERE id = ANY (ARRAY(SELECT job_id FROM ended))"
        }
    };
    format!(
        "WITH {held}ended AS (DELETE FROM solid_queue_claimed_executions c WHERE {is_held} \
           RETURNING c.id AS claim_id, c.job_id, c.concurrency_key, c.semaphore_id), \
         jobs AS ({jobs}), {also}woken AS ({WAITERS})",
        also = also_done(end),
        WAITERS = notify_waiters("ARRAY(SELECT job_id FROM ended)")
    )
}

fn job_ids(ended: &[EndedClaim]) -> Vec<i64> {
    ended.iter().map(|row| row.job_id).collect()
}

fn finish_jobs(
    conn: &mut Conn<'_>,
    ended: &[EndedClaim],
    finished: FinishedRow,
) -> QueryResult<()> {
    let text = match finished {
        FinishedRow::Keep => {
            "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now}, crash_count = 0, \
             last_claim_id = pair.value ->> 1 FROM json_each($1) AS pair WHERE solid_queue_jobs.id = pair.value ->> 0"
        }
        FinishedRow::Delete => {
            "DELETE FROM solid_queue_jobs WHERE id IN (SELECT value ->> 0 FROM json_each($1))"
        }
    };
    let pairs: Vec<(i64, i64)> = ended.iter().map(|row| (row.job_id, row.claim_id)).collect();
    let pairs = serde_json::to_string(&pairs).unwrap_or_default();
    Statement::new(text).bind(&pairs).execute(conn)
}
