//! `solid_queue_claimed_executions`: every way in which a claim ends.
//!
//! Each is fenced: the claim's row is deleted by its id and its process
//! first, and the rest happens only to the rows that this deletion returned,
//! in the same transaction. No row means that the claim is not ours any more.

use super::attempts::{self, Began, EndedRun, Ending};
use super::conn::{Conn, on};
use super::ready::Claimed;
#[cfg(feature = "postgres")]
use super::results::notify_waiters;
use super::results::{self, NewResult};
use super::semaphores;
use super::sql::{cached, id_list, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
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
    /// The key of which it held a slot.
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) concurrency_key: Option<String>,
}

fn claim_ids(rows: Vec<Ended>) -> Vec<i64> {
    rows.into_iter().map(|row| row.claim_id).collect()
}

/// Ends the claims of jobs that have finished, and returns those that were
/// still held; the others belong to somebody else now. Some of those that are
/// `limited` may hold slots of concurrency keys.
#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
pub(crate) fn finish(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    (finished, limited): (Finished, bool),
) -> QueryResult<Vec<i64>> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => {
            finish_in_one_statement(conn, process_id, claims, (finished, limited))
        }
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => conn.transaction(|conn| {
            let ended = end(conn, process_id, claims)?;
            finish_jobs(conn, &ended, finished)?;
            Ok(claim_ids(ended))
        }),
    }
}

/// A job that has finished and left something to be kept.
#[derive(Debug)]
pub(crate) struct FinishedJob<'a> {
    pub(crate) claim_id: i64,
    /// What is kept of it; nothing, if nobody is to be told.
    pub(crate) result: Option<NewResult<'a>>,
    /// The job, if it has a unique id, behind which others may wait.
    pub(crate) named: Option<i64>,
    /// The job, if it has recorded steps, which are forgotten.
    pub(crate) steps: Option<i64>,
}

impl<'a> FinishedJob<'a> {
    /// What a run leaves behind that gave `(text, problem)`: the JSON of its
    /// output, and why there is none.
    pub(crate) fn new(
        job: &'a Claimed,
        output: (Option<&'a str>, Option<&'a str>),
        keep_result: Option<Duration>,
        has_steps: bool,
    ) -> Self {
        let unique_id = job.unique_id.as_deref();
        let run = (
            job.job_id,
            u32::try_from(job.attempts).unwrap_or_default() + 1,
        );
        FinishedJob {
            claim_id: job.claim_id,
            result: NewResult::of_finished(run, &job.class_name, unique_id, output, keep_result),
            named: unique_id.map(|_| job.job_id),
            steps: has_steps.then_some(job.job_id),
        }
    }

    /// Whether there is more to do than to finish it.
    pub(crate) fn leaves_traces(&self) -> bool {
        self.result.is_some() || self.named.is_some() || self.steps.is_some()
    }
}

/// Like [`finish`], for jobs with results, unique ids or steps: what they
/// returned is kept, who waits behind them goes on, and their steps are
/// forgotten, in the same transaction.
pub(crate) fn finish_and_keep(
    conn: &mut Conn<'_>,
    process_id: i64,
    jobs: Vec<FinishedJob<'_>>,
    finished: (Finished, bool),
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let claims: Vec<i64> = jobs.iter().map(|job| job.claim_id).collect();
        let accepted = finish(conn, process_id, &claims, finished)?;
        let (mut results, mut named, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            if accepted.contains(&job.claim_id) {
                results.extend(job.result);
                named.extend(job.named);
                steps.extend(job.steps);
            }
        }
        results::insert(conn, &results)?;
        super::steps::remove(conn, &steps)?;
        if !named.is_empty() {
            super::unique::unblock(conn, Some(&named), named.len())?;
        }
        Ok(accepted)
    })
}

/// A deliberate fault: finishes the jobs of claims whoever holds them now.
pub(crate) fn finish_unfenced(conn: &mut Conn<'_>, claims: &[(i64, i64)]) -> QueryResult<()> {
    let text = conn.write("DELETE FROM solid_queue_claimed_executions WHERE job_id = $1");
    let update = conn
        .write("UPDATE solid_queue_jobs SET finished_at = {now}, last_claim_id = $1 WHERE id = $2");
    for (claim, job) in claims {
        on!(conn, |c| cached(sql(text.clone()).bind::<BigInt, _>(job))
            .execute(c))?;
        on!(conn, |c| cached(
            sql(update.clone())
                .bind::<BigInt, _>(claim)
                .bind::<BigInt, _>(job)
        )
        .execute(c))?;
    }
    Ok(())
}

