//! Claims the next jobs of concurrency keys in the transaction that ends the jobs before them, and on
//! Postgres in the same statement.
//!
//! The slots of ended claims go to blocked jobs at once, instead of a promotion, a ready execution
//! and a claim in three transactions. No lock of the key is needed: the claims that end and those
//! that begin are one change, so that a key never holds more slots than before.
//!
//! The jobs are those that a promotion would take, by priority and then age. What this process may
//! not run at once is left to a promotion, and so are keys for which jobs with rates wait.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{
    ClaimQueues, Claimed, ClaimedRow, EndedClaim, EqualJobs, NextClaims, NextJobs,
};
use crate::db::table::blocked;
use crate::db::table::claimed::ENQUEUED_AT;
use crate::db::table::rates;
use crate::db::table::semaphores::{self, AT_ONCE, DOES_NOT_WAIT};
use crate::db::table::wanted_keys::{self, NewRequest, SEMAPHORE};
use crate::db::transition::claim::sqlite;
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Gives the slots of ended claims to the next jobs of their keys, which the process claims, and
/// requests a promotion for the rest. For SQLite; on Postgres it is a part of the statement that
/// ends the claims, see [`parts`].
pub(crate) fn claim_next(
    conn: &mut Conn<'_>,
    process_id: i64,
    ended: &[EndedClaim],
    next: &NextJobs,
    equal: EqualJobs,
) -> QueryResult<NextClaims> {
    let mut slots: BTreeMap<&str, i64> = BTreeMap::new();
    for key in ended
        .iter()
        .filter_map(|row| row.concurrency_key.as_deref())
    {
        *slots.entry(key).or_default() += 1;
    }
    let semaphores = ended.iter().filter_map(|row| row.semaphore_id);
    let semaphores: Vec<NewRequest> = semaphores.map(|id| NewRequest::Semaphore(id, 1)).collect();
    let has_signalled = !semaphores.is_empty();
    wanted_keys::request_later(conn, semaphores)?;
    if slots.is_empty() {
        return Ok(NextClaims::new(Vec::new(), has_signalled));
    }
    let jobs = step_by_step(conn, process_id, &mut slots, next, equal)?;
    let open = slots.iter().filter(|(_, left)| **left > 0);
    let open: BTreeSet<String> = open.map(|(key, _)| (*key).to_owned()).collect();
    wanted_keys::request_promotion_later(conn, &open)?;
    let has_requested = has_signalled || !open.is_empty();
    Ok(NextClaims::new(jobs, has_requested))
}

/// Returns a condition: this process may run the blocked job `j`, picked as `b`, before all ready
/// jobs. The statement has `names` with the names of its queues in order, and `$5` is 1 if it comes
/// after ready jobs of the same priority, and 0 if before them.
///
/// A job that must not be marked as started before a thread is free for it goes the long way.
fn may_run(queues: &ClaimQueues, classes: &str) -> String {
    // Scalar subqueries, each one look at an index: the planner may read the whole table for an
    // EXISTS.
    let is_first = match queues {
        ClaimQueues::All => {
            "(SELECT 1 FROM solid_queue_ready_executions r WHERE r.priority < CAST(j.priority AS bigint) + $5 LIMIT 1) IS NULL"
        }
        ClaimQueues::Named(_) => {
            "(SELECT 1 FROM solid_queue_ready_executions r WHERE r.queue_name = b.queue_name \
               AND r.priority < CAST(j.priority AS bigint) + $5 LIMIT 1) IS NULL \
             AND EXISTS (SELECT 1 FROM names AS mine WHERE mine.name = b.queue_name \
               AND (SELECT 1 FROM names AS other CROSS JOIN solid_queue_ready_executions r \
                 WHERE other.place < mine.place AND r.queue_name = other.name LIMIT 1) IS NULL)"
        }
    };
    format!(
        "j.class_name {classes} AND NOT {{cautious}} \
         AND b.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) AND {is_first}"
    )
}

/// Returns the names of the queues in order, if not all.
fn names(next: &NextJobs) -> &[String] {
    match &next.queues {
        ClaimQueues::All => &[],
        ClaimQueues::Named(names) => names,
    }
}

/// Returns `$5` of [`may_run`].
fn margin(equal: EqualJobs) -> i64 {
    match equal {
        EqualJobs::Wait => 0,
        EqualJobs::GoFirst => 1,
    }
}

