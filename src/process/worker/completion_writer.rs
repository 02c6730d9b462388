//! The transactions that write the outcomes of jobs, and their events.

use crate::db::model::claim::ClaimOf;
use crate::db::transition::end;
use crate::db::transition::finish::KeySlots;

use crate::db::model::claim::{Claimed, FinishedRow};
use crate::db::model::outcome::{ClaimEnd, Ending};
use crate::db::table::jobs;
use crate::db::transition::{finish, release};
use crate::db::{Conn, LockWait, with_lock_wait};
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::job::id::JobId;
use crate::job::perform::Outcome;
use crate::process::base::context::ProcessContext;
use crate::process::base::session::Session;
use crate::process::worker::completion::{
    self, CompletedRun, CompletionKind, PendingCompletion, fence,
};
use crate::process::worker::in_flight::InFlight;
use crate::{clock, mutant};
use diesel::QueryResult;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a class that this worker does not know is left to others.
const UNKNOWN_CLASS_DELAY: Duration = Duration::from_secs(30);

/// Writes groups of outcomes, and emits an event for each.
pub(crate) struct CompletionWriter {
    pub(crate) session: Session,
    in_flight: Arc<InFlight>,
    subscriber: Subscriber,
}

/// What became of an outcome that is not a success.
enum WrittenCompletion {
    Ended(Ending),
    /// The job has ended its claim itself, in its own transaction.
    Finished,
    /// The claim belongs to the process no longer.
    Fenced,
    /// Another transaction has locked the claim.
    Busy,
}

impl WrittenCompletion {
    /// Whether this can be how an interrupted run ends.
    fn is_cut_short(&self) -> bool {
        matches!(
            self,
            WrittenCompletion::Ended(Ending::Release(_) | Ending::Fail(_))
        )
    }
}

impl CompletionWriter {
    pub(crate) fn new(context: &ProcessContext, in_flight: &Arc<InFlight>) -> Self {
        CompletionWriter {
            session: Session::new(context),
            in_flight: Arc::clone(in_flight),
            subscriber: context.subscriber.clone(),
        }
    }

    /// Writes a group of one kind, and returns the claims that another
    /// transaction has locked.
    ///
    /// # Errors
    ///
    /// Returns the pause before the next attempt if the group was not written.
    pub(crate) fn write(
        &mut self,
        group: &[PendingCompletion],
        wait: LockWait,
    ) -> Result<Vec<i64>, Duration> {
        let Some(first) = group.first() else {
            return Ok(Vec::new());
        };
        let kind = completion::kind(first);
        let busy = match &first.run.outcome {
            Outcome::Finished(_) => self.finish(group, kind, wait)?,
            Outcome::Ended(_) => self.end(group, kind, wait)?,
            Outcome::UnknownClass => {
                self.leave(first, wait)?;
                Vec::new()
            }
        };
        // A slot is free. Other processes would promote the next job too, but later.
        if first.run.job.is_limited {
            self.session.promote();
        }
        Ok(busy)
    }

    /// Writes successes of one kind.
    fn finish(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
    ) -> Result<Vec<i64>, Duration> {
        let work = |conn: &mut Conn<'_>| write_finished(conn, group, kind);
        let (accepted, busy) = self
            .session
            .run("finish jobs", |conn| with_lock_wait(conn, wait, work))?;
        let accepted: HashSet<i64> = accepted.into_iter().collect();
        self.settle(group, &busy);
        for PendingCompletion { run, .. } in group {
            let claim = run.job.claim_id;
            if accepted.contains(&claim) {
                self.report_finished(run);
            } else if !busy.contains(&claim) {
                self.report_fenced(&run.job);
            }
        }
        Ok(busy)
    }

    /// Removes the claims from those in flight that are not tried again.
    fn settle(&self, group: &[PendingCompletion], busy: &[i64]) {
        let claims = group.iter().map(PendingCompletion::claim);
        let settled: Vec<i64> = claims.filter(|claim| !busy.contains(claim)).collect();
        self.in_flight.remove(&settled);
    }

