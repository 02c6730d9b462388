//! Actions of the actors. They take processes and claims by their numbers, and return a short answer.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect;
use crate::db::internal_tests::interleavings::world::{World, take, with_key};
use crate::db::model::claim::{ClaimQueues, EqualJobs, Fence, FinishedRow, NextJobs};
use crate::db::model::decision::{Death, KeySlots};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{ClaimEnd, Ending, JobFailure};
use crate::db::table::{claimed, processes};
use crate::db::transition::clear::{self, ClearLimits};
use crate::db::transition::operate::{self, AtMostOnce, RunTime};
use crate::db::transition::{dispatch, end, enqueue, faults, finish, promote, prune};
use crate::mutant;
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use std::collections::BTreeMap;
use std::time::Duration;

pub const HOUR: Duration = Duration::from_secs(3600);

pub fn claim(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    let taken = take(conn, world.processes[process - 1], 5)?;
    Ok(taken.map_or_else(
        || "refused".to_owned(),
        |claims| format!("took {}", claims.len()),
    ))
}

/// A worker that claims, performs and finishes.
pub fn claim_and_finish(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    let process = world.processes[process - 1];
    let Some(taken) = take(conn, process, 5)? else {
        return Ok("refused".to_owned());
    };
    if taken.is_empty() {
        return Ok("took 0".to_owned());
    }
    let claims: Vec<i64> = taken.iter().map(|(claim, _)| *claim).collect();
    let ended = finish::finish(conn, process, &claims, FinishedRow::Keep, KeySlots::Free)?;
    Ok(format!("took {} finished {}", taken.len(), ended.len()))
}

fn ids(world: &World, claims: &[usize]) -> Vec<i64> {
    claims
        .iter()
        .map(|number| world.claims[number - 1])
        .collect()
}

pub fn finish(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    claims: &[usize],
    finished: FinishedRow,
) -> QueryResult<String> {
    let ended = finish::finish(
        conn,
        world.processes[process - 1],
        &ids(world, claims),
        finished,
        KeySlots::Free,
    )?;
    Ok(format!("{}", ended.len()))
}

/// Finishes claims, and claims the next jobs of their keys.
pub fn finish_and_take_next(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    claims: &[usize],
) -> QueryResult<String> {
    let (process, claims) = (world.processes[process - 1], ids(world, claims));
    let next = NextJobs {
        queues: ClaimQueues::All,
        classes: vec!["a".to_owned()],
    };
    let slots = KeySlots::PassOn(&next, EqualJobs::Wait);
    let done = finish::finish_free(conn, process, &claims, FinishedRow::Keep, slots)?;
    let (ended, taken) = (done.accepted.len(), done.next.jobs.len());
    Ok(format!("{ended} took {taken}"))
}

pub fn fail(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    claim: usize,
) -> QueryResult<String> {
    let done = end(conn, world, (process, claim), &failing(), FinishedRow::Keep)?;
    Ok(if done == "fenced" { "0" } else { "1" }.to_owned())
}

pub fn failing() -> Ending {
    Ending::Fail(JobFailure::new("test", "as told"))
}

pub fn retrying() -> Ending {
    Ending::Retry(JobFailure::new("test", "as told"), Duration::ZERO)
}

pub fn releasing() -> Ending {
    Ending::Release("as told".to_owned(), None)
}

pub fn release(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    claims: &[usize],
    delay: Option<Duration>,
) -> QueryResult<String> {
    let ended = end::release(
        conn,
        world.processes[process - 1],
        &ids(world, claims),
        delay,
    )?;
    Ok(format!("{}", ended.len()))
}

/// Prunes after a look that saw `seen` heartbeats, or with certainty.
pub fn prune(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    seen: Option<i64>,
) -> QueryResult<String> {
    let death = Death {
        is_crash: true,
        how: "was killed by signal 9".to_owned(),
    };
    let id = world.processes[process - 1];
    let recovered = match seen {
        Some(_) if mutant::is("prune_from_stale_snapshot") => {
            Some(faults::prune_stale(conn, id, &death)?)
        }
        _ => prune::prune(conn, id, seen, &death)?,
    };
    Ok(match recovered {
        None => "refused".to_owned(),
        Some(all) => format!(
            "{}+{}+{}",
            all.released.len(),
            all.delayed.len(),
            all.failed.len()
        ),
    })
}

