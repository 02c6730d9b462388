//! Recovers the claims of a process that is gone.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, IdRange, id_list};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{EndedClaim, Fence, FinishedRow};
use crate::db::model::decision::{Death, Destination, JobDecision, LostClaim, MAX_CRASHES};
use crate::db::model::history::contribution::Contribution;
use crate::db::model::outcome::{self, EndedRun, Ending, ResultOutcome, RunStart};
use crate::db::table::claimed::{self, claim_ids};
use crate::db::table::history::deltas;
use crate::db::table::jobs::is_of_ruby;
use crate::db::transition::settle;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::HashSet;

/// The result of recovering the claims of a process that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Jobs that are ready again at once.
    pub(crate) released: Vec<i64>,
    /// Jobs that wait for a while first, having crashed before.
    pub(crate) delayed: Vec<i64>,
    /// Jobs that failed: they crashed too often, or may run at most once.
    pub(crate) failed: Vec<i64>,
    /// Jobs that have ended because a cancel was requested.
    pub(crate) cancelled: Vec<i64>,
    /// Jobs, with their classes, that have ended because they overran their timeout, and their policy
    /// discards them.
    pub(crate) discarded: Vec<(i64, String)>,
    /// Why some claims are left, if any are: they are tried again later.
    pub(crate) left: Option<String>,
    /// The contribution to the history.
    pub(crate) counted: Contribution,
}

impl Recovered {
    /// Adds the decision about a job.
    pub(crate) fn note(&mut self, decision: &JobDecision, class_name: &str) {
        let job = decision.run.job_id;
        match &decision.destination {
            Destination::Wait(None) => self.released.push(job),
            Destination::Wait(Some(_)) | Destination::Park(_) => self.delayed.push(job),
            Destination::Failed(_) => self.failed.push(job),
            Destination::Ended(ResultOutcome::Cancelled, _) => self.cancelled.push(job),
            Destination::Ended(..) => self.discarded.push((job, class_name.to_owned())),
        }
    }

    fn extend(&mut self, other: Recovered) {
        self.released.extend(other.released);
        self.delayed.extend(other.delayed);
        self.failed.extend(other.failed);
        self.cancelled.extend(other.cancelled);
        self.discarded.extend(other.discarded);
        self.counted.merge(&other.counted);
    }
}

impl Recovered {
    /// Returns whether there was a claim.
    pub(crate) fn is_any(&self) -> bool {
        let nothing = Self {
            counted: self.counted.clone(),
            ..Self::default()
        };
        *self != nothing
    }
}

/// Ends every claim of a process that is gone, and moves their jobs on. The caller holds the lock
/// of the process row, so no claim can be added meanwhile.
pub(crate) fn recover(
    conn: &mut Conn<'_>,
    process_id: i64,
    death: &Death,
) -> QueryResult<Recovered> {
    let claims = lost(conn, process_id, "{lock of c}")?;
    recover_claims(conn, process_id, &claims, death)
}

/// Does the same, but skips locked claims. When the database refuses, each half is tried, down to
/// the claims that cannot be written, so that these delay no other.
pub(crate) fn recover_one_by_one(
    conn: &mut Conn<'_>,
    process_id: i64,
    death: &Death,
) -> QueryResult<Recovered> {
    let mut recovered = Recovered::default();
    let mut reason = None;
    let claims = lost(conn, process_id, "{lock skip of c}")?;
    let mut rest = vec![claims.as_slice()];
    while let Some(claims) = rest.pop() {
        let part = conn.transaction(|conn| recover_claims(conn, process_id, claims, death));
        match (part, claims) {
            (Ok(part), _) => recovered.extend(part),
            (Err(error), _) if Refusal::of(&error) == Refusal::Trouble => return Err(error),
            (Err(error), [claim]) => reason = Some(format!("job {}: {error}", claim.job_id)),
            (Err(_), _) => {
                let (first, second) = claims.split_at(claims.len() / 2);
                rest.extend([second, first]);
            }
        }
    }
    // A claim without a job may be locked too.
    let _ = conn.transaction(|conn| drop_jobless(conn, process_id));
    let count = claimed::held_by(conn, process_id)?.len();
    if count > 0 {
        let why = reason.unwrap_or_else(|| "other transactions have locked them".to_owned());
        recovered.left = Some(format!("{count} are left: {why}"));
    }
    Ok(recovered)
}