    /// Writes outcomes of one kind that are not successes.
    fn end(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
    ) -> Result<Vec<i64>, Duration> {
        let work = |conn: &mut Conn<'_>| write_ended(conn, group, kind);
        let (written, busy) = self
            .session
            .run("end jobs", |conn| with_lock_wait(conn, wait, work))?;
        // Noted before the claims are removed, because a stop reads both.
        for (PendingCompletion { run, .. }, written) in group.iter().zip(&written) {
            if run.live.is_cut_short() && written.is_cut_short() {
                self.in_flight.note_cut_short(run.job.job_id);
            }
        }
        self.settle(group, &busy);
        let mut released: BTreeMap<String, usize> = BTreeMap::new();
        for (PendingCompletion { run, .. }, written) in group.iter().zip(written) {
            match written {
                WrittenCompletion::Ended(Ending::Release(why)) => {
                    *released.entry(why).or_default() += 1;
                }
                WrittenCompletion::Ended(ending) => self.report_ended(run, &ending),
                WrittenCompletion::Finished => self.report_finished(run),
                WrittenCompletion::Fenced => self.report_fenced(&run.job),
                WrittenCompletion::Busy => {}
            }
        }
        for (why, count) in &released {
            self.subscriber
                .emit(&Event::Released { count: *count, why });
        }
        Ok(busy)
    }

    /// Releases a job whose class is not registered here, for other workers.
    fn leave(&mut self, pending: &PendingCompletion, wait: LockWait) -> Result<(), Duration> {
        let fence = fence(&pending.run);
        let delay = Some(clock::jittered(UNKNOWN_CLASS_DELAY));
        let work = |conn: &mut Conn<'_>| {
            let released = release::release(conn, fence.process_id, &[fence.claim_id], delay)?;
            Ok(!released.is_empty() || was_accepted(conn, pending)?)
        };
        let accepted = self
            .session
            .run("release a job", |conn| with_lock_wait(conn, wait, work))?;
        self.in_flight.remove(&[fence.claim_id]);
        if accepted {
            self.subscriber.emit(&Event::Released {
                count: 1,
                why: "its class is not known here",
            });
        } else {
            self.report_fenced(&pending.run.job);
        }
        Ok(())
    }

    fn report_finished(&self, run: &CompletedRun) {
        self.subscriber.emit(&Event::Finished {
            job: JobId(run.job.job_id),
            class: &run.job.class_name,
            ran: run.ran,
        });
    }

    fn report_ended(&self, run: &CompletedRun, ending: &Ending) {
        let (job, class, ran) = (JobId(run.job.job_id), &*run.job.class_name, run.ran);
        self.subscriber.emit(&match ending {
            Ending::Fail(failure) => Event::Failed {
                job,
                class,
                ran,
                kind: &failure.kind,
                message: &failure.message,
            },
            Ending::Retry(failure, delay) => Event::Retried {
                job,
                class,
                ran,
                kind: &failure.kind,
                message: &failure.message,
                delay: *delay,
            },
            Ending::Discard(failure) => Event::Discarded {
                job,
                class,
                kind: &failure.kind,
                message: &failure.message,
            },
            Ending::Cancel(_) => Event::Cancelled { job, class },
            Ending::Snooze(delay) => Event::Snoozed {
                job,
                class,
                delay: *delay,
            },
            // Releases are reported in bulk, without their jobs.
            Ending::Release(why) => Event::Released { count: 1, why },
        });
    }

    /// Reports a claim that was lost. This is not an error: the job was recovered
    /// and belongs to another process.
    fn report_fenced(&self, job: &Claimed) {
        self.subscriber.emit(&Event::Fenced {
            job: JobId(job.job_id),
            claim: job.claim_id,
        });
    }
}

