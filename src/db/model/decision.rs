//! The decisions about jobs whose claims have ended. They are made from the rows that the fence returned, before
//! anything is written.

use crate::db::conn::dialect::Lossy;
use crate::db::model::claim::{Claimed, EqualJobs, NextJobs};
use crate::db::model::outcome::{
    AttemptOutcome, EndedRun, Ending, JobFailure, NewOutput, NewResult, ParkedStep, ResultOf,
    ResultOutcome, cancelled,
};
use crate::mutant;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The next state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// It waits again: ready, or scheduled after the delay.
    Wait(Option<Duration>),
    /// It waits at a step.
    Park(ParkedStep),
    /// It has failed permanently.
    Failed(JobFailure),
    /// It was discarded or cancelled: it ends with this outcome, and is not failed.
    Ended(ResultOutcome, JobFailure),
}

/// The decision about one job whose claim has ended.
#[derive(Debug, Clone)]
pub(crate) struct JobDecision {
    pub(crate) run: EndedRun,
    pub(crate) destination: Destination,
    /// The outcome and the failure of the recorded attempt, if the run is recorded as one.
    pub(crate) attempt: Option<(AttemptOutcome, JobFailure)>,
    /// True if the run counts as an attempt.
    pub(crate) uses_attempt: bool,
    /// True if the run counts as a crash.
    pub(crate) is_crash: bool,
    /// True if the job may have crashed the process: its next run is marked as started only on a free thread, and
    /// counts.
    pub(crate) is_suspect: bool,
    /// True if the run's slot of its concurrency key may go to the next job at once.
    pub(crate) has_slot: bool,
    /// The time for which the key of its first rate is closed.
    pub(crate) closes_rate: Option<Duration>,
}

/// Returns the decision about a job that runs again after a delay, and whose run does not count.
fn again(delay: Duration) -> (Destination, Option<(AttemptOutcome, JobFailure)>, bool) {
    (Destination::Wait(Some(delay)), None, false)
}

impl JobDecision {
    /// Decides by the ending of the run.
    pub(crate) fn of_ending(run: EndedRun, ending: Ending) -> Self {
        let begun = run.has_begun();
        let closes_rate = ending.closes_rate();
        let (destination, attempt, uses_attempt) = match ending {
            Ending::Fail(failure) => {
                let attempt = (AttemptOutcome::Failed, failure.clone());
                (Destination::Failed(failure), Some(attempt), true)
            }
            Ending::Retry(failure, delay) => {
                let attempt = (AttemptOutcome::Retried, failure);
                (Destination::Wait(Some(delay)), Some(attempt), true)
            }
            Ending::Discard(failure) => {
                let attempt = (AttemptOutcome::Discarded, failure.clone());
                let ended = Destination::Ended(ResultOutcome::Discarded, failure);
                (ended, Some(attempt), begun)
            }
            Ending::Expire(failure) => {
                let attempt = (AttemptOutcome::Discarded, failure.clone());
                let ended = Destination::Ended(ResultOutcome::Discarded, failure);
                (ended, Some(attempt), false)
            }
            Ending::Cancel(failure) => {
                let attempt = (AttemptOutcome::Cancelled, failure.clone());
                let ended = Destination::Ended(ResultOutcome::Cancelled, failure);
                (ended, Some(attempt), begun)
            }
            Ending::Park(wait) => (Destination::Park(wait), None, false),
            Ending::GiveBack { failure, delay, .. } => {
                let attempt = (AttemptOutcome::Interrupted, failure);
                (Destination::Wait(Some(delay)), Some(attempt), false)
            }
            Ending::Snooze(delay) | Ending::RateLimited(delay) => again(delay),
            Ending::Release(why, delay) => {
                let attempt = (AttemptOutcome::Released, JobFailure::released(why));
                let attempt = Some(attempt).filter(|_| begun);
                (Destination::Wait(delay), attempt, false)
            }
        };
        JobDecision {
            run,
            destination,
            attempt,
            uses_attempt,
            is_crash: false,
            is_suspect: false,
            has_slot: true,
            closes_rate,
        }
    }

    /// Decides after the death of the process that held the claim: by an ending from before it, or
    /// else by the death.
    pub(crate) fn of_death(run: EndedRun, claim: &LostClaim, death: &Death) -> Self {
        match claim.foregone() {
            Some(ending) => Self::of_ending(run, ending),
            None => Self::of_interruption(run, claim, death),
        }
    }

