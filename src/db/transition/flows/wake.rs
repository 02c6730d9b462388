//! Lets jobs run again whose events have come, or whose waits have timed out.

use crate::db::conn::connection::Conn;
use crate::db::model::decision::{Destination, JobDecision};
use crate::db::model::outcome::{ParkUntil, ParkedStep};
use crate::db::table::flows::waits::{self, LateWait, NewWait};
use crate::db::table::flows::{edges, events};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{blocked, steps};
use crate::db::transition::runnable;
use crate::mutant;
use diesel::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most jobs waiting for events that a promotion takes at once.
const AT_ONCE: usize = 500;

/// The result of the requests.
#[derive(Debug, Default)]
pub(crate) struct WokenJobs {
    /// Jobs that wait no longer.
    pub(crate) woken: Vec<i64>,
    /// The number of jobs that were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
    /// True if more jobs wait for the same events than were taken.
    pub(crate) has_rest: bool,
}

/// Lets those jobs run whose wait has ended, for a promotion. More jobs than this takes at once are requested again.
pub(crate) fn wake(
    conn: &mut Conn<'_>,
    named: &BTreeSet<i64>,
    emitted: &BTreeSet<String>,
) -> QueryResult<WokenJobs> {
    let mut jobs = named.clone();
    let mut again = Vec::new();
    let mut left_over = 0;
    if !emitted.is_empty() && !mutant::is("event_wakes_none") {
        let events = events::existing(conn, emitted)?;
        let share = (AT_ONCE / events.len().max(1)).max(1);
        for event in events {
            let mut waiting = waits::of_event(conn, &event, share)?;
            if waiting.len() == share {
                // Those that others have locked hold up none behind them.
                waiting = waits::lock_of_event(conn, &event, share)?;
                left_over += usize::from(waiting.len() < share);
                again.push(NewRequest::Event(event));
            }
            jobs.extend(waiting);
        }
    }
    let jobs: Vec<i64> = jobs.into_iter().collect();
    let WakeOutcome { woken, busy } = wake_jobs(conn, &jobs)?;
    let has_rest = !again.is_empty() && !woken.is_empty();
    left_over += busy.len();
    again.extend(busy.into_iter().map(NewRequest::Wait));
    wanted_keys::request_later(conn, again)?;
    Ok(WokenJobs {
        woken,
        left_over,
        has_rest,
    })
}

/// The result for jobs that may wait no longer.
struct WakeOutcome {
    woken: Vec<i64>,
    /// Those that wait, and that another transaction has locked.
    busy: Vec<i64>,
}

