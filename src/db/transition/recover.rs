//! What becomes of the claims of a process that is gone.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::lossy::Lossy;
use crate::db::conn::sql::{cached, sql};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::model::claim::{Fence, Finished};
use crate::db::model::outcome::{self, AttemptOutcome, Began, EndedRun, Ending, Failure};
use crate::db::table::attempts;
use crate::db::table::claimed::end_one;
use crate::db::table::wanted_keys::{self, Key};
use crate::db::transition::place::make_waiting;
use crate::db::transition::settle;
use crate::mutant;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use std::time::Duration;

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
    /// Jobs, with their classes, that have ended because they overran their
    /// time, and their policy does not mind.
    pub(crate) discarded: Vec<(i64, String)>,
    /// Why claims are left, if some are: they are tried again later.
    pub(crate) left: Option<String>,
}

impl Recovered {
    fn extend(&mut self, other: Recovered) {
        self.released.extend(other.released);
        self.delayed.extend(other.delayed);
        self.failed.extend(other.failed);
        self.cancelled.extend(other.cancelled);
        self.discarded.extend(other.discarded);
    }
}

impl Recovered {
    /// Whether there was a claim.
    pub(crate) fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
}

#[derive(QueryableByName)]
pub(crate) struct Lost {
    #[diesel(sql_type = BigInt)]
    claim_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    cancelled: bool,
    #[diesel(sql_type = Nullable<Text>)]
    verdict: Option<String>,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = Integer)]
    crash_count: i32,
    #[diesel(sql_type = Integer)]
    max_crashes: i32,
    #[diesel(sql_type = Bool)]
    at_most_once: bool,
}

/// How often a job may be running when its process dies, unless it says
/// otherwise. One is too few: a job that kills takes its neighbours along.
pub(crate) const MAX_CRASHES: i32 = 3;

/// Routes every claim of a process that is gone. The caller holds the lock of
/// the process row, so no claim can be added meanwhile.
pub(crate) fn recover(
    conn: &mut Conn<'_>,
    process_id: i64,
    death: &Death,
) -> QueryResult<Recovered> {
    let mut recovered = Recovered::default();
    for claim in lost(conn, process_id, "{lock of c}")? {
        recover_claim(conn, process_id, &claim, death, &mut recovered)?;
    }
    Ok(recovered)
}

/// The same, claim by claim: what is locked or refused is left, and holds up no
/// other.
pub(crate) fn recover_piecemeal(
    conn: &mut Conn<'_>,
    process_id: i64,
    death: &Death,
) -> QueryResult<Recovered> {
    let mut recovered = Recovered::default();
    let mut reason = None;
    for claim in lost(conn, process_id, "{lock skip of c}")? {
        let one = conn.transaction(|conn| {
            let mut one = Recovered::default();
            recover_claim(conn, process_id, &claim, death, &mut one)?;
            Ok(one)
        });
        match one {
            Ok(one) => recovered.extend(one),
            Err(error) if Refusal::of(&error) == Refusal::Trouble => return Err(error),
            Err(error) => reason = Some(format!("job {}: {error}", claim.job_id)),
        }
    }
    // A claim without a job may be locked too.
    let _ = conn.transaction(|conn| drop_jobless(conn, process_id));
    let count = crate::db::table::claimed::held_by(conn, process_id)?.len();
    if count > 0 {
        let why = reason.unwrap_or_else(|| "other transactions have locked them".to_owned());
        recovered.left = Some(format!("{count} are left: {why}"));
    }
    Ok(recovered)
}

fn recover_claim(
    conn: &mut Conn<'_>,
    process_id: i64,
    claim: &Lost,
    death: &Death,
    recovered: &mut Recovered,
) -> QueryResult<()> {
    let fence = Fence {
        process_id,
        claim_id: claim.claim_id,
    };
    if end_one(conn, fence)?.is_some() {
        recover_one(conn, process_id, claim, death, recovered)?;
    }
    Ok(())
}

