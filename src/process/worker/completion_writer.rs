//! The transactions that write the outcomes of jobs, and their events.

use crate::db::model::claim::{ClaimOf, Claimed, FinishedRow};
use crate::db::model::decision::KeySlots;
use crate::db::model::history::tally::CountedEnd;
use crate::db::model::outcome::{ClaimEnd, Ending};
use crate::db::table::claimed::EndedClaims;
use crate::db::table::jobs;
use crate::db::transition::{end, faults, finish};
use crate::db::{Conn, LockWait, Precedence, with_lock_wait};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::JobId;
use crate::job::perform::Outcome;
use crate::process::base::context::ProcessContext;
use crate::process::base::session::Session;
use crate::process::worker;
use crate::process::worker::completion::{
    self, CompletedRun, CompletionKind, PendingCompletion, fence,
};
use crate::process::worker::in_flight::{InFlight, store_logs};
use crate::process::worker::slot_passing::{PassOn, SlotPassing};
use crate::{clock, mutant};
use diesel::QueryResult;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a job whose class this worker does not know is left to others.
const UNKNOWN_CLASS_DELAY: Duration = Duration::from_secs(30);

/// Writes groups of outcomes, and emits an event for each.
pub(crate) struct CompletionWriter {
    pub(crate) session: Session,
    in_flight: Arc<InFlight>,
    passing: SlotPassing,
    subscriber: Subscriber,
    /// The time at which a job thread has written last.
    wrote_at: Option<Instant>,
}

