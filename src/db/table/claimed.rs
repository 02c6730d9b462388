//! `solid_queue_claimed_executions`: all statements that end claims.
//!
//! Each is fenced: the claim's row is deleted by its id and its process first, and the rest happens
//! only to the rows that this deletion returned, in the same transaction. Without such a row, the
//! process does not hold the claim any more.
//!
//! `+ 0` keeps Postgres to the primary key. Statistics made while nothing was claimed say that the
//! table is empty, so that any index seems good. But while a long transaction holds vacuum back,
//! the index by process, or the whole primary key in order, leads past every row claimed since: 300
//! ms after three million jobs, for each statement.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{ClaimOf, EndedClaim, NextClaims};
use crate::db::table::wanted_keys::{self, NewRequest, SEMAPHORE};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The rule for claims that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLocked {
    Wait,
    Skip,
}

impl OnLocked {
    pub(crate) fn skip(self) -> &'static str {
        match self {
            OnLocked::Wait => "",
            OnLocked::Skip => " SKIP LOCKED",
        }
    }
}

/// The result of ending claims. A claim in neither list was fenced off.
#[derive(Debug, Default)]
pub(crate) struct EndedClaims {
    /// They were held, and have ended.
    pub(crate) accepted: Vec<i64>,
    /// They are held, and locked by another transaction: unchanged.
    pub(crate) busy: Vec<i64>,
    /// The jobs that the process has claimed in their place.
    pub(crate) next: NextClaims,
}

impl EndedClaims {
    /// Treats all claims as held that were not accepted.
    pub(crate) fn with_the_rest_busy(claims: &[i64], accepted: Vec<i64>) -> Self {
        let busy = claims.iter().filter(|claim| !accepted.contains(claim));
        EndedClaims {
            busy: busy.copied().collect(),
            accepted,
            next: NextClaims::default(),
        }
    }

    /// Finds the claims that were skipped as locked.
    pub(crate) fn of(
        conn: &mut Conn<'_>,
        process_id: i64,
        claims: &[i64],
        accepted: Vec<i64>,
        locks: OnLocked,
    ) -> QueryResult<Self> {
        if locks == OnLocked::Wait || accepted.len() == claims.len() {
            return Ok(EndedClaims {
                accepted,
                ..EndedClaims::default()
            });
        }
        let ended: HashSet<i64> = accepted.iter().copied().collect();
        let rest: Vec<i64> = claims
            .iter()
            .copied()
            .filter(|claim| !ended.contains(claim))
            .collect();
        let text = "SELECT id AS claim_id, job_id, false AS cancelled, concurrency_key, semaphore_id \
             FROM solid_queue_claimed_executions WHERE process_id + 0 = $1 AND id IN {in $2}";
        let held: Vec<EndedClaim> = Statement::new(text)
            .bind(process_id)
            .bind(id_list(&rest))
            .load(conn)?;
        Ok(EndedClaims {
            accepted,
            busy: claim_ids(held),
            next: NextClaims::default(),
        })
    }
}

pub(crate) fn claim_ids(rows: Vec<EndedClaim>) -> Vec<i64> {
    rows.into_iter().map(|row| row.claim_id).collect()
}

/// Marks claims as started, and returns those that were still held.
pub(crate) fn mark_started(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
) -> QueryResult<Vec<i64>> {
    let text = "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE process_id + 0 = $1 AND id IN {in $2} ORDER BY id + 0 {hold}) \
         UPDATE solid_queue_claimed_executions SET started_at = {now} WHERE id IN {in SELECT id FROM held} \
         RETURNING id AS claim_id, job_id, false AS cancelled, concurrency_key, semaphore_id";
    let begun: Vec<EndedClaim> = Statement::new(text)
        .bind(process_id)
        .bind(id_list(claims))
        .load(conn)?;
    Ok(claim_ids(begun))
}