/// Runs a statement that ends claims in `ended`, whose last part this adds, and returns those that have ended. The
/// statement has bound two parameters.
pub(crate) fn end_and_claim_next(
    conn: &mut Conn<'_>,
    ending: &str,
    claims: &[i64],
    process_id: i64,
    next: &NextJobs,
    equal: EqualJobs,
) -> QueryResult<(Vec<i64>, NextClaims)> {
    let row = ClaimedRow {
        claim_id: "one.claim_id",
        waited: "CAST(0 AS float8)",
        created_at: ENQUEUED_AT,
        begun: "one.has_begun",
        is_wanted: "EXISTS (SELECT 1 FROM wanted)",
        has_blocked: "false",
    };
    let text = format!(
        "{ending}, {} \
         SELECT {}, (SELECT * FROM woken) AS woken \
         FROM (SELECT claim_id, NULL AS next_job, false AS has_begun FROM ended \
           UNION ALL SELECT id, job_id, true FROM begun) AS one \
         LEFT JOIN solid_queue_jobs j ON j.id = one.next_job",
        parts(&next.queues),
        row.columns(),
    );
    let rows: Vec<Claimed> = Statement::new(text)
        .bind(claims)
        .bind(process_id)
        .bind(names(next))
        .bind(&next.classes[..])
        .bind(margin(equal))
        .load(conn)?;
    let has_requested = rows.iter().any(|row| row.is_wanted);
    let (begun, ended): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.begun);
    let ended = ended.iter().map(|row| row.claim_id).collect();
    Ok((ended, NextClaims::new(begun, has_requested)))
}

/// Returns the part of a statement that claims the next jobs. `ended` has the claims that ended, and
/// `$2` is the process.
///
/// All parts see the rows as they were when the statement began: the claims that end still count as
/// held.
///
/// - `me` locks the row of the process, as a claim does. It waits for no lock, since the statement
///   has locked claims: a prune locks the row first, and then the claims.
/// - `l` reads the limit once: without the OFFSET, the planner puts the whole expression into each place that names it.
/// - `open` counts the slots as they are without the ended claims: the limit may have been lowered. It counts no more than
///   matter, and none if no job is blocked. The look for one has the order of an index: by the other one, that has the
///   expiry first, it would pass the blocked jobs of all keys before.
/// - `next` locks the jobs. Those that another transaction is moving are skipped.
fn parts(queues: &ClaimQueues) -> &'static str {
    static ALL: LazyLock<String> = LazyLock::new(|| parts_text(&ClaimQueues::All));
    static NAMED: LazyLock<String> = LazyLock::new(|| parts_text(&ClaimQueues::Named(Vec::new())));
    match queues {
        ClaimQueues::All => &ALL,
        ClaimQueues::Named(_) => &NAMED,
    }
}

fn parts_text(queues: &ClaimQueues) -> String {
    format!(
        "freed AS MATERIALIZED (SELECT concurrency_key AS key, count(*) AS slots FROM ended \
           WHERE concurrency_key IS NOT NULL GROUP BY concurrency_key), \
         me AS MATERIALIZED (SELECT id FROM solid_queue_processes WHERE id = $2 AND NOT draining \
           FOR KEY SHARE SKIP LOCKED), \
         names AS MATERIALIZED (SELECT name, place FROM unnest($3) WITH ORDINALITY AS q (name, place)), \
         open AS MATERIALIZED (SELECT freed.key, CASE WHEN {is_boundless} THEN freed.slots \
             ELSE least(freed.slots, l.slots - ({held}) + freed.slots) END AS room \
           FROM freed CROSS JOIN LATERAL (SELECT CAST({limit} AS bigint) AS slots OFFSET 0) AS l \
           WHERE EXISTS (SELECT 1 FROM me) AND (SELECT b.id FROM solid_queue_blocked_executions b \
             WHERE b.concurrency_key = freed.key AND b.expires_at >= {{time '{DOES_NOT_WAIT}'}} \
             ORDER BY b.priority, b.job_id LIMIT 1) IS NOT NULL AND {has_no_line}), \
         next AS MATERIALIZED (SELECT b.job_id, open.key FROM open CROSS JOIN LATERAL ( \
             SELECT job_id, queue_name, priority FROM solid_queue_blocked_executions \
             WHERE concurrency_key = open.key AND expires_at >= {{time '{DOES_NOT_WAIT}'}} \
             ORDER BY priority, job_id LIMIT greatest(open.room, 0) FOR UPDATE SKIP LOCKED) AS b \
           JOIN solid_queue_jobs j ON j.id = b.job_id WHERE {is_in_turn} AND {is_before_line} AND {may_run}), \
         begun AS (INSERT INTO solid_queue_claimed_executions \
             (job_id, process_id, created_at, started_at, concurrency_key, prefetched, ready_at) \
           SELECT job_id, $2, {{now}}, {{now}}, key, true, {{now}} FROM next \
           ON CONFLICT (job_id) DO NOTHING RETURNING id, job_id, concurrency_key), \
         gone AS (DELETE FROM solid_queue_blocked_executions \
           WHERE job_id = ANY (ARRAY(SELECT job_id FROM next))), \
         wanted AS (INSERT INTO windlass_wanted_keys (key, kind, target_id, amount) SELECT key, NULL, NULL, NULL FROM \
             (SELECT key, slots FROM freed UNION ALL SELECT concurrency_key, -1 FROM begun) AS slots \
           GROUP BY key HAVING sum(slots) > 0 \
           UNION ALL SELECT NULL, '{SEMAPHORE}', semaphore_id, count(*) FROM ended WHERE semaphore_id IS NOT NULL \
           GROUP BY semaphore_id RETURNING 1)",
        limit = semaphores::limit_of("freed.key"),
        is_boundless = semaphores::is_boundless("l.slots"),
        held = semaphores::held_up_to("freed.key", "(greatest(l.slots, 0) + freed.slots)"),
        has_no_line = rates::has_no_line("freed.key"),
        is_in_turn = blocked::is_in_turn("open.key"),
        is_before_line = rates::is_before_line(Dialect::Postgres, "open.key"),
        may_run = may_run(queues, "= ANY ($4)"),
    )
}

