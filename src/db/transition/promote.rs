//! Promotes blocked executions to the free slots of their concurrency key.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::{Execution, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::jobs::EndedJob;
use crate::db::table::semaphores::{self, DOES_NOT_WAIT, FreeSlots, NEVER_EXPIRES, slot_list};
use crate::db::table::wanted_keys::{self, ConcurrencyKey, Requests};
use crate::db::table::{blocked, jobs};
use crate::db::transition::{flows, operate, signal};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeSet;
use std::time::Duration;

/// The kind of failure of a job that found no slot and does not wait.
pub(crate) const NO_SLOT: &str = "concurrency_limit";

/// The result of a promotion.
#[derive(Debug, Default)]
pub(crate) struct Promoted {
    /// Jobs that are ready now.
    pub(crate) ready: Vec<i64>,
    /// Jobs that found no slot and do not wait, or are not wanted after what they waited for has ended.
    pub(crate) discarded: Vec<Discarded>,
    /// How many jobs waited for a job or a batch that has ended now, or wait no longer.
    pub(crate) followed: usize,
    /// Batches of which a job has ended, and that are not over.
    pub(crate) open_batches: Vec<i64>,
    /// How many requests were processed.
    pub(crate) requests: usize,
    /// Those that could not be read, and are dropped.
    pub(crate) invalid: Vec<String>,
    /// How many of them must be processed again: another transaction has locked jobs of theirs.
    pub(crate) left_over: usize,
    /// How long it took to check for requests.
    pub(crate) looked: Duration,
}

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

impl Promoted {
    /// Returns whether there may be more to do at once: not if other transactions have locked
    /// everything that is left.
    pub(crate) fn is_progress(&self, batch: usize) -> bool {
        let is_full = self.requests >= batch && self.left_over < self.requests;
        let has_moved = !self.ready.is_empty() || !self.discarded.is_empty();
        has_moved || self.followed > 0 || is_full
    }
}

/// Gives the free slots of up to `batch` requested keys to their blocked jobs, by priority and then
/// age. The rest of the jobs that do not wait end.
///
/// It is a transaction of its own, and waits only for the keys: so that the end of a job never
/// depends on the next one, and no wait is long.
pub(crate) fn promote(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Promoted> {
    promote_after(conn, wanted_keys::BEGINNING, batch)
}

/// Like [`promote`], for the requests after the id `after`.
pub(crate) fn promote_after(
    conn: &mut Conn<'_>,
    after: i64,
    batch: usize,
) -> QueryResult<Promoted> {
    // First a read without the write lock: mostly there is nothing to do.
    let begun = clock::instant();
    let is_wanted = semaphores::is_requested(conn, after)?;
    let nothing = Promoted {
        looked: begun.elapsed(),
        ..Promoted::default()
    };
    if !is_wanted {
        return Ok(nothing);
    }
    conn.transaction(|conn| {
        let mut requests = semaphores::take_requests(conn, after, batch)?;
        if requests.taken == 0 {
            return Ok(nothing);
        }
        let keys = &requests.keys;
        // Counted under the lock, by a separate statement, which sees what transactions before this
        // one have committed.
        let rooms = semaphores::free_slots(conn, keys)?;
        let picked = pick(conn, &rooms)?;
        let mut ready: Vec<i64> = picked.iter().map(|picked| picked.job_id).collect();
        make_ready(conn, &ready)?;
        let mut discarded = discard(conn, keys)?;
        let left_over = request_left_over(conn, &rooms, &picked)?;
        let by_ruby = rooms.iter().filter(|room| room.has_blocked_by_ruby);
        blocked::take_over(conn, &by_ruby.map(|room| room.key.clone()).collect())?;
        let of_ruby = rooms.iter().filter(|room| room.has_semaphore);
        let of_ruby = of_ruby.map(|room| room.key.clone()).collect();
        let signalled = signal::signal(conn, &requests.semaphores, &of_ruby)?;
        ready.extend(signalled.ready);
        let followed = follow(conn, &requests)?;
        discarded.extend(followed.discarded);
        Ok(Promoted {
            ready,
            discarded,
            requests: requests.taken,
            invalid: std::mem::take(&mut requests.invalid),
            left_over: left_over + signalled.left_over + followed.left_over,
            looked: nothing.looked,
            ..followed
        })
    })
}

/// Handles the requests about batches, jobs that wait for others, and waits.
fn follow(conn: &mut Conn<'_>, requests: &Requests) -> QueryResult<Promoted> {
    let completed = flows::complete::complete(conn, &requests.batches)?;
    let parents = flows::parents::resolve(conn, &requests.ended)?;
    let admitted = flows::admit::admit(conn, &requests.children)?;
    let woken = flows::wake::wake(conn, &requests.waits, &requests.events)?;
    let unwanted = admitted.discarded.into_iter();
    let unwanted = unwanted.map(|job| Discarded::of(job, flows::admit::NOT_WANTED));
    Ok(Promoted {
        followed: completed.followed + parents.followed + admitted.entered + woken.woken.len(),
        open_batches: completed.open,
        discarded: unwanted.collect(),
        left_over: completed.left_over + parents.left_over + admitted.left_over + woken.left_over,
        ..Promoted::default()
    })
}

fn make_ready(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    blocked::delete(conn, jobs)?;
    crate::db::table::ready::insert(conn, jobs)
}

/// A blocked job that a free slot of its key may go to.
#[derive(QueryableByName)]
pub(crate) struct PickedJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
}

