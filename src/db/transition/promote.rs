//! Promotes blocked executions to the free slots of their concurrency key.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Execution};
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::Claimed;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::blocked;
use crate::db::table::jobs;
use crate::db::table::semaphores::{
    self, AT_ONCE, DOES_NOT_WAIT, FreeSlots, NEVER_EXPIRES, held_up_to, limit_of, slot_list,
};
use crate::db::table::wanted_keys::{self, ConcurrencyKey, Requests};
use crate::db::table::{rates, ready, shares};
use crate::db::transition::claim::passed::claim_passed;
use crate::db::transition::flows::leave::end_unstarted;
use crate::db::transition::gate::{self, GateWatch, WantedGates};
use crate::db::transition::{flows, signal};

pub(crate) use crate::db::transition::promoted::{Discarded, Promoted};
use diesel::QueryResult;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeSet;

/// Gives the free slots of up to `chunk` requested keys to their blocked jobs, by priority and then
/// age. The rest of the jobs that do not wait end.
///
/// It is a transaction of its own, and waits for no lock of a key: so that the end of a job never
/// depends on the next one, and no wait is long. It moves a bounded number of jobs, and requests the rest.
///
/// Others that find a key locked by it leave its requests. So the caller promotes once more, if
/// [`goes_on`](Promoted::goes_on).
pub(crate) fn promote(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<Promoted> {
    let watch = &mut GateWatch::of_test();
    promote_after(conn, wanted_keys::BEGINNING, chunk, watch)
}

/// Like [`promote`], for the requests after the id `after`, and for the rates that are due.
pub(crate) fn promote_after(
    conn: &mut Conn<'_>,
    after: i64,
    chunk: usize,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    // First a read without the write lock: mostly there is nothing to do.
    let begun = clock::instant();
    let is_wanted = semaphores::is_requested(conn, after)?;
    let search_took = begun.elapsed();
    watch.read_clock(conn)?;
    let promoted = match is_wanted || watch.is_due || !watch.started.is_empty() {
        true => promote_accepted(conn, after, chunk, watch)?,
        false => Promoted::default(),
    };
    Ok(Promoted {
        search_took,
        ..promoted
    })
}

/// Promotes the requested keys that the database accepts. If it refuses, this tries half of them, down to a single
/// request, and puts that one behind the others.
fn promote_accepted(
    conn: &mut Conn<'_>,
    after: i64,
    chunk: usize,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    let mut size = chunk;
    loop {
        let mut taken = 0;
        let promoted = conn.transaction(|conn| promote_once(conn, after, size, &mut taken, watch));
        match promoted {
            Err(_) if watch.wants_clock() && !conn.is_in_transaction() => {
                watch.read_clock(conn)?;
            }
            // It may be a claim that is refused: its job becomes ready, and holds up no other.
            Err(error) if is_refused(conn, &error) && watch.claims.take().is_some() => {}
            Err(error) if is_refused(conn, &error) && size <= 1 => {
                let promoted = put_off(conn, after, taken, watch)?;
                return Ok(Promoted {
                    refused: Some(error.to_string()),
                    ..promoted
                });
            }
            Err(error) if is_refused(conn, &error) => size = size.min(taken).max(2) / 2,
            done => return done.inspect(|done| watch.note_claimed(done.claimed.len())),
        }
    }
}

/// Puts the queue, the request or the rate off that the database refuses, if it comes alone.
fn put_off(
    conn: &mut Conn<'_>,
    after: i64,
    taken: usize,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    let queues = watch.queues(conn, PUT_OFF)?;
    let mut promoted = one_by_one(conn, &queues, watch)?;
    if watch.has_refused(&queues) {
        return Ok(promoted);
    }
    if !watch.is_due {
        wanted_keys::postpone(conn, after)?;
        return Ok(promoted);
    }
    if taken > 0 {
        // One of both: if the request is accepted alone, it is the rate.
        watch.is_due = false;
        let alone = conn.transaction(|conn| promote_once(conn, after, 1, &mut 0, watch));
        watch.is_due = true;
        match alone {
            Err(error) if is_refused(conn, &error) => {
                wanted_keys::postpone(conn, after)?;
                return Ok(promoted);
            }
            done => add(&mut promoted, done?, watch),
        }
    }
    rates::postpone(conn)?;
    Ok(promoted)
}

/// The most queues that are looked at one by one.
const PUT_OFF: usize = 100;

/// Looks at queues one by one, and leaves those for a while that the database refuses.
fn one_by_one(
    conn: &mut Conn<'_>,
    queues: &BTreeSet<String>,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    let mut promoted = Promoted::default();
    for queue in queues {
        let due = DueGates {
            rates: Vec::new(),
            queues: BTreeSet::from([queue.clone()]),
        };
        let looked =
            conn.transaction(|conn| pass_gates(conn, &mut Requests::default(), &[], due, watch));
        match looked {
            Err(error) if !watch.wants_clock() && is_refused(conn, &error) => {
                watch.refuse(queue);
                // The row may be what is refused.
                let _ = shares::postpone(conn, queue);
            }
            Err(_) if watch.wants_clock() => {}
            done => add(&mut promoted, done?, watch),
        }
    }
    Ok(promoted)
}

/// Adds what a promotion has done that is committed.
fn add(promoted: &mut Promoted, done: Promoted, watch: &mut GateWatch) {
    watch.note_claimed(done.claimed.len());
    promoted.extend(done);
}

/// Returns whether single requests may have caused an error. One ends a transaction of the caller.
fn is_refused(conn: &mut Conn<'_>, error: &diesel::result::Error) -> bool {
    Refusal::of(error) == Refusal::Content && !conn.is_in_transaction()
}

fn promote_once(
    conn: &mut Conn<'_>,
    after: i64,
    chunk: usize,
    taken: &mut usize,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    let mut requests = wanted_keys::take(conn, after, chunk)?;
    *taken = requests.taken;
    let due = match watch.is_due {
        true => rates::due(conn, chunk)?,
        false => Vec::new(),
    };
    let queues = watch.queues(conn, chunk)?;
    let due = DueGates { rates: due, queues };
    if requests.taken == 0 {
        return pass_gates(conn, &mut requests, &[], due, watch);
    }
    // Counted under the lock, by separate statements, which see what transactions before this
    // one have committed.
    let mut rooms = semaphores::free_slots(conn, &requests.keys)?;
    let behind = rooms.iter_mut().filter(|one| one.is_behind_line);
    behind.for_each(|one| one.room = one.room.min(0));
    let picked = pick(conn, &shares(&rooms))?;
    let ready: Vec<i64> = picked.iter().map(|picked| picked.job_id).collect();
    make_ready(conn, &ready)?;
    let mut promoted = Promoted {
        discarded: discard(conn, &full(&rooms, &picked))?,
        ready,
        requests: requests.taken,
        invalid: std::mem::take(&mut requests.invalid),
        ..Promoted::default()
    };
    request_left_over(conn, &rooms, &picked, &mut promoted)?;
    let by_ruby = rooms.iter().filter(|room| room.has_blocked_by_ruby);
    blocked::take_over(conn, &by_ruby.map(|room| room.key.clone()).collect())?;
    let of_ruby = rooms.iter().filter(|room| room.has_semaphore);
    let of_ruby = of_ruby.map(|room| room.key.clone()).collect();
    let signalled = signal::signal(conn, &requests.semaphores, &of_ruby)?;
    promoted.ready.extend(signalled.ready);
    promoted.left_over += signalled.left_over;
    promoted.extend(pass_gates(conn, &mut requests, &rooms, due, watch)?);
    promoted.extend(follow(conn, &requests)?);
    Ok(promoted)
}

/// The rates that are due, and the queues whose shares are.
struct DueGates {
    rates: Vec<String>,
    queues: BTreeSet<String>,
}

/// Lets jobs with a share or with rates through.
fn pass_gates(
    conn: &mut Conn<'_>,
    requests: &mut Requests,
    rooms: &[FreeSlots],
    due: DueGates,
    watch: &mut GateWatch,
) -> QueryResult<Promoted> {
    let limits = rooms.iter().filter(|room| room.has_line);
    let wanted = WantedGates {
        lines: std::mem::take(&mut requests.lines),
        limits: limits.clone().map(|room| room.key.clone()).collect(),
        held_back: limits
            .filter(|room| room.is_behind_line)
            .map(|room| room.key.clone())
            .collect(),
        due: due.rates,
        queues: due.queues,
    };
    let Some(passed) = gate::let_through(conn, wanted, watch)? else {
        let next = watch.is_due.then(|| rates::next_due(conn)).transpose()?;
        return Ok(Promoted {
            next_due: next.flatten(),
            ..Promoted::default()
        });
    };
    let mut ready = passed.ready;
    let claimed = start(conn, &mut ready, watch)?;
    make_ready(conn, &ready)?;
    // A process looks again, by itself, at a queue of which it has started jobs.
    let is_left = |queue: &&String| claimed.iter().all(|job| job.queue_name != **queue);
    let rest = passed.rest.iter().filter(is_left);
    gate::request_queues(conn, rest, passed.has_moved)?;
    Ok(Promoted {
        discarded: discard_jobs(conn, &passed.full)?,
        ready,
        claimed,
        left_over: passed.left_over,
        has_rest: passed.has_rest,
        followed: passed.followed,
        next_due: rates::next_due(conn)?,
        has_gates: true,
        ..Promoted::default()
    })
}

/// Claims the first of these jobs for the process that promotes, and takes them out.
fn start(
    conn: &mut Conn<'_>,
    passed: &mut Vec<i64>,
    watch: &GateWatch,
) -> QueryResult<Vec<Claimed>> {
    let Some(by) = &watch.claims else {
        return Ok(Vec::new());
    };
    let claimed = claim_passed(conn, passed, by)?;
    let started: Vec<i64> = claimed.iter().map(|job| job.job_id).collect();
    blocked::delete(conn, &started)?;
    let started: BTreeSet<i64> = started.into_iter().collect();
    passed.retain(|job| !started.contains(job));
    Ok(claimed)
}

/// Returns the open keys, with room for as many jobs as one promotion moves of each: fairly, so that no key holds up another.
fn shares(rooms: &[FreeSlots]) -> Vec<FreeSlots> {
    let open = rooms.iter().filter(|one| one.has_blocked() && one.room > 0);
    let mut open: Vec<FreeSlots> = open.cloned().collect();
    open.sort_by_key(|one| one.room);
    let (mut left, mut keys) = (AT_ONCE, open.len() as i64);
    for one in &mut open {
        one.room = one.room.min(left / keys);
        left -= one.room;
        keys -= 1;
    }
    open.retain(|one| one.room > 0);
    open
}

/// Handles the requests about batches, jobs that wait for others, and waits.
fn follow(conn: &mut Conn<'_>, requests: &Requests) -> QueryResult<Promoted> {
    let completed = flows::leave::complete(conn, &requests.batches)?;
    let parents = flows::leave::resolve(conn, &requests.ended, &requests.retried)?;
    let admitted = flows::admit::admit(conn, &requests.children)?;
    let woken = flows::wake::wake(conn, &requests.waits, &requests.events)?;
    let unwanted = admitted.discarded.into_iter();
    let unwanted = unwanted.map(|job| Discarded::of(job, flows::admit::NOT_WANTED));
    Ok(Promoted {
        followed: completed.followed + parents.followed + admitted.entered + woken.woken.len(),
        open_batches: completed.open,
        discarded: unwanted.collect(),
        left_over: completed.left_over + parents.left_over + admitted.left_over + woken.left_over,
        has_rest: woken.has_rest,
        ..Promoted::default()
    })
}

fn make_ready(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    blocked::delete(conn, jobs)?;
    ready::insert_ready(conn, jobs)
}

/// A blocked job that a free slot of its key may go to.
#[derive(QueryableByName)]
struct PickedJob {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    key: String,
}

/// Returns the jobs to promote, locked. Jobs that another transaction is moving are skipped, but not
/// in an ordered key, where the next one waits for it.
fn pick(conn: &mut Conn<'_>, rooms: &[FreeSlots]) -> QueryResult<Vec<PickedJob>> {
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
                 AND expires_at >= '{DOES_NOT_WAIT}' ORDER BY priority, job_id LIMIT $2 + 0"
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

/// Returns the keys that have no free slot left, and blocked jobs that do not wait.
fn full(rooms: &[FreeSlots], picked: &[PickedJob]) -> Vec<FreeSlots> {
    let is_full = |one: &&FreeSlots| one.has_late && one.room <= picked_of(picked, one);
    rooms.iter().filter(is_full).cloned().collect()
}

/// Returns how many of the jobs are of a key.
fn picked_of(picked: &[PickedJob], of: &FreeSlots) -> i64 {
    picked.iter().filter(|job| job.key == of.key).count() as i64
}

/// Requests another promotion of keys of which jobs are left that may go on: more than one promotion moves, or skipped as
/// locked, as these may stay blocked after all. Notes how many keys that are.
fn request_left_over(
    conn: &mut Conn<'_>,
    rooms: &[FreeSlots],
    picked: &[PickedJob],
    promoted: &mut Promoted,
) -> QueryResult<()> {
    let keys: Vec<(&str, bool)> = rooms
        .iter()
        .map(|room| (room, picked_of(picked, room) < room.room))
        .filter(|(room, is_open)| room.has_late || room.has_waiting && *is_open)
        .map(|(room, is_open)| (&*room.key, is_open))
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    let left = |until: &str| {
        format!(
            "(SELECT b.id FROM solid_queue_blocked_executions b \
             WHERE b.expires_at = {{time '{until}'}} AND b.concurrency_key = w.key LIMIT 1) IS NOT NULL"
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
    promoted.left_over += keys.len();
    promoted.has_rest = !keys.is_empty() && promoted.has_moved();
    match promoted.has_rest {
        // Idle processes may go on with it at once.
        true => wanted_keys::request_promotion(conn, &keys),
        false => wanted_keys::request_promotion_later(conn, &keys),
    }
}

// --- Ends blocked jobs that do not wait for a slot ---

/// The kind of failure of a job that found no slot and does not wait.
pub(crate) const NO_SLOT: &str = "concurrency_limit";

/// Ends jobs that do not wait, of the keys of which no slot is free.
///
/// On Postgres, the statement that finds the jobs counts the slots once more: since the pick, one may have
/// become free and a job been enqueued after that.
pub(crate) fn discard(conn: &mut Conn<'_>, full: &[FreeSlots]) -> QueryResult<Vec<Discarded>> {
    if full.is_empty() {
        return Ok(Vec::new());
    }
    let late = late(conn, full)?;
    discard_jobs(conn, &late)
}

fn discard_jobs(conn: &mut Conn<'_>, late: &[i64]) -> QueryResult<Vec<Discarded>> {
    if late.is_empty() {
        return Ok(Vec::new());
    }
    // The other keys do not wait for a job whose row is locked.
    let jobs = jobs::lock_free(conn, late)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    blocked::delete(conn, &jobs)?;
    let failure = JobFailure::new(
        NO_SLOT,
        "as many jobs of its concurrency key as may were there already, and it does not wait",
    );
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    let ended = end_unstarted(conn, &jobs, attempt, result, &failure)?;
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
                .uncached()
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