pub fn heartbeat(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    let alive = processes::heartbeat(
        conn,
        world.processes[process - 1],
        &format!("worker-{process}"),
    )?;
    Ok(if alive.is_some() { "alive" } else { "pruned" }.to_owned())
}

pub fn deregister(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    let gone = prune::deregister(conn, world.processes[process - 1])?;
    Ok(if gone { "gone" } else { "refused" }.to_owned())
}

pub fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<String> {
    Ok(dispatch::dispatch(conn, batch, &[])?.count.to_string())
}

/// Enqueues in a transaction of the caller's own, as applications do.
pub fn enqueue(conn: &mut Conn<'_>, row: &NewRow, commit: bool) -> QueryResult<String> {
    let mut said = String::new();
    let result: QueryResult<()> = conn.transaction(|conn| {
        let inserted = enqueue::insert_job(conn, row)?;
        said = if inserted.is_new { "new" } else { "known" }.to_owned();
        if commit {
            Ok(())
        } else {
            Err(RollbackTransaction)
        }
    });
    match result {
        Ok(()) => Ok(said),
        Err(RollbackTransaction) => Ok(format!("{said} undone")),
        Err(error) => Err(error),
    }
}

pub fn enqueue_all(conn: &mut Conn<'_>, keys: &[&str]) -> QueryResult<String> {
    let rows: Vec<NewRow> = keys.iter().map(|key| with_key(key)).collect();
    let inserted = enqueue::insert_all(conn, &rows)?;
    let new = inserted.iter().filter(|one| one.is_new).count();
    Ok(format!("{new} new"))
}

/// A failing whose client goes away before the end.
pub fn fail_undone(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    claim: usize,
) -> QueryResult<String> {
    undone(conn, |conn| fail(conn, world, process, claim))
}

pub fn dispatch_undone(conn: &mut Conn<'_>, batch: usize) -> QueryResult<String> {
    undone(conn, |conn| dispatch(conn, batch))
}

fn undone(
    conn: &mut Conn<'_>,
    work: impl FnOnce(&mut Conn<'_>) -> QueryResult<String>,
) -> QueryResult<String> {
    let mut said = String::new();
    let result: QueryResult<()> = conn.transaction(|conn| {
        said = work(conn)?;
        Err(RollbackTransaction)
    });
    match result {
        Ok(()) | Err(RollbackTransaction) => Ok(said),
        Err(error) => Err(error),
    }
}

/// A worker that remembers nothing and gives everything back.
pub fn reconcile(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    let process = world.processes[process - 1];
    let held: Vec<i64> = claimed::held_by(conn, process)?
        .into_iter()
        .map(|held| held.claim_id)
        .collect();
    let ended = end::release(conn, process, &held, None)?;
    Ok(format!("{} of {}", ended.len(), held.len()))
}

pub fn drain(conn: &mut Conn<'_>, world: &World, process: usize) -> QueryResult<String> {
    processes::drain(conn, world.processes[process - 1])?;
    Ok("done".to_owned())
}

fn job_ids(world: &World, jobs: &[usize]) -> Vec<i64> {
    jobs.iter().map(|number| world.jobs[number - 1]).collect()
}

/// Ends a claim otherwise than with success, and says how that was done.
pub fn end(
    conn: &mut Conn<'_>,
    world: &World,
    (process, claim): (usize, usize),
    ending: &Ending,
    finished: FinishedRow,
) -> QueryResult<String> {
    let fence = Fence {
        process_id: world.processes[process - 1],
        claim_id: world.claims[claim - 1],
    };
    let done = end::end(conn, fence, ending, Duration::ZERO, finished)?;
    Ok(in_a_word(done.as_ref()).to_owned())
}

/// Ends claims otherwise than with success, in this order and at once, and
/// says how that was done.
pub fn end_all(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
    ends: &[(usize, &Ending)],
) -> QueryResult<String> {
    let ends = ends.iter().map(|(claim, ending)| {
        let claim = world.claims[claim - 1];
        ClaimEnd {
            claim_id: claim,
            ending,
            ran: Duration::ZERO,
            last_retry: None,
        }
    });
    let ends: Vec<ClaimEnd<'_>> = ends.collect();
    let process = world.processes[process - 1];
    let done: BTreeMap<i64, Ending> = end::end_all(conn, process, &ends, FinishedRow::Keep)?
        .into_iter()
        .map(|end| (end.claim_id, end.ending))
        .collect();
    let words = ends.iter().map(|end| in_a_word(done.get(&end.claim_id)));
    Ok(words.collect::<Vec<_>>().join(" "))
}

fn in_a_word(done: Option<&Ending>) -> &'static str {
    match done {
        None => "fenced",
        Some(Ending::Fail(_)) => "failed",
        Some(Ending::Retry(..)) => "retried",
        Some(Ending::Discard(_)) => "discarded",
        Some(Ending::Expire(_)) => "expired",
        Some(Ending::Cancel(_)) => "cancelled",
        Some(Ending::Snooze(_) | Ending::RateLimited(_)) => "snoozed",
        Some(Ending::Park(_)) => "parked",
        Some(Ending::GiveBack { .. }) => "given back",
        Some(Ending::Release(..)) => "released",
    }
}

