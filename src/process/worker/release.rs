//! The release of claims by a worker: at a stop, and when its memory and the database differ.

use crate::db::Conn;
use crate::db::model::claim::{self, FinishedRow};
use crate::db::model::history::tally::CountedEnd;
use crate::db::model::outcome::{self, JobFailure};
use crate::db::table::{claimed, processes};
use crate::db::transition::end;
use crate::event::Event;
use crate::job::JobId;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::stop;
use crate::process::worker::completion;
use crate::process::worker::in_flight::{InFlight, InFlightJob};
use crate::{clock, mutant};
use diesel::QueryResult;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Releases, at a stop, the claims that no thread has started.
pub(crate) fn unstarted(in_flight: &InFlight, session: &mut Session) {
    let count = release_unstarted(session, &in_flight.take_unstarted());
    if count > 0 {
        session.subscriber().emit(&Event::Released {
            count,
            why: "the worker stops, and they had not started",
        });
    }
}

/// Releases the claims of paused classes that no thread has started.
pub(crate) fn paused(
    in_flight: &InFlight,
    session: &mut Session,
    is_paused: impl Fn(&str) -> bool,
) {
    let count = release_unstarted(session, &in_flight.take_unstarted_of(is_paused));
    if count > 0 {
        let why = "their class is paused";
        session.subscriber().emit(&Event::Released { count, why });
    }
}

/// Releases claims that were made ahead, and that no thread has started.
pub(crate) fn claimed_ahead(in_flight: &InFlight, session: &mut Session, why: &str) {
    let count = release_unstarted(session, &in_flight.take_unstarted());
    if count > 0 {
        session.subscriber().emit(&Event::Released { count, why });
    }
}

/// A failure that took longer than this is not tried again, because the database gives no answer.
const SOON: Duration = Duration::from_millis(500);

/// Runs `work`, and after a quick failure once more: a connection that was idle all through a stop
/// may be broken while the database is well. All this is fenced, so a repetition of what succeeded
/// without an answer does no harm.
fn insist<T>(
    session: &mut Session,
    action: &'static str,
    mut work: impl FnMut(&mut Conn<'_>) -> QueryResult<T>,
) -> Result<T, Duration> {
    let begun = clock::instant();
    match session.run(action, &mut work) {
        Err(_) if begun.elapsed() < SOON => session.run(action, work),
        done => done,
    }
}

/// Stores, at a stop, that the process drains. A graceful exit code does not count as a crash after
/// that. Returns `false` if the database did not accept it.
pub(crate) fn drain(session: &mut Session, registrations: &[Arc<Registration>]) -> bool {
    let mut all = true;
    for registration in registrations {
        let drained = insist(session, "drain", |conn| {
            processes::drain(conn, registration.id)
        });
        all &= drained.is_ok();
    }
    all
}

/// The most claims that one transaction ends.
const AT_ONCE: usize = 500;

/// Returns what is done for each process, in parts as large as one transaction may be.
fn parts<T: Clone>(all: impl Iterator<Item = (i64, T)>) -> Vec<(i64, Vec<T>)> {
    let mut of: BTreeMap<i64, Vec<T>> = BTreeMap::new();
    for (process_id, one) in all {
        of.entry(process_id).or_default().push(one);
    }
    let mut parts = Vec::new();
    for (process_id, all) in of {
        parts.extend(all.chunks(AT_ONCE).map(|part| (process_id, part.to_vec())));
    }
    parts
}

/// Releases claims, each with its process, and returns how many. The first part that gets no answer
/// is the last: the supervisor releases the rest when it sees the end of the process.
fn release(session: &mut Session, claims: impl Iterator<Item = (i64, i64)>) -> usize {
    let mut count = 0;
    for (process_id, ids) in parts(claims) {
        let released = insist(session, "release claims", |conn| {
            end::release(conn, process_id, &ids, None)
        });
        if released.is_err() && session.is_in_trouble() {
            break;
        }
        count += released.map_or(0, |released| released.len());
    }
    count
}

/// Releases claims that no thread has started, and returns how many.
fn release_unstarted(session: &mut Session, claims: &[InFlightJob]) -> usize {
    let of = |held: &InFlightJob| (held.registration.id, held.job.claim_id);
    release(session, claims.iter().map(of))
}

/// Ends runs that a stop cuts short, and returns how many. The first part that gets no answer is the
/// last.
fn cut_short(session: &mut Session, claims: &[InFlightJob], ending: &outcome::Ending) -> usize {
    let mut count = 0;
    for (process_id, held) in parts(claims.iter().map(|held| (held.registration.id, held))) {
        let of = |held: &InFlightJob| outcome::ClaimEnd {
            claim_id: held.job.claim_id,
            ending,
            ran: held.ran(),
            last_retry: None,
        };
        let ends: Vec<outcome::ClaimEnd<'_>> = held.iter().map(|held| of(held)).collect();
        let ended = insist(session, "release claims", |conn| {
            end::end_all(conn, process_id, &ends, FinishedRow::Keep)
        });
        if ended.is_err() && session.is_in_trouble() {
            break;
        }
        for applied in ended.unwrap_or_default() {
            count += 1;
            // It may have been cancelled.
            let mut all = held.iter();
            if let Some(held) = all.find(|held| held.job.claim_id == applied.claim_id) {
                count_end(session, held, Ok(Some(applied.ending)));
            }
        }
    }
    count
}

/// Why runs are released that a worker without a supervisor cuts short.
const CUT_SHORT: &str = "the worker stops, and its end could not be awaited or written";

/// The progress of a stop at its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopProgress {
    /// True if all jobs have ended, so that only the outcomes of some could not be saved.
    pub(crate) is_drained: bool,
    /// True if the end of the program follows, so that jobs that overran their timeout stay claimed
    /// until a supervisor sees it.
    pub(crate) leave_overrun: bool,
}