/// Returns the jobs to promote, locked. Jobs that another transaction is moving are skipped, but not
/// in an ordered key, where the next one waits for it.
pub(crate) fn pick(conn: &mut Conn<'_>, rooms: &[FreeSlots]) -> QueryResult<Vec<PickedJob>> {
    let open: Vec<&FreeSlots> = rooms.iter().filter(|room| room.room > 0).collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT b.job_id, open.key FROM (SELECT value ->> 0 AS key, CAST(value ->> 1 AS bigint) AS room \
                   FROM {{rows $1}}) AS open CROSS JOIN LATERAL ( \
                   SELECT job_id, priority FROM solid_queue_blocked_executions WHERE concurrency_key = open.key \
                   AND expires_at >= {{time '{DOES_NOT_WAIT}'}} ORDER BY priority, job_id LIMIT open.room \
                   FOR UPDATE SKIP LOCKED) AS b WHERE {}",
                blocked::is_in_turn("open.key"),
            );
            Statement::new(text).bind(slot_list(open)).load(conn)
        }
        Dialect::Sqlite => {
            let text = format!(
                "SELECT job_id, concurrency_key AS key FROM solid_queue_blocked_executions WHERE concurrency_key = $1 \
                 AND expires_at >= '{DOES_NOT_WAIT}' ORDER BY priority, job_id LIMIT $2"
            );
            let mut picked = Vec::new();
            for FreeSlots { key, room, .. } in open {
                let jobs = Statement::new(&text)
                    .bind(&key[..])
                    .bind(*room)
                    .load(conn)?;
                picked.extend::<Vec<PickedJob>>(jobs);
            }
            Ok(picked)
        }
    }
}

/// Ends the jobs of these keys that do not wait, where no slot is free.
///
/// The statement that finds the jobs counts the slots once more: since the pick, one may have
/// become free and a job been enqueued after that. `+ 0` here, as elsewhere, keeps Postgres from
/// reading the whole table in the requested order, since sorts were made expensive.
fn discard(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<Vec<Discarded>> {
    let text = format!(
        "SELECT b.job_id FROM solid_queue_blocked_executions b JOIN (SELECT value ->> 0 AS key FROM {{rows $1}}) AS w \
         ON b.concurrency_key = w.key WHERE b.expires_at = {{time '{DOES_NOT_WAIT}'}} \
         AND {} - ({}) <= 0 ORDER BY b.id + 0 {{lock skip of b}}",
        semaphores::limit_of("w.key"),
        semaphores::held_of("w.key"),
    );
    let list = wanted_keys::key_list(keys);
    let late: Vec<Execution> = Statement::new(text).bind(&list).load(conn)?;
    if late.is_empty() {
        return Ok(Vec::new());
    }
    // Where a row of a job is locked, the other keys do not wait for it.
    let jobs = jobs::lock_free(conn, &job_ids(late))?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    blocked::delete(conn, &jobs)?;
    let failure = JobFailure::new(
        NO_SLOT,
        "as many jobs of its concurrency key as may were there already, and it does not wait",
    );
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    let ended = operate::end_waiting(conn, &jobs, attempt, result, &failure)?;
    let ended = ended.into_iter();
    Ok(ended.map(|job| Discarded::of(job, NO_SLOT)).collect())
}

/// Requests another promotion of keys with jobs that were skipped as locked, as these may stay
/// blocked after all. The next worker or dispatcher handles it. Returns how many keys that are.
fn request_left_over(
    conn: &mut Conn<'_>,
    rooms: &[FreeSlots],
    picked: &[PickedJob],
) -> QueryResult<usize> {
    let taken = |key: &str| picked.iter().filter(|job| job.key == key).count() as i64;
    let keys: Vec<(&str, bool)> = rooms
        .iter()
        .map(|room| (&*room.key, taken(&room.key) < room.room))
        .collect();
    let left = |until: &str| {
        format!(
            "EXISTS (SELECT 1 FROM solid_queue_blocked_executions b \
             WHERE b.expires_at = {{time '{until}'}} AND b.concurrency_key = w.key)"
        )
    };
    let text = format!(
        "SELECT w.key AS concurrency_key FROM (SELECT value ->> 0 AS key, CAST(value ->> 1 AS text) AS open \
         FROM {{rows $1}}) AS w WHERE {} OR (w.open IN ('true', '1') AND {})",
        left(DOES_NOT_WAIT),
        left(NEVER_EXPIRES),
    );
    let list = serde_json::to_string(&keys).unwrap_or_default();
    let rows: Vec<ConcurrencyKey> = Statement::new(text).bind(&list).load(conn)?;
    let keys = wanted_keys::keys(rows);
    wanted_keys::request_promotion_later(conn, &keys)?;
    Ok(keys.len())
}