/// Claims under the write lock, like the promotion and the claim that this replaces, and takes what it claims from `slots`, the
/// slots of each key that the ended claims had. These are gone already, so that all others are counted.
fn step_by_step(
    conn: &mut Conn<'_>,
    process_id: i64,
    slots: &mut BTreeMap<&str, i64>,
    next: &NextJobs,
    equal: EqualJobs,
) -> QueryResult<Vec<Claimed>> {
    let json = |texts: &[String]| serde_json::to_string(texts).unwrap_or_default();
    let (names, classes) = (json(names(next)), json(&next.classes));
    let text = next_of_key(&next.queues);
    let mut claims = Vec::new();
    for (key, left) in slots {
        let begun: Vec<Id> = Statement::new(text)
            .bind(process_id)
            .bind(&names)
            .bind(&classes)
            .bind(*key)
            .bind(margin(equal))
            .bind(*left)
            .load(conn)?;
        *left -= begun.len() as i64;
        claims.extend(begun.into_iter().map(|claim| claim.id));
    }
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = sqlite::held(conn, &claims)?;
    let ids: Vec<i64> = jobs.iter().map(|job| job.job_id).collect();
    blocked::delete(conn, &ids)?;
    Ok(jobs)
}

/// Returns the statement that claims up to `$6` blocked jobs of the key `$4`, as far as its limit allows.
fn next_of_key(queues: &ClaimQueues) -> &'static str {
    static ALL: LazyLock<String> = LazyLock::new(|| next_of_key_text(&ClaimQueues::All));
    static NAMED: LazyLock<String> =
        LazyLock::new(|| next_of_key_text(&ClaimQueues::Named(Vec::new())));
    match queues {
        ClaimQueues::All => &ALL,
        ClaimQueues::Named(_) => &NAMED,
    }
}

fn next_of_key_text(queues: &ClaimQueues) -> String {
    format!(
        "WITH names AS (SELECT value AS name, key AS place FROM json_each($2)), \
         l AS MATERIALIZED (SELECT max({limit}, 0) AS slots), \
         open AS MATERIALIZED (SELECT max(min($6, slots - CASE \
           WHEN slots > (SELECT coalesce(max(id), 0) FROM solid_queue_jobs) + {AT_ONCE} THEN 0 ELSE {held} END), 0) AS room FROM l) \
         INSERT INTO solid_queue_claimed_executions \
           (job_id, process_id, created_at, started_at, concurrency_key, prefetched, ready_at) \
         SELECT b.job_id, $1, {{now}}, {{now}}, $4, true, {{now}} \
         FROM (SELECT job_id, queue_name, priority FROM solid_queue_blocked_executions \
           WHERE concurrency_key = $4 AND expires_at >= {{time '{DOES_NOT_WAIT}'}} \
           ORDER BY priority, job_id LIMIT (SELECT room FROM open)) AS b \
         CROSS JOIN solid_queue_jobs j WHERE j.id = b.job_id AND {is_before_line} AND {has_no_line} AND {may_run} \
         AND EXISTS (SELECT 1 FROM solid_queue_processes WHERE id = $1 AND NOT draining) \
         ORDER BY b.priority, b.job_id ON CONFLICT (job_id) DO NOTHING RETURNING id",
        limit = semaphores::limit_of("$4"),
        held = semaphores::held_up_to("$4", "(SELECT slots FROM l)"),
        is_before_line = rates::is_before_line(Dialect::Sqlite, "$4"),
        has_no_line = rates::has_no_line("$4"),
        may_run = may_run(queues, "IN (SELECT value FROM json_each($3))"),
    )
}