/// Decides, at the deadline of a stop, about the jobs that still run.
///
/// A supervisor releases them once it has seen this process end, so that no job runs twice at the
/// same time; without a supervisor, or if that was killed, they wait a moment.
pub(crate) fn give_back(
    in_flight: &InFlight,
    session: &mut Session,
    stop: StopProgress,
) -> Vec<JobId> {
    let running = in_flight.all();
    let drained = stop.is_drained;
    let is_left = !drained && stop::is_watched();
    let leave = stop.leave_overrun || is_left;
    let (overrun, others): (Vec<_>, Vec<_>) = running
        .iter()
        .cloned()
        .partition(|held| held.live.verdict().is_some());
    for held in overrun.iter().filter(|_| !leave) {
        end_overrun(held, session);
    }
    let (once, again): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|held| held.job.at_most_once);
    for held in once {
        fail_interrupted(&held, session);
    }
    if !is_left {
        let delay = (!drained).then_some(DELAY);
        let ending = outcome::Ending::Release(CUT_SHORT.to_owned(), delay);
        let count = cut_short(session, &again, &ending);
        if count > 0 {
            let why = CUT_SHORT;
            session.subscriber().emit(&Event::Released { count, why });
        }
    }
    running.iter().map(|held| JobId(held.job.job_id)).collect()
}

/// Notifies jobs that were released but still run, as in a program that continues after its
/// embedded worker. Call it after the process has deregistered, which needs its registrations.
pub(crate) fn disown(in_flight: &InFlight) {
    for held in in_flight.all() {
        held.registration.lease.lose();
    }
    in_flight.wake();
}

/// The delay before a job that still runs may run elsewhere.
const DELAY: Duration = Duration::from_secs(2);

/// Ends a job that overran its timeout in a program that continues without the worker.
fn end_overrun(held: &InFlightJob, session: &mut Session) {
    let Some(mut ending) = held.live.verdict().cloned() else {
        return;
    };
    if let outcome::Ending::Retry(_, delay) = &mut ending {
        *delay = (*delay).max(DELAY);
    }
    let fence = claim::Fence {
        process_id: held.registration.id,
        claim_id: held.job.claim_id,
    };
    let ended = insist(session, "end a job", |conn| {
        end::end(conn, fence, &ending, held.ran(), FinishedRow::Keep)
    });
    count_end(session, held, ended);
}

