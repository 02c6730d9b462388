//! The transactions that write the outcomes of jobs, and their events.

use crate::clock;
use crate::db::model::claim::Claimed;
use crate::db::model::outcome::Ending;
use crate::db::table::claimed::EndedClaims;
use crate::db::transition::finish::KeySlots;
use crate::db::transition::release;
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
use crate::process::worker::completion_work::{
    WrittenCompletion, is_repeated, was_accepted, write_ended, write_finished,
};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::slot_passing::SlotPassing;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a class that this worker does not know is left to others.
const UNKNOWN_CLASS_DELAY: Duration = Duration::from_secs(30);

/// Writes groups of outcomes, and emits an event for each.
pub(crate) struct CompletionWriter {
    pub(crate) session: Session,
    in_flight: Arc<InFlight>,
    passing: SlotPassing,
    subscriber: Subscriber,
}

/// Whether finished jobs have left slots for a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotsAfter {
    Free,
    Taken,
}

impl SlotsAfter {
    fn free_if(is_free: bool) -> Self {
        if is_free {
            SlotsAfter::Free
        } else {
            SlotsAfter::Taken
        }
    }
}

impl CompletionWriter {
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        passing: SlotPassing,
    ) -> Self {
        CompletionWriter {
            session: Session::new(context),
            in_flight: Arc::clone(in_flight),
            passing,
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
            Outcome::Finished(_) => return self.finish(group, kind, wait),
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

    /// Writes successes of one kind, and passes their slots on.
    fn finish(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
    ) -> Result<Vec<i64>, Duration> {
        let (EndedClaims { accepted, busy, .. }, slots) = self.end_finished(group, kind, wait)?;
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
        if slots == SlotsAfter::Free {
            self.session.promote();
        }
        Ok(busy)
    }

    /// Ends the claims of successes, and sends the jobs that have taken their slots to the threads.
    fn end_finished(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
    ) -> Result<(EndedClaims, SlotsAfter), Duration> {
        let in_flight = Arc::clone(&self.in_flight);
        let may_pass = kind.is_limited && !is_repeated(group);
        let pass = may_pass.then(|| self.passing.begin(&in_flight)).flatten();
        let (Some(pass), Some(first)) = (pass, group.first()) else {
            let slots = KeySlots::of(kind.is_limited, None);
            let work = |conn: &mut Conn<'_>| write_finished(conn, group, kind, slots);
            let ended = self
                .session
                .run("finish jobs", |conn| with_lock_wait(conn, wait, work))?;
            return Ok((ended, SlotsAfter::free_if(kind.is_limited)));
        };
        // As with every claim, the jobs are in memory before the lock is released.
        let claim_lock = in_flight.claim_lock();
        let slots = KeySlots::PassOn(&pass.next);
        let work = |conn: &mut Conn<'_>| write_finished(conn, group, kind, slots);
        let mut ended = self
            .session
            .run("finish jobs", |conn| with_lock_wait(conn, wait, work))?;
        let jobs = std::mem::take(&mut ended.next.jobs).into_iter();
        let jobs: Vec<Arc<Claimed>> = jobs.map(Arc::new).collect();
        let registration = &first.run.registration;
        in_flight.enter(&jobs, registration);
        drop(claim_lock);
        let slots = SlotsAfter::free_if(ended.next.has_requested);
        let session = &mut self.session;
        self.passing
            .end(pass, jobs, registration, &in_flight, session);
        Ok((ended, slots))
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
