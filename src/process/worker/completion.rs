//! Outcomes of jobs, sorted into groups that one transaction can write.

use crate::clock;
use crate::db::Conn;
use crate::db::model::claim::{ClaimOf, Claimed, Fence, FinishedRow};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::db::model::outcome::{ClaimEnd, Ending, JobFailure, NewOutput};
use crate::db::table::classes;
use crate::db::transition::{end, finish};
use crate::event::Event;
use crate::job::JobId;
use crate::job::perform::Outcome;
use crate::job::registry::Registry;
use crate::job::running::Live;
use crate::process::base::history::HistoryCollector;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::worker::in_flight::ReservedThread;
use chrono::NaiveDateTime;
use diesel::QueryResult;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest pause before an outcome is tried again whose claim is locked, or
/// which a database that answers has refused.
const LONGEST_DEFERRAL: Duration = Duration::from_secs(5);

/// The most outcomes other than successes in one transaction, whose number of statements is the
/// same for one as for all. A request to cancel one of these jobs waits for the whole transaction.
const FEW: usize = 500;

/// A run that a thread has finished.
pub(crate) struct CompletedRun {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) outcome: Outcome,
    pub(crate) ran: Duration,
    /// The treatment of the job's row once the job has finished.
    pub(crate) finished: FinishedRow,
    /// The time for which the result is kept, if the job sets that.
    pub(crate) keep_result: Option<Duration>,
    /// The time, by the database's clock, after which no further attempt may be due.
    pub(crate) last_retry: Option<NaiveDateTime>,
    pub(crate) live: Arc<Live>,
    /// The thread of a limited job, which is free once the outcome is written or put aside.
    pub(crate) thread: Option<ReservedThread>,
}

impl CompletedRun {
    /// Returns what the job leaves behind if it has succeeded.
    pub(crate) fn traces(&self) -> Option<FinishedJob<'_>> {
        self.traces_of(&self.outcome)
    }

    /// Returns whether something may wait for its outcome: a thread, a batch, other jobs, or what reads its result.
    pub(crate) fn is_awaited(&self) -> bool {
        let is_success = matches!(self.outcome, Outcome::Finished(_));
        !is_success || self.keep_result.is_some() || self.job.is_awaited()
    }

    /// Frees the thread, if it is reserved for the next job of the key.
    pub(crate) fn free_thread(&self) {
        if let Some(thread) = &self.thread {
            thread.free();
        }
    }

    fn traces_of<'a>(&'a self, outcome: &'a Outcome) -> Option<FinishedJob<'a>> {
        let Outcome::Finished(output) = outcome else {
            return None;
        };
        Some(FinishedJob::new(
            &self.job,
            NewOutput {
                text: output.text.as_deref(),
                problem: output.problem.as_deref(),
            },
            self.keep_result,
            self.live.has_steps(),
        ))
    }
}

/// Writes an outcome on the thread that has run the job. Returns it if it is left to the completer.
pub(crate) type WriteHere = Box<dyn Fn(CompletedRun) -> Option<PendingCompletion> + Send + Sync>;

/// An outcome that is to be written.
pub(crate) struct PendingCompletion {
    pub(crate) run: CompletedRun,
    /// Failed attempts to write it. The database may have accepted one of them
    /// although the answer was lost.
    pub(crate) tries: u32,
    /// The number of times it was put aside: refused alone, or with a locked claim.
    refusals: u32,
    /// The time of the next attempt, once it was put aside.
    pub(crate) again_at: Option<Instant>,
}

/// The properties that all outcomes of one group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletionKind {
    pub(crate) process_id: i64,
    pub(crate) finished: FinishedRow,
    pub(crate) leaves_traces: bool,
    pub(crate) is_limited: bool,
    /// True if other jobs may wait for the jobs, or for their batches.
    pub(crate) has_followers: bool,
}

impl CompletionKind {
    /// Returns whether the end of such a job may let a blocked job run.
    pub(crate) fn may_promote(self) -> bool {
        self.is_limited || self.has_followers
    }
}

impl PendingCompletion {
    pub(crate) fn claim(&self) -> i64 {
        self.run.job.claim_id
    }