/// Lets those of the jobs run whose wait has ended.
///
/// The executions are locked first, and the waits read after that: a job may have been woken meanwhile, and wait for
/// something else.
fn wake_jobs(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<WakeOutcome> {
    if jobs.is_empty() {
        let (woken, busy) = (Vec::new(), Vec::new());
        return Ok(WakeOutcome { woken, busy });
    }
    let locked = waits::lock_free(conn, jobs)?;
    let mut woken = Vec::new();
    if !locked.is_empty() {
        woken = waits::record_ended(conn, &locked)?;
    }
    if !woken.is_empty() {
        waits::delete(conn, &woken)?;
        blocked::delete(conn, &woken)?;
        runnable::make_runnable(conn, &woken)?;
    }
    let skipped = jobs.iter().filter(|job| !locked.contains(job));
    let skipped: Vec<i64> = skipped.copied().collect();
    let busy = match skipped.is_empty() {
        true => Vec::new(),
        false => waits::parked_jobs(conn, &skipped)?,
    };
    Ok(WakeOutcome { woken, busy })
}

/// The result of a search for waits that have timed out.
#[derive(Debug, Default)]
pub(crate) struct TimedOut {
    /// The number of waits that have ended.
    pub(crate) woken: usize,
    /// The time until the next time-out. Zero if some are left.
    pub(crate) next: Option<Duration>,
}

/// Lets up to `chunk` jobs run whose waits have timed out, and deletes waits of jobs that another program has moved.
pub(crate) fn time_out(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<TimedOut> {
    // Without the write lock: mostly there is none.
    let next = waits::next_timeout(conn)?;
    if next != Some(Duration::ZERO) {
        return Ok(TimedOut { woken: 0, next });
    }
    let woken = conn.transaction(|conn| {
        let late = waits::late(conn, chunk)?;
        let jobs: Vec<i64> = late.iter().map(|wait| wait.job_id).collect();
        let WakeOutcome { woken, busy } = wake_jobs(conn, &jobs)?;
        let is_stray =
            |wait: &&LateWait| !woken.contains(&wait.job_id) && !busy.contains(&wait.job_id);
        let strays: Vec<LateWait> = late.iter().filter(is_stray).copied().collect();
        let gone = match strays.is_empty() {
            true => 0,
            false => waits::delete_strays(conn, &strays)?,
        };
        QueryResult::Ok(woken.len() + gone)
    })?;
    let next = waits::next_timeout(conn)?;
    Ok(TimedOut { woken, next })
}

// --- Lets jobs wait whose claims have ended at a step ---

/// Lets those of the jobs wait, in ascending order, that are to: the caller has scheduled the executions of pauses.
///
/// The promotion of each wait for an event is requested, whether there is one or not: a transaction that emits it may not
/// see the wait, as this one may not see the event. The later commit of both has a promotion after it. The same holds for
/// a job that waits for others.
pub(crate) fn park(conn: &mut Conn<'_>, decisions: &[&JobDecision]) -> QueryResult<()> {
    let (mut pauses, mut events, mut joins) = (Vec::new(), Vec::new(), Vec::new());
    for decision in decisions {
        let Destination::Park(ParkedStep { step, until }) = &decision.destination else {
            continue;
        };
        let (job_id, claim_id) = (decision.run.job_id, decision.run.claim_id);
        match until {
            ParkUntil::Pause(time) => pauses.push((job_id, step.as_str(), *time)),
            ParkUntil::Event { name, timeout } => events.push(NewWait {
                job_id,
                claim_id,
                step,
                event: name,
                timeout: *timeout,
            }),
            ParkUntil::Joined(value) => joins.push((job_id, step.as_str(), value.as_str())),
        }
    }
    steps::record_pauses(conn, &pauses)?;
    let mut requests = Vec::new();
    if !events.is_empty() {
        waits::park_for_events(conn, &events)?;
        requests.extend(events.iter().map(|wait| NewRequest::Wait(wait.job_id)));
    }
    if !joins.is_empty() {
        steps::record_joins(conn, &joins)?;
        edges::block(
            conn,
            &joins.iter().map(|(job, ..)| *job).collect::<Vec<_>>(),
        )?;
        requests.extend(joins.iter().map(|(job, ..)| NewRequest::Child(*job)));
    }
    wanted_keys::request(conn, requests)
}

// --- Emits events, in the transaction of the caller ---

/// The number of times that the event of another transaction may disappear before this gives up.
pub(crate) const ROUNDS: usize = 3;

/// Stores an event and requests a promotion of the jobs that wait for it. Returns `false` if there is one of this name
/// with another payload, which stays.
pub(crate) fn emit(conn: &mut Conn<'_>, name: &str, payload: &str) -> QueryResult<bool> {
    conn.join_transaction(|conn| {
        for _ in 0..ROUNDS {
            if !events::insert_event(conn, name, payload)? {
                // A statement of its own: it sees the one that the insert has met.
                match events::payload(conn, name)? {
                    Some(first) if is_same(&first, payload) => {}
                    Some(_) => return Ok(false),
                    // Cleared meanwhile.
                    None => continue,
                }
            }
            // Also for an event that was there: another program may have deleted the request.
            wanted_keys::request(conn, [NewRequest::Event(name.to_owned())])?;
            return Ok(true);
        }
        Err(diesel::result::Error::NotFound)
    })
}

/// Returns whether two texts are the same JSON, whatever the order of its fields.
///
/// Numbers are compared as they are written: read as floating-point numbers, two long ones that differ would be one.
fn is_same(first: &str, other: &str) -> bool {
    fn parsed<'t, T: Deserialize<'t>>(first: &'t str, other: &'t str) -> Option<(T, T)> {
        Some((
            serde_json::from_str(first).ok()?,
            serde_json::from_str(other).ok()?,
        ))
    }
    let (first, other) = (first.trim(), other.trim());
    if first == other {
        return true;
    }
    if let Some((one, two)) = parsed::<BTreeMap<String, &RawValue>>(first, other) {
        let mut pairs = one.iter().zip(&two);
        return one.len() == two.len()
            && pairs
                .all(|((key, one), (other, two))| key == other && is_same(one.get(), two.get()));
    }
    if let Some((one, two)) = parsed::<Vec<&RawValue>>(first, other) {
        let mut pairs = one.iter().zip(&two);
        return one.len() == two.len() && pairs.all(|(one, two)| is_same(one.get(), two.get()));
    }
    if let Some((one, two)) = parsed::<String>(first, other) {
        return one == two;
    }
    // A double has 15 digits that are always kept.
    let is_short_float = |text: &str| text.contains(['.', 'e', 'E']) && text.len() <= 16;
    is_short_float(first)
        && is_short_float(other)
        && parsed::<f64>(first, other).is_some_and(|(one, two)| one == two)
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn payloads_are_compared_as_json() {
        for (first, other, same) in [
            (
                "{\"a\": [1, 2], \"b\": null}",
                "{\"b\":null,\"a\":[1,2]}",
                true,
            ),
            ("{\"a\":1}", "{\"a\":1,\"b\":1}", false),
            ("[1]", "[1,1]", false),
            ("\"\\u0061\"", "\"a\"", true),
            ("\"1\"", "1", false),
            ("1.50", "1.5", true),
            ("1", "1.0", false),
            ("10000000000000000001", "10000000000000000002", false),
            ("[98765432109876543210]", "[98765432109876543211]", false),
            ("0.10000000000000000001", "0.1", false),
            ("true", "true ", true),
        ] {
            assert_eq!(is_same(first, other), same, "{first} and {other}");
        }
    }
}