/// Ends the claims under the fence, decides and applies.
fn recover_claims(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[LostClaim],
    death: &Death,
) -> QueryResult<Recovered> {
    let mut recovered = Recovered::default();
    if claims.is_empty() {
        return Ok(recovered);
    }
    let ids: Vec<i64> = claims.iter().map(|claim| claim.claim_id).collect();
    let ended = claimed::end(conn, process_id, &ids)?;
    let ended: HashSet<i64> = claim_ids(ended).into_iter().collect();
    let decisions: Vec<JobDecision> = claims
        .iter()
        .filter(|claim| ended.contains(&claim.claim_id))
        .map(|claim| {
            let decision = JobDecision::of_death(run_of(process_id, claim), claim, death);
            recovered.note(&decision, &claim.class_name);
            decision
        })
        .collect();
    recovered.counted = settle::settle_and_count(conn, &decisions)?;
    Ok(recovered)
}

/// Returns the run of a lost claim.
pub(crate) fn run_of(process_id: i64, claim: &LostClaim) -> EndedRun {
    EndedRun {
        process_id,
        claim_id: claim.claim_id,
        job_id: claim.job_id,
        began: RunStart::At(claim.started_at),
        by_owner: false,
        finished: FinishedRow::Keep,
    }
}

/// Returns the claims of a process, locked.
fn lost(conn: &mut Conn<'_>, process_id: i64, lock: &str) -> QueryResult<Vec<LostClaim>> {
    let text = format!(
        "SELECT c.id AS claim_id, c.job_id, c.started_at, c.verdict, c.cancel_requested_at IS NOT NULL AS cancelled, coalesce(c.prefetched, false) AS prefetched, \
         j.class_name, j.crash_count, \
         coalesce(j.max_crashes, {MAX_CRASHES}) AS max_crashes, j.at_most_once \
         FROM solid_queue_claimed_executions c JOIN solid_queue_jobs j ON j.id = c.job_id \
         WHERE c.process_id = $1 ORDER BY c.id + 0 {lock}"
    );
    Statement::new(text).bind(process_id).load(conn)
}

/// The effect of an overrun timeout on the process of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessAfter {
    /// It claims no more from then on, and its end is not a crash.
    Ends,
    GoesOn,
}

impl ProcessAfter {
    pub(crate) fn ends_if(it_ends: bool) -> Self {
        if it_ends {
            ProcessAfter::Ends
        } else {
            ProcessAfter::GoesOn
        }
    }
}

/// Records the ending of a job that has overrun its timeout, before its process exits for it, or
/// dies otherwise. Returns `false` if the process does not hold the claim any more.
pub(crate) fn record_timeout(
    conn: &mut Conn<'_>,
    fence: Fence,
    verdict: &Ending,
    process: ProcessAfter,
) -> QueryResult<bool> {
    let verdict = serde_json::to_string(verdict).unwrap_or_default();
    conn.transaction(|conn| {
        if process == ProcessAfter::Ends {
            crate::db::table::processes::drain(conn, fence.process_id)?;
        }
        let text = "UPDATE solid_queue_claimed_executions SET verdict = $1 WHERE id = $2 AND process_id + 0 = $3 \
             RETURNING id";
        let recorded: Vec<Id> = Statement::new(text)
                .bind(&verdict)
                .bind(fence.claim_id)
                .bind(fence.process_id).load(conn)?;
        Ok(recorded.iter().any(|row| row.id == fence.claim_id))
    })
}

/// Deletes the claims of a process whose job was deleted: without it no process could ever end
/// them.
pub(crate) fn drop_jobless(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_claimed_executions WHERE process_id = $1 \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = solid_queue_claimed_executions.job_id) \
         RETURNING id AS claim_id, job_id, false AS cancelled, concurrency_key, semaphore_id";
    let ended: Vec<EndedClaim> = Statement::new(text).bind(process_id).load(conn)?;
    claimed::request_promotion(conn, &ended)
}