impl CompletionWriter {
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        passing: SlotPassing,
    ) -> Self {
        let mut session = Session::of_loop(context, "finisher");
        session.precedence = Precedence::First;
        CompletionWriter {
            session,
            in_flight: Arc::clone(in_flight),
            passing,
            subscriber: context.subscriber.clone(),
            wrote_at: None,
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
        self.store_logs(group);
        let kind = completion::kind(first);
        let busy = match &first.run.outcome {
            Outcome::Finished(_) => return self.finish(group, kind, wait),
            Outcome::Ended(_) => self.end(group, kind, wait)?,
            Outcome::UnknownClass | Outcome::NewerVersion => {
                self.leave(first, wait)?;
                Vec::new()
            }
        };
        // A slot is free, or a batch over. Other processes would promote the next job too, but later.
        if kind.may_promote() {
            self.session.promote();
        }
        Ok(busy)
    }

    /// Stores what the jobs have logged before their ends, so that it is there once they have ended.
    /// The ends do not depend on it.
    fn store_logs(&mut self, group: &[PendingCompletion]) {
        let logging = group.iter().map(|pending| &pending.run).filter(|run| {
            run.live.log.has_news() && (run.finished == FinishedRow::Keep || run.traces().is_none())
        });
        let runs = logging.map(|run| (&*run.job, run.registration.id, &*run.live));
        store_logs(&mut self.session, runs);
    }

    /// Writes successes of one kind, and passes their slots on.
    fn finish(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
    ) -> Result<Vec<i64>, Duration> {
        if kind.is_limited && !is_repeated(group) {
            let registration = group.first().map(|first| &first.run.registration);
            let (passing, session) = (&mut self.passing, &mut self.session);
            let pass = registration.and_then(|one| passing.begin(one, &self.in_flight, session));
            if let Some(pass) = pass {
                return self.finish_and_pass(group, kind, wait, pass);
            }
        }
        let slots = KeySlots::of(kind.is_limited);
        let work = |conn: &mut Conn<'_>| write_finished(conn, group, kind, slots);
        let ended = self
            .session
            .run("finish jobs", |conn| with_lock_wait(conn, wait, work))?;
        self.report(group, &ended);
        if kind.may_promote() {
            self.session.promote();
        }
        Ok(ended.busy)
    }

    /// Writes successes, and sends the jobs that have taken their slots to the threads.
    fn finish_and_pass(
        &mut self,
        group: &[PendingCompletion],
        kind: CompletionKind,
        wait: LockWait,
        pass: PassOn,
    ) -> Result<Vec<i64>, Duration> {
        let in_flight = Arc::clone(&self.in_flight);
        // As with every claim, the jobs are in memory before the lock is released.
        let claim_lock = in_flight.claim_lock();
        let slots = KeySlots::PassOn(&pass.next, pass.equal);
        let work = |conn: &mut Conn<'_>| write_finished(conn, group, kind, slots);
        let written = self
            .session
            .run("finish jobs", |conn| with_lock_wait(conn, wait, work));
        let mut ended = match written {
            Ok(ended) => ended,
            Err(delay) => {
                self.passing.pause();
                return Err(delay);
            }
        };
        let jobs = std::mem::take(&mut ended.next.jobs).into_iter();
        let jobs: Vec<Arc<Claimed>> = jobs.map(Arc::new).collect();
        in_flight.enter(&jobs, &pass.registration);
        drop(claim_lock);
        let threads = group.iter().filter_map(|one| one.run.thread.as_ref());
        let passed = threads.take(jobs.len()).filter(|thread| thread.pass_on());
        let passed = passed.count();
        self.report(group, &ended);
        self.passing.end(pass, jobs, passed);
        // A stop that began meanwhile may have looked for claims to release before.
        if self.passing.claims_no_more(&in_flight) {
            worker::release::unstarted(&in_flight, &mut self.session);
        } else if ended.next.has_requested || kind.has_followers {
            self.session.promote();
        }
        Ok(ended.busy)
    }

    /// Removes the claims that have ended, and reports the jobs.
    fn report(&self, group: &[PendingCompletion], ended: &EndedClaims) {
        // After a repetition, some may be among the accepted ones twice.
        let are_all = ended.accepted.len() == group.len() && !is_repeated(group);
        let accepted: HashSet<i64> = match are_all {
            true => HashSet::new(),
            false => ended.accepted.iter().copied().collect(),
        };
        self.remove_written(group, &ended.busy);
        for PendingCompletion { run, .. } in group {
            let claim = run.job.claim_id;
            if are_all || accepted.contains(&claim) {
                self.report_finished(run);
            } else if !ended.busy.contains(&claim) {
                self.report_fenced(&run.job);
            }
        }
    }

    /// Removes the claims from those in flight that are not tried again.
    fn remove_written(&self, group: &[PendingCompletion], busy: &[i64]) {
        let claims = group.iter().map(PendingCompletion::claim);
        let written: Vec<i64> = claims.filter(|claim| !busy.contains(claim)).collect();
        self.in_flight.remove(&written);
        let written = group.iter().filter(|one| !busy.contains(&one.claim()));
        written.for_each(|one| one.run.free_thread());
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
        self.remove_written(group, &busy);
        let mut released: BTreeMap<String, usize> = BTreeMap::new();
        for (PendingCompletion { run, .. }, written) in group.iter().zip(written) {
            match written {
                WrittenCompletion::Ended(Ending::Release(why, _)) => {
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

    /// Releases a job whose class is not registered here, or only an older version of its arguments,
    /// for other workers.
    fn leave(&mut self, pending: &PendingCompletion, wait: LockWait) -> Result<(), Duration> {
        let fence = fence(&pending.run);
        let delay = Some(clock::jittered(UNKNOWN_CLASS_DELAY));
        let work = |conn: &mut Conn<'_>| {
            let released = end::release(conn, fence.process_id, &[fence.claim_id], delay)?;
            Ok(!released.is_empty() || was_accepted(conn, pending)?)
        };
        let accepted = self
            .session
            .run("release a job", |conn| with_lock_wait(conn, wait, work))?;
        self.in_flight.remove(&[fence.claim_id]);
        if accepted {
            self.subscriber.emit(&Event::Released {
                count: 1,
                why: match pending.run.outcome {
                    Outcome::NewerVersion => {
                        "its arguments are of a newer version than this program knows"
                    }
                    _ => "its class is not known here",
                },
            });
        } else {
            self.report_fenced(&pending.run.job);
        }
        Ok(())
    }

    fn report_finished(&self, run: &CompletedRun) {
        self.count(run, CountedEnd::Finished);
        self.subscriber.emit(&Event::Finished {
            job: JobId(run.job.job_id),
            class: &run.job.class_name,
            queue: &run.job.queue_name,
            attempt: run.job.attempt(),
            claim: run.job.claim_id,
            ran: run.ran,
        });
    }

    fn count(&self, run: &CompletedRun, end: CountedEnd) {
        completion::count(self.session.history(), &run.job, &run.live, run.ran, end);
    }

    fn report_ended(&self, run: &CompletedRun, ending: &Ending) {
        if let Some(end) = CountedEnd::of(ending) {
            self.count(run, end);
        }
        self.subscriber.emit(&run.event_of(ending));
    }

    /// Reports a claim that was lost. This is not an error: the job was recovered
    /// and belongs to another process.
    fn report_fenced(&self, job: &Claimed) {
        self.subscriber.emit(&Event::Fenced {
            job: JobId(job.job_id),
            class: &job.class_name,
            queue: &job.queue_name,
            attempt: job.attempt(),
            claim: job.claim_id,
        });
    }
}

// --- The writer of a worker, for its completer, and for a thread that has run the only job under way ---

/// A writer that one thread uses at a time.
pub(crate) struct SharedWriter(Mutex<CompletionWriter>);

impl SharedWriter {
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        passing: SlotPassing,
    ) -> Self {
        SharedWriter(Mutex::new(CompletionWriter::new(
            context, in_flight, passing,
        )))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CompletionWriter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the outcome of a limited job on the thread that has run it, which runs the next job of the key as well: it costs
    /// no switch of threads. Returns the outcome if it is left to the completer.
    pub(crate) fn write_here(&self, run: CompletedRun) -> Option<PendingCompletion> {
        let mut pending = completion::pending(run);
        let Ok(mut writer) = self.0.try_lock() else {
            return Some(pending);
        };
        writer.passing.is_on_job_thread = true;
        let written = writer.write(std::slice::from_ref(&pending), LockWait::Default);
        writer.passing.is_on_job_thread = false;
        writer.wrote_at = Some(clock::instant());
        writer.session.rests();
        pending.tries += u32::from(written.is_err());
        let is_written = written.is_ok_and(|busy| busy.is_empty());
        (!is_written).then_some(pending)
    }

    /// Closes the connection to a server, if no thread has written for a while. Returns `false` if one has.
    pub(crate) fn leave_server(&self, idle: Duration) -> bool {
        let mut writer = self.lock();
        let is_idle = writer.wrote_at.is_none_or(|at| at.elapsed() >= idle);
        if is_idle {
            writer.session.leave_server();
        }
        is_idle
    }
}

// --- The work of one transaction on a group of outcomes ---

/// The result of writing an outcome that is not a success.
pub(crate) enum WrittenCompletion {
    Ended(Ending),
    /// The job has ended its claim itself, in its own transaction.
    Finished,
    /// The claim belongs to the process no longer.
    Fenced,
    /// Another transaction has locked the claim.
    Busy,
}

impl WrittenCompletion {
    /// Returns whether an interrupted run can end in this way.
    pub(crate) fn is_cut_short(&self) -> bool {
        matches!(
            self,
            WrittenCompletion::Ended(Ending::Release(..) | Ending::Fail(_))
        )
    }
}

/// Returns whether an earlier attempt may have ended some of the claims, or the jobs themselves.
pub(crate) fn is_repeated(group: &[PendingCompletion]) -> bool {
    group
        .iter()
        .any(|pending| pending.tries > 0 || pending.run.live.ends_itself())
}

/// Writes successes of one kind.
pub(crate) fn write_finished(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
    slots: KeySlots<'_>,
) -> QueryResult<EndedClaims> {
    let process_id = kind.process_id;
    let claims: Vec<i64> = group.iter().map(PendingCompletion::claim).collect();
    let pairs: Vec<ClaimOf> = group.iter().map(PendingCompletion::pair).collect();
    if mutant::is("finish_without_fence") {
        faults::finish_unfenced(conn, &pairs)?;
        return Ok(EndedClaims {
            accepted: claims,
            ..EndedClaims::default()
        });
    }
    let ended = ended_by_jobs(conn, group, kind)?;
    let mut written = if ended.len() == group.len() {
        EndedClaims::default()
    } else if kind.leaves_traces {
        let open = group.iter().filter(|one| !ended.contains(&one.claim()));
        let traces = open.filter_map(|pending| pending.run.traces());
        finish::finish_and_keep_free(conn, process_id, traces.collect(), kind.finished, slots)?
    } else {
        let mut open = claims;
        open.retain(|claim| !ended.contains(claim));
        finish::finish_free(conn, process_id, &open, kind.finished, slots)?
    };
    written.accepted.extend(&ended);
    if is_repeated(group) && written.accepted.len() < group.len() {
        let accepted = &mut written.accepted;
        accepted.extend(already_ended(conn, &pairs, accepted)?);
        if kind.finished == FinishedRow::Delete {
            accepted.extend(jobs::claims_without_job(conn, &pairs)?);
        }
    }
    Ok(written)
}

/// Returns the claims that jobs have ended themselves, whose row names them: nearly always all of those
/// that jobs tried to end. A deleted row names nothing, so those are ended like others first.
fn ended_by_jobs(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
) -> QueryResult<Vec<i64>> {
    let own = group
        .iter()
        .filter(|pending| pending.run.live.ends_itself());
    let own: Vec<ClaimOf> = own.map(PendingCompletion::pair).collect();
    if own.is_empty() || kind.finished == FinishedRow::Delete {
        return Ok(Vec::new());
    }
    jobs::ended_claims(conn, &own)
}

/// Writes outcomes of one kind that are not successes. Returns what became of
/// each, and the claims that another transaction has locked.
pub(crate) fn write_ended(
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

/// Returns whether the database accepted an earlier attempt whose answer was lost.
pub(crate) fn was_accepted(conn: &mut Conn<'_>, pending: &PendingCompletion) -> QueryResult<bool> {
    if pending.tries == 0 {
        return Ok(false);
    }
    match pending.run.finished {
        FinishedRow::Keep => Ok(!already_ended(conn, &[pending.pair()], &[])?.is_empty()),
        FinishedRow::Delete => jobs::ended_by_owner(conn, pending.pair()),
    }
}

/// Returns whether the job has ended its claim itself, in a transaction that was committed. In that
/// case the value that the job returned does not count.
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