    /// Returns what is to be written if the job has not succeeded.
    pub(crate) fn end(&self) -> Option<ClaimEnd<'_>> {
        match &self.run.outcome {
            Outcome::Ended(ending) => Some(ClaimEnd {
                claim_id: self.claim(),
                ending,
                ran: self.run.ran,
                last_retry: self.run.last_retry,
            }),
            Outcome::Finished(_) | Outcome::UnknownClass | Outcome::NewerVersion => None,
        }
    }

    /// Returns whether it was put aside before.
    pub(crate) fn was_refused(&self) -> bool {
        self.refusals > 0
    }

    /// The claim and the job.
    pub(crate) fn pair(&self) -> ClaimOf {
        ClaimOf {
            claim_id: self.run.job.claim_id,
            job_id: self.run.job.job_id,
        }
    }
}

/// Makes an outcome pending that was not tried yet.
pub(crate) fn pending(run: CompletedRun) -> PendingCompletion {
    PendingCompletion {
        run,
        tries: 0,
        refusals: 0,
        again_at: None,
    }
}

/// Drops the text of an outcome, which may be what the database refuses.
pub(crate) fn drop_text(outcome: &mut Outcome) {
    match outcome {
        Outcome::Ended(ending) => ending.drop_text(),
        Outcome::Finished(output) => output.drop_text(),
        Outcome::UnknownClass | Outcome::NewerVersion => {}
    }
}

/// Writes one run as if its outcome were `outcome`.
pub(crate) fn write(conn: &mut Conn<'_>, run: &CompletedRun, outcome: &Outcome) -> QueryResult<()> {
    let fence = fence(run);
    if let Outcome::Ended(ending) = outcome {
        let end = ClaimEnd {
            claim_id: fence.claim_id,
            ending,
            ran: run.ran,
            last_retry: run.last_retry,
        };
        end::end_all(conn, fence.process_id, &[end], run.finished)?;
    } else if let Some(job) = run.traces_of(outcome) {
        let slots = KeySlots::of(run.job.is_limited);
        finish::finish_and_keep(conn, fence.process_id, vec![job], run.finished, slots)?;
    }
    Ok(())
}

/// Lets an outcome be tried again after a pause that grows each time.
pub(crate) fn put_aside(mut pending: PendingCompletion) -> PendingCompletion {
    pending.refusals += 1;
    pending.run.free_thread();
    let pause = Duration::from_millis(50 << pending.refusals.min(10));
    pending.again_at = Some(clock::instant() + clock::jittered(pause.min(LONGEST_DEFERRAL)));
    pending
}

pub(crate) fn fence(run: &CompletedRun) -> Fence {
    Fence {
        process_id: run.registration.id,
        claim_id: run.job.claim_id,
    }
}

/// Sorts outcomes into groups: first all successes of each kind, then the other
/// outcomes of each kind in small groups.
///
/// Each outcome that was put aside before is alone, so that it does not hold up
/// others again. So is each job that this program cannot perform.
pub(crate) fn grouped(chunk: Vec<PendingCompletion>) -> Vec<Vec<PendingCompletion>> {
    // The case for most chunks, which are large.
    if let Some(first) = chunk.first() {
        let of_first = kind(first);
        let is_alike = |one: &PendingCompletion| {
            let is_success = matches!(one.run.outcome, Outcome::Finished(_));
            is_success && one.refusals == 0 && kind(one) == of_first
        };
        if chunk.iter().all(is_alike) {
            return vec![chunk];
        }
    }
    let (single, rest): (Vec<_>, Vec<_>) = chunk
        .into_iter()
        .partition(|pending| pending.refusals > 0 || pending.run.outcome.is_for_others());
    let (finished, others): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .partition(|pending| matches!(pending.run.outcome, Outcome::Finished(_)));
    let mut groups = alike(finished, usize::MAX);
    groups.extend(alike(others, FEW));
    groups.extend(single.into_iter().map(|pending| vec![pending]));
    groups
}

/// Groups the outcomes by kind, at most `most` in each group.
fn alike(mut all: Vec<PendingCompletion>, most: usize) -> Vec<Vec<PendingCompletion>> {
    let mut groups = Vec::new();
    while let Some(first) = all.first() {
        let of_first = kind(first);
        let (mut same, rest): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|pending| kind(pending) == of_first);
        while same.len() > most {
            groups.push(same.drain(..most).collect());
        }
        groups.push(same);
        all = rest;
    }
    groups
}

/// Returns the kind of an outcome: outcomes of the same kind can be in one group.
pub(crate) fn kind(pending: &PendingCompletion) -> CompletionKind {
    let run = &pending.run;
    CompletionKind {
        process_id: run.registration.id,
        finished: run.finished,
        leaves_traces: run.traces().is_some_and(|job| job.leaves_traces()),
        is_limited: run.job.is_limited,
        has_followers: run.job.batch_id.is_some() || run.job.has_dependents,
    }
}