    /// Decides about a run that a death interrupted: the job waits again, unless it may run at most
    /// once or has crashed too many processes.
    fn of_interruption(run: EndedRun, claim: &LostClaim, death: &Death) -> Self {
        let started = claim.started_at.is_some();
        let may_crash = death.is_crash && started && !mutant::is("crash_not_counted");
        // A job that was claimed ahead is not charged with what it may have no part in.
        let (is_crash, is_suspect) = (
            may_crash && !claim.prefetched,
            may_crash && claim.prefetched,
        );
        let crashes = claim.crash_count.saturating_add(i32::from(is_crash));
        let last = if claim.at_most_once && started {
            Some(JobFailure::outcome_unknown(&death.how))
        } else {
            Some(JobFailure::crashed(&death.how, crashes)).filter(|_| crashes > claim.max_crashes)
        };
        if let Some(failure) = last {
            return JobDecision {
                run,
                attempt: Some((AttemptOutcome::Failed, failure.clone())),
                destination: Destination::Failed(failure),
                uses_attempt: started && !is_crash,
                is_crash,
                is_suspect: false,
                has_slot: true,
                closes_rate: None,
            };
        }
        let attempt = if is_crash {
            let crashed = JobFailure::crashed(&death.how, crashes);
            Some((AttemptOutcome::Crashed, crashed))
        } else {
            // One that was claimed ahead may not have run.
            let released = JobFailure::released(format!("its process {} while it ran", death.how));
            Some((AttemptOutcome::Released, released)).filter(|_| started && !claim.prefetched)
        };
        let delay = Some(crash_delay(crashes)).filter(|_| is_crash && crashes >= 2);
        JobDecision {
            run,
            destination: Destination::Wait(delay),
            attempt,
            uses_attempt: false,
            is_crash,
            is_suspect,
            has_slot: true,
            closes_rate: None,
        }
    }

    /// Returns the claim to store in the job's row as ended by its owner, which may check later
    /// whether the write got through.
    pub(crate) fn last_claim(&self) -> Option<i64> {
        self.run.by_owner.then_some(self.run.claim_id)
    }

    /// Returns how many runs count neither as attempts nor as crashes.
    pub(crate) fn uncounted_runs(&self) -> i32 {
        i32::from(self.uses_attempt) + i32::from(self.is_crash)
    }
}

/// Returns the delay after a crash: 20 s after the second, doubling up to 10 minutes.
fn crash_delay(crashes: i32) -> Duration {
    let exponent = u32::try_from(crashes).unwrap_or(0).min(8);
    Duration::from_secs((5 << exponent).min(600))
}

/// The end of the process that held a claim.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    /// True if its jobs may have caused it. They cannot cause a graceful stop.
    pub(crate) is_crash: bool,
    /// For the messages of the failures: "was killed by signal 9".
    pub(crate) how: String,
}

/// A claim of a process that is gone, with fields of its job's row.
#[derive(Debug, QueryableByName)]
pub(crate) struct LostClaim {
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) started_at: Option<NaiveDateTime>,
    /// True if it was claimed ahead of the threads, so that its job may not have started.
    #[diesel(sql_type = Bool)]
    pub(crate) prefetched: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) cancelled: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) verdict: Option<String>,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) crash_count: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) max_crashes: i32,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
}

impl LostClaim {
    /// Returns the ending decided before the process died: a cancel was requested, or the process
    /// had recorded that the job overran its timeout.
    fn foregone(&self) -> Option<Ending> {
        if self.cancelled {
            return Some(Ending::Cancel(cancelled()));
        }
        serde_json::from_str(self.verdict.as_deref()?).ok()
    }
}

/// The default of how many times a job's process may die while it runs. One is too few: a job that
/// crashes its process takes other jobs along.
pub(crate) const MAX_CRASHES: i32 = 3;

// --- The states of a job ---

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// A worker may claim it.
    Ready,
    /// It waits for its time.
    Scheduled,
    /// It waits for other jobs of its concurrency key.
    Blocked,
    /// A process holds it.
    Claimed,
    /// It failed permanently, and is kept until it is retried or discarded.
    Failed,
    /// It finished successfully.
    Finished,
    /// It was cancelled.
    Cancelled,
    /// It ended on its own request, without a failure.
    Discarded,
}