/// The claims of a process, locked.
fn lost(conn: &mut Conn<'_>, process_id: i64, lock: &str) -> QueryResult<Vec<Lost>> {
    let text = conn.write(&format!(
        "SELECT c.id AS claim_id, c.job_id, c.started_at, c.verdict, c.cancel_requested_at IS NOT NULL AS cancelled, \
         j.class_name, j.crash_count, \
         coalesce(j.max_crashes, {MAX_CRASHES}) AS max_crashes, j.at_most_once \
         FROM solid_queue_claimed_executions c JOIN solid_queue_jobs j ON j.id = c.job_id \
         WHERE c.process_id = $1 ORDER BY c.id + 0 {lock}"
    ));
    on!(conn, |c| cached(sql(text).bind::<BigInt, _>(process_id))
        .load(c))
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
            settle::follow(conn, &run, &ending)?;
            match ending {
                Ending::Retry(..) | Ending::Snooze(_) => recovered.delayed.push(claim.job_id),
                Ending::Release(_) => recovered.released.push(claim.job_id),
                Ending::Fail(_) => recovered.failed.push(claim.job_id),
                Ending::Cancel(_) => recovered.cancelled.push(claim.job_id),
                Ending::Discard(_) => {
                    let class = claim.class_name.clone();
                    recovered.discarded.push((claim.job_id, class));
                }
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
    if let Next::Wait(delay) = judge(conn, run, claim, death, recovered)? {
        make_waiting(conn, &[claim.job_id], delay)?;
    }
    Ok(())
}

/// What is to become of a job whose run death cut off.
pub(crate) enum Next {
    Nothing,
    /// It is to wait again, for a while first if that is said.
    Wait(Option<Duration>),
}

/// Counts the crash, and fails the job if that is its end.
pub(crate) fn judge(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    claim: &Lost,
    death: &Death,
    recovered: &mut Recovered,
) -> QueryResult<Next> {
    let started = claim.started_at.is_some();
    let counts = death.is_crash && started && !mutant::is("crash_not_counted");
    let crashes = claim.crash_count.saturating_add(i32::from(counts));
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
        // A crash is counted already.
        if started && !counts {
            settle::count(conn, run)?;
        }
        settle::fail(conn, claim.job_id, &failure)?;
        recovered.failed.push(claim.job_id);
        return Ok(Next::Nothing);
    }
    if counts {
        let failure = Failure::crashed(&death.how, crashes);
        attempts::insert(conn, run, AttemptOutcome::Crashed, &failure)?;
    }
    let delay = Some(crash_delay(crashes)).filter(|_| counts && crashes >= 2);
    match delay {
        Some(_) => recovered.delayed.push(claim.job_id),
        None => recovered.released.push(claim.job_id),
    }
    Ok(Next::Wait(delay))
}

/// What was decided before the process ended: by whoever cancelled the job,
/// or by the process itself when the job overran its time.
fn foregone(claim: &Lost) -> Option<Ending> {
    if claim.cancelled {
        return Some(Ending::Cancel(outcome::cancelled()));
    }
    serde_json::from_str(claim.verdict.as_deref()?).ok()
}

/// Writes down what is to become of a job that has overrun its time, before
/// its process ends for its sake, or dies otherwise; with `process_ends`, the
/// process claims no more from then on, and its end is no crash. False: the
/// claim is not ours any more.
pub(crate) fn condemn(
    conn: &mut Conn<'_>,
    fence: Fence,
    verdict: &Ending,
    process_ends: bool,
) -> QueryResult<bool> {
    let verdict = serde_json::to_string(verdict).unwrap_or_default();
    conn.transaction(|conn| {
        if process_ends {
            crate::db::table::processes::drain(conn, fence.process_id)?;
        }
        let text = conn.write(
            "UPDATE solid_queue_claimed_executions SET verdict = $1 WHERE id = $2 AND process_id + 0 = $3 \
             RETURNING id",
        );
        let condemned: Vec<Id> = on!(conn, |c| cached(
            sql(text)
                .bind::<Text, _>(&verdict)
                .bind::<BigInt, _>(fence.claim_id)
                .bind::<BigInt, _>(fence.process_id)
        )
        .load(c))?;
        Ok(condemned.iter().any(|row| row.id == fence.claim_id))
    })
}

/// 20 s after the second crash, doubling up to 10 minutes.
fn crash_delay(crashes: i32) -> Duration {
    let exponent = u32::try_from(crashes).unwrap_or(0).min(8);
    Duration::from_secs((5 << exponent).min(600))
}

fn count_crash(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<()> {
    let text = conn.write(
        "UPDATE solid_queue_jobs SET crash_count = {next crash_count}, updated_at = {now} WHERE id = $1",
    );
    on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .execute(c))
    .map(drop)
}

/// Takes away the claims of a process whose job somebody deleted: without it
/// they would belong to nobody for ever.
pub(crate) fn drop_jobless(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<()> {
    let text = conn.write(
        "DELETE FROM solid_queue_claimed_executions WHERE process_id = $1 \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = solid_queue_claimed_executions.job_id) \
         RETURNING concurrency_key",
    );
    let rows: Vec<Key> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(process_id))
        .load(c))?;
    wanted_keys::want(conn, &wanted_keys::keys(rows))
}