impl CompletedRun {
    /// Returns the event of a run that did not succeed.
    pub(crate) fn event_of<'e>(&'e self, ending: &'e Ending) -> Event<'e> {
        let (job, class, ran) = (JobId(self.job.job_id), &*self.job.class_name, self.ran);
        let (queue, claim) = (&*self.job.queue_name, self.job.claim_id);
        let attempt = self.job.attempt();
        match ending {
            Ending::Fail(failure) => Event::Failed {
                job,
                class,
                queue,
                attempt,
                claim,
                ran,
                kind: &failure.kind,
                message: &failure.message,
            },
            Ending::Retry(failure, delay) => Event::Retried {
                job,
                class,
                queue,
                attempt,
                claim,
                ran,
                kind: &failure.kind,
                message: &failure.message,
                delay: *delay,
            },
            Ending::Discard(failure) | Ending::Expire(failure) => discarded(&self.job, failure),
            Ending::Cancel(_) => Event::Cancelled {
                job,
                class,
                queue,
                attempt,
                claim,
            },
            Ending::Snooze(delay) | Ending::RateLimited(delay) => Event::Snoozed {
                job,
                class,
                queue,
                attempt,
                claim,
                delay: *delay,
            },
            Ending::Park(wait) => parked(&self.job, &wait.step),
            Ending::GiveBack { .. } => released(UNANSWERED),
            // Releases are reported in bulk, without their jobs.
            Ending::Release(why, _) => released(why),
        }
    }
}

/// Why jobs are given back whose calls of Windlass failed.
const UNANSWERED: &str = "the database did not answer a statement of Windlass in the job";

fn released(why: &str) -> Event<'_> {
    Event::Released { count: 1, why }
}

fn parked<'r>(held: &'r Claimed, step: &'r str) -> Event<'r> {
    Event::Parked {
        job: JobId(held.job_id),
        class: &held.class_name,
        queue: &held.queue_name,
        attempt: held.attempt(),
        claim: held.claim_id,
        step,
    }
}

fn discarded<'r>(held: &'r Claimed, failure: &'r JobFailure) -> Event<'r> {
    Event::Discarded {
        job: JobId(held.job_id),
        class: &held.class_name,
        queue: &held.queue_name,
        attempt: held.attempt(),
        claim: held.claim_id,
        kind: &failure.kind,
        message: &failure.message,
    }
}

// --- Counts how runs end, for the history ---

/// Counts the end of a claim, whose job took `ran` if it was started.
pub(crate) fn count(
    history: &HistoryCollector,
    job: &Claimed,
    live: &Live,
    ran: Duration,
    end: CountedEnd,
) {
    let (queue, class) = (&job.queue_name, &job.class_name);
    let Some(in_memory) = live.waited() else {
        return history.add(queue, class, end);
    };
    let waited = job.waited.and_then(latency_in_database);
    let run = RunSpan {
        waited: waited.map(|waited| waited.saturating_add(in_memory)),
        ran,
    };
    history.add_run(queue, class, end, run);
}

/// The longest latency in seconds that is believed: 100 years. Other programs can store any time.
const LONGEST_LATENCY: f64 = 100.0 * 365.25 * 86_400.0;

/// Returns how long a job was ready before its claim. After the database's clock was set back, the
/// difference can be negative.
fn latency_in_database(seconds: f64) -> Option<Duration> {
    let is_time = seconds.abs() <= LONGEST_LATENCY;
    is_time.then(|| Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

// --- Stores the classes of a worker, for `windlass` and other processes ---

/// The interval at which a worker stores that it still performs its classes. A class that no worker
/// has stored for 30 days is cleared.
const EVERY: Duration = Duration::from_secs(12 * 3600);

/// Returns a function to call after each heartbeat. It stores the classes of a worker at the start
/// and every [`EVERY`]; after a failure it tries again after the next heartbeat.
pub(crate) fn recorder(registry: &Registry) -> impl FnMut(&mut Session) + use<> {
    let classes = registry.described();
    let mut written: Option<Instant> = None;
    move |session| {
        let now = clock::instant();
        if classes.is_empty() || written.is_some_and(|written| now - written < EVERY) {
            return;
        }
        let seen = session.run("name the classes", |conn| classes::see(conn, &classes));
        written = seen.is_ok().then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_no_wait() {
        let waits = [1.5, -2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e11];
        let waits = waits.map(latency_in_database);
        let second = Duration::from_millis(1_500);
        assert_eq!(
            waits,
            [Some(second), Some(Duration::ZERO), None, None, None, None]
        );
    }
}