impl JobState {
    /// All states whose jobs have an execution, in the order in which a job goes through them.
    /// Locks are taken in this order too.
    pub(crate) const WITH_EXECUTION: [JobState; 5] = [
        JobState::Claimed,
        JobState::Scheduled,
        JobState::Blocked,
        JobState::Ready,
        JobState::Failed,
    ];

    /// The states of waiting jobs.
    pub(crate) const WAITING: [JobState; 3] =
        [JobState::Scheduled, JobState::Blocked, JobState::Ready];

    /// Returns the table of its executions. Finished jobs have none; jobs that were cancelled or
    /// discarded are found by their last attempt.
    #[doc(hidden)]
    pub fn table(self) -> &'static str {
        match self {
            JobState::Ready => "solid_queue_ready_executions",
            JobState::Scheduled => "solid_queue_scheduled_executions",
            JobState::Blocked => "solid_queue_blocked_executions",
            JobState::Claimed => "solid_queue_claimed_executions",
            JobState::Failed => "solid_queue_failed_executions",
            JobState::Finished => "solid_queue_jobs",
            JobState::Cancelled | JobState::Discarded => "windlass_attempts",
        }
    }
}

// --- Finished jobs: what they leave behind ---

/// The use of the slots of concurrency keys that finished jobs hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySlots<'n> {
    /// They hold none.
    None,
    /// They become free, and a promotion is requested.
    Free,
    /// The same process claims the next jobs of the keys.
    PassOn(&'n NextJobs, EqualJobs),
}

impl KeySlots<'_> {
    pub(crate) fn of(is_limited: bool) -> Self {
        match is_limited {
            true => KeySlots::Free,
            false => KeySlots::None,
        }
    }
}

/// A finished job with something to store or to delete.
#[derive(Debug)]
pub(crate) struct FinishedJob<'a> {
    pub(crate) claim_id: i64,
    /// Its result to store, if any.
    pub(crate) result: Option<NewResult<'a>>,
    /// The job, if it has a unique id: others may wait for it.
    pub(crate) named: Option<i64>,
    /// True if it may have recorded steps, which are deleted.
    pub(crate) has_steps: bool,
    /// True if it belongs to a batch.
    pub(crate) has_batch: bool,
}

impl<'a> FinishedJob<'a> {
    /// Returns the traces of a run.
    pub(crate) fn new(
        job: &'a Claimed,
        output: NewOutput<'a>,
        keep_result: Option<Duration>,
        has_steps: bool,
    ) -> Self {
        let unique_id = job.unique_id.as_deref();
        let of = ResultOf {
            job_id: job.job_id,
            attempt: job.attempts.max(0).saturating_add(1),
            class_name: &job.class_name,
            unique_id,
            batch_id: job.batch_id,
        };
        FinishedJob {
            claim_id: job.claim_id,
            result: NewResult::of_finished(of, output, keep_result),
            named: unique_id.map(|_| job.job_id),
            has_steps,
            has_batch: job.batch_id.is_some(),
        }
    }