// --- Takes back jobs of Windlass that a supervisor of Solid Queue has failed because it ---

/// The failures that Solid Queue stores for the death of a process.
const KINDS: [&str; 3] = [
    "SolidQueue::Processes::ProcessPrunedError",
    "SolidQueue::Processes::ProcessMissingError",
    "SolidQueue::Processes::ProcessExitError",
];

/// The most jobs that one transaction takes back.
const CHUNK: i64 = 100;

/// Returns the id of the newest failed execution.
pub(crate) fn newest(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = "SELECT coalesce(max(id), 0) AS id FROM solid_queue_failed_executions";
    let row: Id = Statement::new(text).get_result(conn)?;
    Ok(row.id)
}

#[derive(QueryableByName)]
struct FailedByRuby {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(embed)]
    lost: LostClaim,
}

/// Takes back jobs whose failed executions have ids in the range. A job of Ruby stays failed.
///
/// The claim is gone, and with it the slot of a concurrency key: a job with a key is blocked again.
/// Deleting the failed execution is the fence.
pub(crate) fn take_back(
    conn: &mut Conn<'_>,
    range: IdRange,
    death: &Death,
) -> QueryResult<Recovered> {
    let mut recovered = Recovered::default();
    conn.transaction(|conn| {
        let failed = failed_by_ruby(conn, range)?;
        let ids: Vec<i64> = failed.iter().map(|row| row.id).collect();
        let gone: Vec<i64> = delete(conn, &ids)?;
        let taken = failed.iter().filter(|row| gone.contains(&row.id));
        let decisions: Vec<JobDecision> = taken
            .map(|row| {
                let decision = decide(&row.lost, death);
                recovered.note(&decision, &row.lost.class_name);
                decision
            })
            .collect();
        recovered.counted = settle::settle_and_count(conn, &decisions)?;
        deltas::insert_with(conn, &recovered.counted)?;
        Ok(recovered)
    })
}

fn failed_by_ruby(conn: &mut Conn<'_>, range: IdRange) -> QueryResult<Vec<FailedByRuby>> {
    let text = format!(
        "SELECT f.id, f.error, CAST(0 AS bigint) AS claim_id, f.job_id, f.created_at AS started_at, CAST(NULL AS text) AS verdict, \
         false AS cancelled, false AS prefetched, j.class_name, j.crash_count, \
         coalesce(j.max_crashes, {MAX_CRASHES}) AS max_crashes, j.at_most_once \
         FROM solid_queue_failed_executions f JOIN solid_queue_jobs j ON j.id = f.job_id \
         WHERE f.id > $1 AND f.id <= $2 AND f.error LIKE '%SolidQueue::Processes::Process%Error%' \
         AND NOT {} AND j.finished_at IS NULL ORDER BY f.id LIMIT $3 {{lock skip of f}}",
        is_of_ruby("j"),
    );
    let rows: Vec<FailedByRuby> = Statement::new(text)
        .bind(range.after)
        .bind(range.up_to)
        .bind(CHUNK)
        .load(conn)?;
    let is_death = |row: &FailedByRuby| {
        let (kind, _) = outcome::parts(row.error.as_deref().unwrap_or_default());
        KINDS.contains(&kind.as_str())
    };
    Ok(rows.into_iter().filter(is_death).collect())
}

/// Deletes failed executions, and returns those that existed.
fn delete(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "DELETE FROM solid_queue_failed_executions WHERE id IN {in $1} RETURNING id";
    let gone: Vec<Id> = Statement::new(text).bind(id_list(ids)).load(conn)?;
    Ok(gone.into_iter().map(|row| row.id).collect())
}

/// Decides as after any other crash; but neither the process nor the start of the run is known, and
/// its slot is free.
fn decide(claim: &LostClaim, death: &Death) -> JobDecision {
    let run = EndedRun {
        process_id: 0,
        claim_id: 0,
        job_id: claim.job_id,
        began: RunStart::At(None),
        by_owner: false,
        finished: FinishedRow::Keep,
    };
    JobDecision {
        has_slot: false,
        ..JobDecision::of_death(run, claim, death)
    }
}