/// Writes successes of one kind. Returns the claims that were accepted, and
/// those that another transaction has locked.
fn write_finished(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
) -> QueryResult<(Vec<i64>, Vec<i64>)> {
    let process_id = kind.process_id;
    let slots = KeySlots::held_if(kind.is_limited);
    let claims: Vec<i64> = group.iter().map(PendingCompletion::claim).collect();
    let pairs: Vec<ClaimOf> = group.iter().map(PendingCompletion::pair).collect();
    if mutant::is("finish_without_fence") {
        finish::finish_unfenced(conn, &pairs)?;
        return Ok((claims, Vec::new()));
    }
    let written = if kind.leaves_traces {
        let traces = group.iter().filter_map(|pending| pending.run.traces());
        finish::finish_and_keep_free(conn, process_id, traces.collect(), kind.finished, slots)?
    } else {
        finish::finish_free(conn, process_id, &claims, kind.finished, slots)?
    };
    let mut accepted = written.accepted;
    let repeated = group
        .iter()
        .any(|pending| pending.tries > 0 || pending.run.live.ends_itself());
    if repeated {
        accepted.extend(already_ended(conn, &pairs, &accepted)?);
    }
    if repeated && kind.finished == FinishedRow::Delete {
        accepted.extend(jobs::claims_without_job(conn, &pairs)?);
    }
    Ok((accepted, written.busy))
}

/// Writes outcomes of one kind that are not successes. Returns what became of
/// each, and the claims that another transaction has locked.
fn write_ended(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
) -> QueryResult<(Vec<WrittenCompletion>, Vec<i64>)> {
    let ends: Vec<ClaimEnd<'_>> = group.iter().filter_map(PendingCompletion::end).collect();
    let done = end::end_free(conn, kind.process_id, &ends, kind.finished)?;
    let busy = done.busy;
    let done = done.ended.into_iter();
    let mut done: HashMap<i64, Ending> = done.map(|end| (end.claim_id, end.ending)).collect();
    let written = |pending: &PendingCompletion| {
        Ok(match (done.remove(&pending.claim()), pending.end()) {
            (Some(ending), _) => WrittenCompletion::Ended(ending),
            _ if busy.contains(&pending.claim()) => WrittenCompletion::Busy,
            _ if finished_itself(conn, pending)? => WrittenCompletion::Finished,
            (_, Some(end)) if was_accepted(conn, pending)? => {
                WrittenCompletion::Ended(end.ending.clone())
            }
            _ => WrittenCompletion::Fenced,
        })
    };
    let written = group.iter().map(written).collect::<QueryResult<Vec<_>>>()?;
    Ok((written, busy))
}

/// Whether the database accepted an earlier attempt whose answer was lost.
fn was_accepted(conn: &mut Conn<'_>, pending: &PendingCompletion) -> QueryResult<bool> {
    if pending.tries == 0 {
        return Ok(false);
    }
    match pending.run.finished {
        FinishedRow::Keep => Ok(!already_ended(conn, &[pending.pair()], &[])?.is_empty()),
        FinishedRow::Delete => jobs::ended_by_owner(conn, pending.pair()),
    }
}

/// Whether the job has ended its claim itself, in a transaction that was
/// committed. In that case the value that the job returned does not count.
fn finished_itself(conn: &mut Conn<'_>, pending: &PendingCompletion) -> QueryResult<bool> {
    Ok(pending.run.live.ends_itself() && jobs::ended_by_owner(conn, pending.pair())?)
}

/// Returns those of the claims that were not accepted which this process has ended
/// before, in a transaction whose COMMIT got no answer.
fn already_ended(
    conn: &mut Conn<'_>,
    pairs: &[ClaimOf],
    accepted: &[i64],
) -> QueryResult<Vec<i64>> {
    let open: Vec<ClaimOf> = pairs
        .iter()
        .filter(|claim| !accepted.contains(&claim.claim_id))
        .copied()
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    jobs::ended_claims(conn, &open)
}