    /// Returns whether there is more to do than to finish it.
    pub(crate) fn leaves_traces(&self) -> bool {
        self.result.is_some() || self.named.is_some() || self.has_steps || self.has_batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::claim::FinishedRow;
    use crate::db::model::outcome::ParkUntil;
    use crate::db::model::outcome::RunStart;

    const SECOND: Duration = Duration::from_secs(1);

    /// A run whose worker has ended its claim.
    fn run(begun: bool) -> EndedRun {
        let at = begun.then(NaiveDateTime::default);
        EndedRun {
            process_id: 1,
            claim_id: 7,
            job_id: 3,
            began: RunStart::At(at),
            by_owner: true,
            finished: FinishedRow::Keep,
        }
    }

    /// A run whose claim a supervisor has ended.
    fn recovered(begun: bool) -> EndedRun {
        EndedRun {
            by_owner: false,
            ..run(begun)
        }
    }

    fn failure() -> JobFailure {
        JobFailure::new("kind", "message")
    }

    /// Returns the destination, the attempt, whether it counts as an attempt and as a crash, and
    /// the stored claim, each in a word.
    fn told(decision: &JobDecision) -> String {
        let to = match &decision.destination {
            Destination::Wait(None) => "ready".to_owned(),
            Destination::Wait(Some(delay)) => format!("in {}s", delay.as_secs()),
            Destination::Park(wait) => format!("parked at {}", wait.step),
            Destination::Failed(failure) => format!("failed {}", failure.kind),
            Destination::Ended(outcome, _) => format!("ended {outcome:?}"),
        };
        let attempt = decision.attempt.as_ref();
        let attempt = attempt.map_or("-", |(outcome, _)| outcome.column());
        let counts = match (decision.uses_attempt, decision.is_crash) {
            (true, false) => "attempt",
            (false, true) => "crash",
            (false, false) => "nothing",
            (true, true) => "both",
        };
        let noted = decision.last_claim().map_or("-", |_| "noted");
        format!("{to} | {attempt} | {counts} | {noted}")
    }

    #[test]
    fn an_ending_decides() {
        for (ending, begun, expected) in [
            (
                Ending::Fail(failure()),
                true,
                "failed kind | failed | attempt | noted",
            ),
            (
                Ending::Retry(failure(), SECOND),
                true,
                "in 1s | retried | attempt | noted",
            ),
            (
                Ending::Discard(failure()),
                true,
                "ended Discarded | discarded | attempt | noted",
            ),
            (
                Ending::Cancel(failure()),
                true,
                "ended Cancelled | cancelled | attempt | noted",
            ),
            (
                Ending::Cancel(failure()),
                false,
                "ended Cancelled | cancelled | nothing | noted",
            ),
            (
                Ending::Expire(failure()),
                false,
                "ended Discarded | discarded | nothing | noted",
            ),
            (
                Ending::Park(ParkedStep {
                    step: "a".to_owned(),
                    until: ParkUntil::Pause(SECOND),
                }),
                true,
                "parked at a | - | nothing | noted",
            ),
            (Ending::Snooze(SECOND), true, "in 1s | - | nothing | noted"),
            (
                Ending::GiveBack {
                    failure: failure(),
                    delay: SECOND,
                    otherwise: Box::new(Ending::Fail(failure())),
                },
                true,
                "in 1s | interrupted | nothing | noted",
            ),
            (
                Ending::Release(String::new(), None),
                true,
                "ready | released | nothing | noted",
            ),
        ] {
            let decision = JobDecision::of_ending(run(begun), ending.clone());
            assert_eq!(told(&decision), expected, "{ending:?}");
            let decision = JobDecision::of_ending(recovered(begun), ending.clone());
            let expected = expected.replace("noted", "-");
            assert_eq!(told(&decision), expected, "{ending:?}, by a supervisor");
        }
    }

    #[test]
    fn a_death_decides() {
        let claim = |crash_count, at_most_once, begun: bool| LostClaim {
            claim_id: 7,
            job_id: 3,
            started_at: begun.then(NaiveDateTime::default),
            prefetched: false,
            cancelled: false,
            verdict: None,
            class_name: "job".to_owned(),
            crash_count,
            max_crashes: MAX_CRASHES,
            at_most_once,
        };
        let death = |is_crash| Death {
            is_crash,
            how: "was killed".to_owned(),
        };
        for (crashes, once, is_crash, begun, expected) in [
            (0, false, true, true, "ready | crashed | crash | -"),
            (1, false, true, true, "in 20s | crashed | crash | -"),
            (2, false, true, true, "in 40s | crashed | crash | -"),
            (3, false, true, true, "failed crashed | failed | crash | -"),
            (3, false, true, false, "ready | - | nothing | -"),
            (1, false, false, true, "ready | released | nothing | -"),
            (1, false, false, false, "ready | - | nothing | -"),
            (
                0,
                true,
                true,
                true,
                "failed outcome_unknown | failed | crash | -",
            ),
            (
                0,
                true,
                false,
                true,
                "failed outcome_unknown | failed | attempt | -",
            ),
            (0, true, true, false, "ready | - | nothing | -"),
        ] {
            let (claim, death) = (claim(crashes, once, begun), death(is_crash));
            let decision = JobDecision::of_death(recovered(begun), &claim, &death);
            assert_eq!(
                told(&decision),
                expected,
                "{crashes} {once} {is_crash} {begun}"
            );
        }
        let mut asked = claim(3, true, true);
        asked.cancelled = true;
        let decision = JobDecision::of_death(recovered(true), &asked, &death(true));
        assert_eq!(told(&decision), "ended Cancelled | cancelled | attempt | -");
    }
}
