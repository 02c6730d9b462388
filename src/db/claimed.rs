//! `solid_queue_claimed_executions`: every way in which a claim ends.
//!
//! Each is fenced: the claim's row is deleted by its id and its process
//! first, and the rest happens only to the rows that this deletion returned,
//! in the same transaction. No row means that the claim is not ours any more.

use super::attempts::{self, AttemptOutcome, Began, EndedRun, Ending};
use super::conn::{Conn, on};
use super::failed::{self, Failure};
pub(crate) use super::finish::{FinishedJob, finish, finish_and_keep, finish_unfenced};
use super::sql::{cached, id_list, sql};
use crate::mutant;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use std::time::Duration;

/// Who may end a claim: its id, and the process that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) process_id: i64,
    pub(crate) claim_id: i64,
}

/// What becomes of the row of a job that has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// It stays, with its time.
    Keep,
    /// It goes.
    Delete,
}

#[derive(QueryableByName)]
pub(super) struct Ended {
    #[diesel(sql_type = BigInt)]
    pub(super) claim_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) job_id: i64,
    /// Somebody had asked for it; a job that has finished does not care.
    #[diesel(sql_type = Bool)]
    pub(super) cancelled: bool,
}

pub(super) fn claim_ids(rows: Vec<Ended>) -> Vec<i64> {
    rows.into_iter().map(|row| row.claim_id).collect()
}

/// Notes claims as begun, and returns those that were still held.
pub(crate) fn begin(conn: &mut Conn<'_>, process_id: i64, claims: &[i64]) -> QueryResult<Vec<i64>> {
    let text = conn.write(
        "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE process_id = $1 AND id IN {in $2} ORDER BY id {lock}) \
         UPDATE solid_queue_claimed_executions SET started_at = {now} WHERE id IN (SELECT id FROM held) \
         RETURNING id AS claim_id, job_id, false AS cancelled",
    );
    let begun: Vec<Ended> = on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(process_id)
            .bind::<Text, _>(id_list(claims))
    )
    .load(c))?;
    Ok(claim_ids(begun))
}

/// The fence itself: ends those of the claims that the process holds.
///
/// They are locked in order first: a planner that follows the list would hold
/// a later one while it waits for an earlier one, and who prunes the process
/// the other way round.
pub(super) fn end(conn: &mut Conn<'_>, process_id: i64, claims: &[i64]) -> QueryResult<Vec<Ended>> {
    let text = conn.write(
        "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE process_id = $1 AND id IN {in $2} ORDER BY id {lock}) \
         DELETE FROM solid_queue_claimed_executions WHERE id IN (SELECT id FROM held) \
         RETURNING id AS claim_id, job_id, cancel_requested_at IS NOT NULL AS cancelled",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(process_id)
            .bind::<Text, _>(id_list(claims))
    )
    .load(c))
}

/// Ends one claim; `None`: fenced.
pub(super) fn end_one(conn: &mut Conn<'_>, fence: Fence) -> QueryResult<Option<Ended>> {
    Ok(end(conn, fence.process_id, &[fence.claim_id])?.pop())
}

/// Gives claims back, to be claimed anew at once or after `delay`, and
/// returns those that were still held. No attempt is counted.
pub(crate) fn release(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    delay: Option<Duration>,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let ended = end(conn, process_id, claims)?;
        let (cancelled, waiting): (Vec<_>, Vec<_>) = ended.iter().partition(|row| row.cancelled);
        let jobs: Vec<i64> = waiting.iter().map(|row| row.job_id).collect();
        make_waiting(conn, &jobs, delay)?;
        for row in waiting {
            note_claim(conn, row.claim_id, row.job_id)?;
        }
        for row in cancelled {
            let run = EndedRun {
                process_id,
                claim_id: row.claim_id,
                job_id: row.job_id,
                began: Began::At(None),
                by_owner: true,
                finished: Finished::Keep,
            };
            attempts::follow(conn, &run, &Ending::Cancel(attempts::cancelled()))?;
        }
        Ok(claim_ids(ended))
    })
}