/// Promotes blocked jobs of up to so many keys.
pub fn promote(conn: &mut Conn<'_>, batch: usize) -> QueryResult<String> {
    Ok(promote::promote(conn, batch)?.ready.len().to_string())
}

/// Does the same, and looks for requests once more, as a process does: others leave the keys to it that it has locked.
pub fn promote_and_look(conn: &mut Conn<'_>, batch: usize) -> QueryResult<String> {
    let mut promoted = promote::promote(conn, batch)?;
    if promoted.may_be_left() {
        promoted.ready.extend(promote::promote(conn, batch)?.ready);
    }
    Ok(promoted.ready.len().to_string())
}

pub fn cancel(conn: &mut Conn<'_>, world: &World, jobs: &[usize]) -> QueryResult<String> {
    let done = operate::cancel(conn, &job_ids(world, jobs))?;
    Ok(format!(
        "{} ended {} asked",
        done.ended.len(),
        done.asked.len()
    ))
}

pub fn discard(conn: &mut Conn<'_>, world: &World, jobs: &[usize]) -> QueryResult<String> {
    Ok(operate::discard(conn, &job_ids(world, jobs))?
        .len()
        .to_string())
}

pub fn retry(conn: &mut Conn<'_>, world: &World, jobs: &[usize]) -> QueryResult<String> {
    let done = operate::retry(conn, &job_ids(world, jobs), AtMostOnce::Retry)?;
    Ok(done.ready.len().to_string())
}

/// To an hour from now, or to now.
pub fn reschedule(
    conn: &mut Conn<'_>,
    world: &World,
    jobs: &[usize],
    later: bool,
) -> QueryResult<String> {
    let delay = if later { dialect::micros(HOUR) } else { 0 };
    let moved = operate::reschedule(conn, &job_ids(world, jobs), RunTime::In(delay))?;
    Ok(moved.len().to_string())
}

pub fn rank(
    conn: &mut Conn<'_>,
    world: &World,
    jobs: &[usize],
    priority: i32,
) -> QueryResult<String> {
    let ranked = operate::change_priority(conn, &job_ids(world, jobs), priority)?;
    Ok(ranked.len().to_string())
}

/// Takes away all that has finished.
pub fn clear_finished(conn: &mut Conn<'_>) -> QueryResult<String> {
    let old = ClearLimits {
        age: Duration::ZERO,
        up_to: 0,
        of_ruby: true,
    };
    Ok(clear::finished(conn, old, 0, 100)?.cleared.to_string())
}

pub fn clear_failed(conn: &mut Conn<'_>) -> QueryResult<String> {
    Ok(clear::failed(conn, Duration::ZERO, 0, 100)?
        .cleared
        .to_string())
}

/// A worker that claims and then stops.
pub fn claim_and_release(
    conn: &mut Conn<'_>,
    world: &World,
    process: usize,
) -> QueryResult<String> {
    let process = world.processes[process - 1];
    let taken = take(conn, process, 5)?.unwrap_or_default();
    let claims: Vec<i64> = taken.iter().map(|(claim, _)| *claim).collect();
    let released = end::release(conn, process, &claims, None)?;
    Ok(format!("took {} released {}", taken.len(), released.len()))
}
