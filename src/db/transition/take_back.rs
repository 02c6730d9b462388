//! Takes back jobs of Windlass that a supervisor of Solid Queue has failed because it considered
//! their process dead. They are treated as after any other crash.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, IdRange, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::{Death, JobDecision, LostClaim, MAX_CRASHES};
use crate::db::model::outcome::{self, EndedRun, RunStart};
use crate::db::table::history::deltas;
use crate::db::table::jobs::is_of_ruby;
use crate::db::transition::recover::Recovered;
use crate::db::transition::settle;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// The failures that Solid Queue stores for the death of a process.
const KINDS: [&str; 3] = [
    "SolidQueue::Processes::ProcessPrunedError",
    "SolidQueue::Processes::ProcessMissingError",
    "SolidQueue::Processes::ProcessExitError",
];

/// How many jobs one transaction takes back.
const BATCH: i64 = 100;

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
        .bind(BATCH)
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