/// Lets jobs wait again: ready, or scheduled after `delay`.
pub(super) fn make_waiting(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    delay: Option<Duration>,
) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    match delay.filter(|delay| !delay.is_zero()) {
        None => super::ready::insert(conn, jobs),
        Some(delay) => super::scheduled::insert(conn, jobs, delay),
    }
}

/// Notes which claim its owner has ended last.
pub(super) fn note_claim(conn: &mut Conn<'_>, claim_id: i64, job_id: i64) -> QueryResult<()> {
    let text = conn
        .write("UPDATE solid_queue_jobs SET last_claim_id = $1, updated_at = {now} WHERE id = $2");
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(claim_id)
            .bind::<BigInt, _>(job_id)
    )
    .execute(c))
    .map(drop)
}

/// Takes away claims whose job does not exist: somebody deleted it while its
/// ready execution stayed behind.
pub(crate) fn drop_orphans(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
) -> QueryResult<()> {
    end(conn, process_id, claims).map(drop)
}

/// Takes away the claims of a process whose job somebody deleted: without it
/// they would belong to nobody for ever.
pub(super) fn drop_jobless(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<()> {
    let text = conn.write(
        "DELETE FROM solid_queue_claimed_executions WHERE process_id = $1 \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = solid_queue_claimed_executions.job_id)",
    );
    on!(conn, |c| cached(sql(text).bind::<BigInt, _>(process_id))
        .execute(c))
    .map(drop)
}

/// The claims that the database holds for a process, as `(claim, job)`: what
/// a worker compares with its memory.
pub(crate) fn held_by(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<Vec<(i64, i64)>> {
    use super::schema::solid_queue_claimed_executions::dsl;
    on!(conn, |c| dsl::solid_queue_claimed_executions
        .select((dsl::id, dsl::job_id))
        .filter(dsl::process_id.eq(process_id))
        .order(dsl::id)
        .load(c))
}

/// How the process that held a claim ended.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    /// Whether its jobs may have caused it; a graceful stop did not.
    pub(crate) is_crash: bool,
    /// For the failures that come of it: "was killed by signal 9".
    pub(crate) how: String,
}

/// What became of the claims of a process that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Jobs that are ready again, at once.
    pub(crate) released: Vec<i64>,
    /// Jobs that wait for a while first, having crashed before.
    pub(crate) delayed: Vec<i64>,
    /// Jobs that failed: over their crash cap, or at most once.
    pub(crate) failed: Vec<i64>,
    /// Jobs that have ended because somebody had asked for it.
    pub(crate) cancelled: Vec<i64>,
}

#[derive(QueryableByName)]
struct Lost {
    #[diesel(sql_type = BigInt)]
    claim_id: i64,
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    cancelled: bool,
    #[diesel(sql_type = Nullable<Text>)]
    verdict: Option<String>,
    #[diesel(sql_type = Integer)]
    crash_count: i32,
    #[diesel(sql_type = Integer)]
    max_crashes: i32,
    #[diesel(sql_type = Bool)]
    at_most_once: bool,
}

/// How often a job may be running when its process dies, unless it says
/// otherwise. One is too few: a job that kills takes its neighbours along.
const MAX_CRASHES: i32 = 3;