/// The fence itself: ends those of the claims that the process holds.
///
/// They are locked in order first. A planner that follows the list would hold a later one while it
/// waits for an earlier one, and deadlock with a prune of the process, which goes the other way
/// round.
pub(crate) fn end(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
) -> QueryResult<Vec<EndedClaim>> {
    end_by(conn, process_id, claims, OnLocked::Wait)
}

/// Like [`end`], but skips claims that another transaction has locked.
pub(crate) fn end_free(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
) -> QueryResult<(Vec<EndedClaim>, EndedClaims)> {
    let ended = end_by(conn, process_id, claims, OnLocked::Skip)?;
    let ids = ended.iter().map(|row| row.claim_id).collect();
    let written = EndedClaims::of(conn, process_id, claims, ids, OnLocked::Skip)?;
    Ok((ended, written))
}

fn end_by(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    locks: OnLocked,
) -> QueryResult<Vec<EndedClaim>> {
    let ended = end_rows(conn, process_id, claims, locks)?;
    // However a claim ends, its slot becomes free.
    request_promotion(conn, &ended)?;
    Ok(ended)
}

/// Ends claims. The caller sees to the slots that they held.
pub(crate) fn end_rows(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    locks: OnLocked,
) -> QueryResult<Vec<EndedClaim>> {
    let lock = match locks {
        OnLocked::Wait => "{lock}",
        OnLocked::Skip => "{lock skip}",
    };
    let text = format!(
        "WITH held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
           WHERE process_id + 0 = $1 AND id IN {{in $2}} ORDER BY id + 0 {lock}) \
         DELETE FROM solid_queue_claimed_executions WHERE id IN {{in SELECT id FROM held}} \
         RETURNING id AS claim_id, job_id, cancel_requested_at IS NOT NULL AS cancelled, concurrency_key, semaphore_id"
    );
    Statement::new(text)
        .bind(process_id)
        .bind(id_list(claims))
        .load(conn)
}

/// Requests a promotion for the slots that ended claims have freed.
pub(crate) fn request_promotion(conn: &mut Conn<'_>, ended: &[EndedClaim]) -> QueryResult<()> {
    let keys = ended.iter().filter_map(|row| row.concurrency_key.clone());
    wanted_keys::request_promotion(conn, &keys.collect())?;
    let semaphores = ended.iter().filter_map(|row| row.semaphore_id);
    wanted_keys::request(conn, semaphores.map(|id| NewRequest::Semaphore(id, 1)))
}

/// Returns the INSERT of the same requests for the claims of a CTE, on Postgres.
pub(crate) fn request_sql(ended: &str) -> String {
    format!(
        "INSERT INTO windlass_wanted_keys (key, kind, target_id, amount) \
         SELECT concurrency_key, CASE WHEN semaphore_id IS NOT NULL THEN '{SEMAPHORE}' END, semaphore_id, \
           CASE WHEN semaphore_id IS NOT NULL THEN count(*) END \
         FROM {ended} WHERE concurrency_key IS NOT NULL OR semaphore_id IS NOT NULL GROUP BY concurrency_key, semaphore_id"
    )
}

/// Deletes claims of jobs that were deleted while their ready execution was kept.
pub(crate) fn drop_orphans(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
) -> QueryResult<()> {
    end(conn, process_id, claims).map(drop)
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    job_id: i64,
}

/// Returns the claims that the database holds for a process, which a worker compares with its
/// memory.
pub(crate) fn held_by(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<Vec<ClaimOf>> {
    // Not sorted by the database: with sorts made expensive, it would read all claims in the order
    // of their ids, dead ones too.
    let text = "SELECT id, job_id FROM solid_queue_claimed_executions WHERE process_id = $1";
    let held: Vec<HeldRow> = Statement::new(text).bind(process_id).load(conn)?;
    let mut held: Vec<ClaimOf> = held
        .into_iter()
        .map(|row| ClaimOf {
            claim_id: row.id,
            job_id: row.job_id,
        })
        .collect();
    held.sort_unstable();
    Ok(held)
}

/// The time of the enqueue on Postgres.
pub(crate) const ENQUEUED_AT: &str = "coalesce({moment j.created_at}, {now})";

/// Returns an expression for the semaphore of which the ready execution `ready` holds a slot, as it has no class: Ruby made
/// it ready. NULL if it has none.
pub(crate) fn semaphore_of(ready: &str) -> String {
    format!(
        "(SELECT s.id FROM solid_queue_jobs j JOIN solid_queue_semaphores s ON s.key = j.concurrency_key \
         WHERE j.id = {ready}.job_id)"
    )
}

// --- The note of a claim: what its process reports about the running job ---

/// The progress of a running job, as reported by the job itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// A description.
    pub message: String,
}