/// Fails an at-most-once job that a stop cuts off, because its effects are unknown.
fn fail_interrupted(held: &InFlightJob, session: &mut Session) {
    let failure = JobFailure::outcome_unknown("stopped");
    let message = failure.message.clone();
    let fence = claim::Fence {
        process_id: held.registration.id,
        claim_id: held.job.claim_id,
    };
    let ending = outcome::Ending::Fail(failure);
    let ended = insist(session, "fail a job", |conn| {
        end::end(conn, fence, &ending, held.ran(), FinishedRow::Keep)
    });
    if matches!(ended, Ok(Some(_))) {
        count_end(session, held, ended);
        session.subscriber().emit(&Event::Failed {
            job: JobId(held.job.job_id),
            class: &held.job.class_name,
            queue: &held.job.queue_name,
            attempt: held.job.attempt(),
            claim: held.job.claim_id,
            ran: held.ran(),
            kind: "outcome_unknown",
            message: &message,
        });
    }
}

/// Counts a job whose run was ended although it continues.
fn count_end(
    session: &Session,
    held: &InFlightJob,
    ended: Result<Option<outcome::Ending>, Duration>,
) {
    let ending = ended.ok().flatten();
    if let Some(end) = ending.as_ref().and_then(CountedEnd::of) {
        completion::count(session.history(), &held.job, &held.live, held.ran(), end);
    }
}

/// Returns a function to call after each heartbeat. Every third time it releases the claims that
/// the database holds for this process and its memory does not: the answer to their COMMIT was
/// lost, so no thread ever received them.
pub(crate) fn reconciler(
    in_flight: &Arc<InFlight>,
) -> impl FnMut(&mut Session, &[Arc<Registration>]) + use<> {
    let in_flight = Arc::clone(in_flight);
    let mut heartbeats = 0_u32;
    move |session, registrations| {
        heartbeats += 1;
        if heartbeats < 3 || mutant::is("no_reconciliation") {
            return;
        }
        // A claim under way is not waited for; the next heartbeat tries again soon.
        let Some(_lock) = in_flight.try_lock_out_claims() else {
            return;
        };
        heartbeats = 0;
        for registration in registrations {
            let _ = reconcile(&in_flight, session, registration);
        }
    }
}

/// Releases claims that are in no memory, at a stop, when this process claims nothing any more.
/// Returns `true` if there were some.
pub(crate) fn strays(
    in_flight: &InFlight,
    session: &mut Session,
    registrations: &[Arc<Registration>],
) -> bool {
    let mut any = false;
    for registration in registrations {
        any |= reconcile(in_flight, session, registration) == Ok(true);
    }
    any
}

/// Releases the stray claims of one registration, while no claim is under way in this process.
/// Returns `true` if there were some.
fn reconcile(
    in_flight: &InFlight,
    session: &mut Session,
    registration: &Registration,
) -> Result<bool, Duration> {
    let held = insist(session, "read the claims", |conn| {
        claimed::held_by(conn, registration.id)
    })?;
    let strays: Vec<i64> = held
        .into_iter()
        .map(|claim| claim.claim_id)
        .filter(|claim| !in_flight.holds(*claim))
        .collect();
    let count = release(
        session,
        strays.iter().map(|claim| (registration.id, *claim)),
    );
    // The heartbeat may have released them first.
    if count > 0 {
        let why = "the answer to their claim was lost";
        session.subscriber().emit(&Event::Released { count, why });
    }
    Ok(!strays.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_belongs_to_one_process_and_has_a_bound() {
        let claims = (0..1_300).map(|claim| (1 + claim % 2, claim));
        let parts = parts(claims.chain([(3, 7)]));
        let sizes = parts.iter().map(|(process, part)| (*process, part.len()));
        let expected = [(1, 500), (1, 150), (2, 500), (2, 150), (3, 1)];
        assert_eq!(sizes.collect::<Vec<_>>(), expected);
        let of_one = parts.iter().filter(|(process, _)| *process == 1);
        assert!(
            of_one
                .flat_map(|(_, part)| part)
                .all(|claim| claim % 2 == 0)
        );
    }
}