/// Routes every claim of a process that is gone. The caller holds the lock of
/// the process row, so no claim can be added meanwhile.
pub(super) fn recover(
    conn: &mut Conn<'_>,
    process_id: i64,
    death: &Death,
) -> QueryResult<Recovered> {
    let text = conn.write(&format!(
        "SELECT c.id AS claim_id, c.job_id, c.started_at, c.verdict, c.cancel_requested_at IS NOT NULL AS cancelled, \
         j.crash_count, \
         coalesce(j.max_crashes, {MAX_CRASHES}) AS max_crashes, j.at_most_once \
         FROM solid_queue_claimed_executions c JOIN solid_queue_jobs j ON j.id = c.job_id \
         WHERE c.process_id = $1 ORDER BY c.id {{lock of c}}"
    ));
    let lost: Vec<Lost> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(process_id))
        .load(c))?;
    let mut recovered = Recovered::default();
    for claim in lost {
        let fence = Fence {
            process_id,
            claim_id: claim.claim_id,
        };
        if end_one(conn, fence)?.is_some() {
            recover_one(conn, process_id, &claim, death, &mut recovered)?;
        }
    }
    Ok(recovered)
}

fn recover_one(
    conn: &mut Conn<'_>,
    process_id: i64,
    claim: &Lost,
    death: &Death,
    recovered: &mut Recovered,
) -> QueryResult<()> {
    let run = EndedRun {
        process_id,
        claim_id: claim.claim_id,
        job_id: claim.job_id,
        began: Began::At(claim.started_at),
        by_owner: false,
        finished: Finished::Keep,
    };
    match foregone(claim) {
        Some(ending) => {
            attempts::follow(conn, &run, &ending)?;
            match ending {
                Ending::Retry(..) | Ending::Snooze(_) => recovered.delayed.push(claim.job_id),
                Ending::Fail(_) => recovered.failed.push(claim.job_id),
                Ending::Discard(_) | Ending::Cancel(_) => recovered.cancelled.push(claim.job_id),
            }
            Ok(())
        }
        None => recover_interrupted(conn, &run, claim, death, recovered),
    }
}

/// A run that death cut off: the job waits again, unless it may run at most
/// once or has cost too many processes.
fn recover_interrupted(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    claim: &Lost,
    death: &Death,
    recovered: &mut Recovered,
) -> QueryResult<()> {
    let started = claim.started_at.is_some();
    let counts = death.is_crash && started && !mutant::is("crash_not_counted");
    let crashes = claim.crash_count + i32::from(counts);
    if counts {
        count_crash(conn, claim.job_id)?;
    }
    let last = if claim.at_most_once && started {
        Some(Failure::outcome_unknown(&death.how))
    } else {
        Some(Failure::crashed(&death.how, crashes)).filter(|_| crashes > claim.max_crashes)
    };
    if let Some(failure) = last {
        attempts::insert(conn, run, AttemptOutcome::Failed, &failure)?;
        failed::insert(conn, claim.job_id, &failure)?;
        recovered.failed.push(claim.job_id);
        return Ok(());
    }
    if counts {
        let failure = Failure::crashed(&death.how, crashes);
        attempts::insert(conn, run, AttemptOutcome::Crashed, &failure)?;
    }
    let delay = Some(crash_delay(crashes)).filter(|_| counts && crashes >= 2);
    make_waiting(conn, &[claim.job_id], delay)?;
    match delay {
        Some(_) => recovered.delayed.push(claim.job_id),
        None => recovered.released.push(claim.job_id),
    }
    Ok(())
}

/// What was decided before the process ended: by whoever cancelled the job,
/// or by the process itself when the job overran its time.
fn foregone(claim: &Lost) -> Option<Ending> {
    if claim.cancelled {
        return Some(Ending::Cancel(attempts::cancelled()));
    }
    serde_json::from_str(claim.verdict.as_deref()?).ok()
}

/// 20 s after the second crash, doubling up to 10 minutes.
fn crash_delay(crashes: i32) -> Duration {
    let exponent = u32::try_from(crashes).unwrap_or(0).min(8);
    Duration::from_secs((5 << exponent).min(600))
}

fn count_crash(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<()> {
    let text = conn.write(
        "UPDATE solid_queue_jobs SET crash_count = crash_count + 1, updated_at = {now} WHERE id = $1",
    );
    on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .execute(c))
    .map(drop)
}