/// Postgres: one statement in autocommit, the rows locked in order.
#[cfg(feature = "postgres")]
fn finish_in_one_statement(
    conn: &mut PgConnection,
    process_id: i64,
    claims: &[i64],
    (finished, limited): (Finished, bool),
) -> QueryResult<Vec<i64>> {
    use diesel::sql_types::Array;
    let jobs = match finished {
        Finished::Keep => {
            "UPDATE solid_queue_jobs j SET finished_at = {now}, updated_at = {now}, crash_count = 0, \
             last_claim_id = ended.claim_id FROM ended WHERE j.id = ended.job_id"
        }
        Finished::Delete => "DELETE FROM solid_queue_jobs j USING ended WHERE j.id = ended.job_id",
    };
    let wanted = if limited {
        "wanted AS (INSERT INTO windlass_wanted_keys (key) \
           SELECT DISTINCT concurrency_key FROM ended WHERE concurrency_key IS NOT NULL), "
    } else {
        ""
    };
    let text = super::sql::Dialect::Postgres.write(&format!(
        "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE id = ANY ($1) AND process_id = $2 ORDER BY id FOR UPDATE), \
         ended AS (DELETE FROM solid_queue_claimed_executions c USING held WHERE c.id = held.id \
           RETURNING c.id AS claim_id, c.job_id, c.concurrency_key), \
         jobs AS ({jobs}), \
         {wanted}woken AS ({WAITERS}) \
         SELECT claim_id, job_id, false AS cancelled, concurrency_key, (SELECT * FROM woken) AS woken FROM ended",
        WAITERS = notify_waiters!("ARRAY(SELECT job_id FROM ended)")
    ));
    cached(
        sql(text)
            .bind::<Array<BigInt>, _>(claims)
            .bind::<BigInt, _>(process_id),
    )
    .load(conn)
    .map(claim_ids)
}

#[cfg(feature = "sqlite")]
fn finish_jobs(conn: &mut Conn<'_>, ended: &[Ended], finished: Finished) -> QueryResult<()> {
    let text = match finished {
        Finished::Keep => conn.write(
            "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now}, crash_count = 0, \
             last_claim_id = pair.value ->> 1 FROM json_each($1) AS pair WHERE solid_queue_jobs.id = pair.value ->> 0",
        ),
        Finished::Delete => conn.write(
            "DELETE FROM solid_queue_jobs WHERE id IN (SELECT value ->> 0 FROM json_each($1))",
        ),
    };
    let pairs: Vec<(i64, i64)> = ended.iter().map(|row| (row.job_id, row.claim_id)).collect();
    let pairs = serde_json::to_string(&pairs).unwrap_or_default();
    on!(conn, |c| cached(sql(text).bind::<Text, _>(&pairs))
        .execute(c))
    .map(drop)
}

/// The fence itself: ends those of the claims that the process holds.
///
/// They are locked in order first: a planner that follows the list would hold
/// a later one while it waits for an earlier one, and who prunes the process
/// the other way round.
fn end(conn: &mut Conn<'_>, process_id: i64, claims: &[i64]) -> QueryResult<Vec<Ended>> {
    let text = conn.write(
        "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE process_id = $1 AND id IN {in $2} ORDER BY id {lock}) \
         DELETE FROM solid_queue_claimed_executions WHERE id IN (SELECT id FROM held) \
         RETURNING id AS claim_id, job_id, cancel_requested_at IS NOT NULL AS cancelled, concurrency_key",
    );
    let ended: Vec<Ended> = on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(process_id)
            .bind::<Text, _>(id_list(claims))
    )
    .load(c))?;
    // Whatever the way in which it ends, its slot is free.
    let keys = ended.iter().filter_map(|row| row.concurrency_key.clone());
    semaphores::want(conn, &keys.collect())?;
    Ok(ended)
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