/// The longest message, in bytes.
const LONGEST: usize = 500;

impl Progress {
    pub(crate) fn new(percent: f64, mut message: String) -> Self {
        let end = (0..=LONGEST.min(message.len()))
            .rev()
            .find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        let percent = if percent.is_nan() { 0.0 } else { percent };
        Progress {
            percent: percent.clamp(0.0, 100.0),
            message,
        }
    }
}

/// The content of the column, as JSON.
#[doc(hidden)]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// The name of the thread that performs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl Note {
    /// Parses a column. Text of another version that cannot be parsed gives an empty note.
    pub fn of_column(text: Option<&str>) -> Note {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}

/// A note to store, and its claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimNote<'n> {
    pub(crate) claim_id: i64,
    pub(crate) note: &'n Note,
}

/// Stores the notes of claims that the process still holds, and returns those that were stored.
/// Claims that are locked, by the job itself in a long transaction for example, are skipped: a
/// heartbeat never waits.
pub(crate) fn save(
    conn: &mut Conn<'_>,
    process_id: i64,
    notes: &[ClaimNote<'_>],
) -> QueryResult<Vec<i64>> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            // The notes of all claims are one value, in which each row finds its own: a join of two lists may be one of
            // each row with each other.
            "WITH told AS MATERIALIZED (SELECT CAST($1 AS jsonb) AS notes), \
             held AS MATERIALIZED (SELECT id FROM solid_queue_claimed_executions \
               WHERE process_id + 0 = $2 AND id = ANY (ARRAY(SELECT CAST(jsonb_object_keys(notes) AS bigint) FROM told)) \
               ORDER BY id + 0 {lock skip}) \
             UPDATE solid_queue_claimed_executions SET note = (SELECT notes FROM told) ->> CAST(id AS text) \
             WHERE id IN {in SELECT id FROM held} RETURNING id"
        }
        Dialect::Sqlite => {
            "UPDATE solid_queue_claimed_executions SET note = told.value FROM json_each($1) AS told \
             WHERE solid_queue_claimed_executions.id = CAST(told.key AS integer) AND process_id = $2 RETURNING id"
        }
    };
    let told: BTreeMap<i64, String> = notes
        .iter()
        .map(|one| {
            let note = serde_json::to_string(one.note).unwrap_or_default();
            (one.claim_id, note)
        })
        .collect();
    let told = serde_json::to_string(&told).unwrap_or_default();
    let written: Vec<Id> = Statement::new(text)
        .bind(&told)
        .bind(process_id)
        .load(conn)?;
    Ok(written.into_iter().map(|row| row.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_kept_within_bounds() {
        let told = Progress::new(f64::NAN, "ä".repeat(LONGEST));
        assert_eq!((told.percent, told.message.len()), (0.0, LONGEST));
        assert_eq!(Progress::new(-1.0, String::new()).percent, 0.0);
        assert_eq!(Progress::new(f64::INFINITY, String::new()).percent, 100.0);
    }

    #[test]
    fn a_note_of_another_version_is_passed_over() {
        let note = Note::of_column(Some(r#"{"thread":"a","new":1}"#));
        assert_eq!(note.thread.as_deref(), Some("a"));
        assert_eq!(Note::of_column(Some("nonsense")), Note::default());
        assert_eq!(Note::of_column(None), Note::default());
    }
}
