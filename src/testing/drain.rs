//! Performs enqueued jobs immediately, in the test itself.

use crate::db::model::claim::{
    ClaimOf, ClaimQueues, ClaimRequest, Claimed, Claims, Fence, FinishedRow,
};
use crate::db::model::outcome::{ClaimEnd, Ending, NewOutput, expired};
use crate::db::model::state::{FinishedJob, KeySlots};
use crate::db::table::processes::{self, NewProcess};
use crate::db::table::run_time::class_pauses;
use crate::db::table::{job_logs, jobs};
use crate::db::transition::flows::wake;
use crate::db::transition::{claim, dispatch, end, finish, promote, prune};
use crate::db::{Conn, Database, test_support};
use crate::error::{Doing, Error, Result};
use crate::job::context::{Run, RunTrace};
use crate::job::error::JobOutput;
use crate::job::id::JobId;
use crate::job::perform::{Outcome, perform as perform_claimed};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::running::Steps;
use crate::retention::Retention;
use crate::testing::drained::{Performed, RunOutcome};
use crate::testing::perform::signals;
use std::time::Duration;

/// A run that is over, before its outcome is saved.
pub(crate) struct PerformedRun {
    run: Run,
    outcome: Outcome,
}

/// A worker without threads.
pub(crate) struct InlineWorker<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) classes: Vec<String>,
    pub(crate) queues: ClaimQueues,
    /// Whether concurrency limits count.
    pub(crate) is_limited: bool,
}

impl<'a> InlineWorker<'a> {
    pub(crate) fn new(registry: &'a Registry) -> Self {
        InlineWorker {
            registry,
            classes: registry.classes().map(str::to_owned).collect(),
            queues: ClaimQueues::All,
            is_limited: true,
        }
    }

    /// Returns whether it claims jobs of this class from this queue.
    pub(crate) fn takes(&self, class: &str, queue: &str) -> bool {
        let has_queue = match &self.queues {
            ClaimQueues::All => true,
            ClaimQueues::Named(names) => names.iter().any(|name| name == queue),
        };
        has_queue && self.classes.iter().any(|name| name == class)
    }

    pub(crate) fn register(&self, conn: &mut Conn<'_>) -> Result<i64> {
        let new = NewProcess {
            name: &format!("test-{:016x}", fastrand::u64(..)),
            kind: "Worker",
            pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
            hostname: "localhost",
            supervisor_id: None,
            metadata: "{}",
            channel: None,
        };
        processes::register(conn, &new).doing("register the test")
    }

    pub(crate) fn deregister(&self, conn: &mut Conn<'_>, process: i64) -> Result<()> {
        prune::deregister(conn, process).doing("deregister the test")?;
        Ok(())
    }

    pub(crate) fn claim(&self, conn: &mut Conn<'_>, process: i64) -> Result<Option<Claimed>> {
        dispatch::dispatch(conn, 500, &[]).doing("dispatch jobs")?;
        if !self.is_limited {
            test_support::ignore_limits(conn).doing("ignore the limits")?;
        }
        while wake::time_out(conn, 500)
            .doing("look for waits that have timed out")?
            .woken
            > 0
        {}
        while promote::promote(conn, 500)
            .doing("promote blocked jobs")?
            .is_progress(500)
        {}
        let paused = class_pauses::paused(conn).doing("read the paused classes")?;
        let is_open = |class: &&String| !paused.contains(class);
        let classes: Vec<String> = self.classes.iter().filter(is_open).cloned().collect();
        let want = ClaimRequest {
            process_id: process,
            queues: &self.queues,
            classes: &classes,
            limit: 1,
            ahead: false,
            from: &[],
            wanted_after: 0,
        };
        match claim::claim(conn, &want).doing("claim a job")? {
            Claims::Held { jobs, .. } => Ok(jobs.into_iter().next()),
            Claims::Unregistered => Err(Error::Settings(
                "a job has deleted the process that runs it".to_owned(),
            )),
        }
    }

    pub(crate) fn carry_out(&self, job: &Claimed, run: Run) -> PerformedRun {
        run.signals.live.begin(run.policy.limit());
        let outcome = perform_claimed(self.registry, &job.arguments, &run);
        PerformedRun { run, outcome }
    }

    /// Returns the end of a job that has expired before it started.
    pub(crate) fn too_late(run: Run) -> PerformedRun {
        let outcome = Outcome::Ended(Ending::Expire(expired()));
        PerformedRun { run, outcome }
    }

    pub(crate) fn has_expired(&self, conn: &mut Conn<'_>, job: &Claimed) -> Result<bool> {
        if !job.may_expire() {
            return Ok(false);
        }
        dispatch::has_expired(conn, job.job_id).doing("look for the expiry of a job")
    }

    /// Returns the run of a claim, before it starts.
    pub(crate) fn run_of(&self, process_id: i64, job: &Claimed, database: &Database) -> Run {
        let stored = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
        let policy = self.registry.complete(&job.class_name, stored);
        let signals = signals();
        Run {
            policy,
            job_id: job.job_id,
            fence: Fence {
                process_id,
                claim_id: job.claim_id,
            },
            class_name: job.class_name.clone(),
            unique_id: job.unique_id.clone(),
            batch_id: job.batch_id,
            queue_name: job.queue_name.clone(),
            attempt: job.attempt(),
            enqueued_at: job.created_at,
            scheduled_at: job.scheduled_at,
            trace: RunTrace::of(job, true),
            signals,
            database: database.clone(),
            finished: FinishedRow::Keep,
            steps: Steps::default(),
            longest_wait: Retention::EVENTS,
        }
    }

    pub(crate) fn end(
        &self,
        conn: &mut Conn<'_>,
        job: &Claimed,
        PerformedRun { run, outcome }: &PerformedRun,
    ) -> Result<Performed> {
        let Fence {
            process_id,
            claim_id,
        } = run.fence;
        let claim = ClaimOf {
            claim_id,
            job_id: job.job_id,
        };
        save_log(conn, job, run)?;
        let finished_itself = run.signals.live.ends_itself()
            && jobs::ended_by_owner(conn, claim).doing("read a job")?;
        let outcome = match outcome {
            _ if finished_itself => RunOutcome::Finished,
            Outcome::Finished(output) => finish(conn, job, run, output)?,
            Outcome::Ended(ending) => {
                let end = ClaimEnd {
                    claim_id,
                    ending,
                    ran: Duration::ZERO,
                    last_retry: run.policy.last_retry(run.enqueued_at, run.scheduled_at),
                };
                let ended = end::end_all(conn, process_id, &[end], FinishedRow::Keep);
                let ended = ended.doing("end a job")?.pop();
                ended.map_or(RunOutcome::Lost, |ended| run_outcome(ended.ending))
            }
            // Rows of Rails do not name a class in this column.
            Outcome::UnknownClass | Outcome::NewerVersion => {
                let delay = Some(Duration::from_secs(30));
                let released = end::release(conn, process_id, &[claim_id], delay);
                released.doing("release a job")?;
                RunOutcome::Snoozed(Duration::from_secs(30))
            }
        };
        Ok(Performed {
            id: JobId(job.job_id),
            class_name: job.class_name.clone(),
            outcome,
            logs: run.signals.live.log.lines(),
        })
    }
}

/// Stores what the job logged.
fn save_log(conn: &mut Conn<'_>, job: &Claimed, run: &Run) -> Result<()> {
    let live = &run.signals.live;
    let news = live
        .log
        .news(run.fence, job.job_id, job.attempts, live.age());
    news.map_or(Ok(()), |logged| {
        job_logs::save(conn, &[logged]).doing("store what a job logged")
    })
}

/// Writes that a job has finished.
fn finish(conn: &mut Conn<'_>, job: &Claimed, run: &Run, output: &JobOutput) -> Result<RunOutcome> {
    let output = NewOutput {
        text: output.text.as_deref(),
        problem: output.problem.as_deref(),
    };
    let has_steps = run.signals.live.has_steps();
    let done = FinishedJob::new(job, output, run.policy.keep_result, has_steps);
    let (process, row) = (run.fence.process_id, FinishedRow::Keep);
    let ended = finish::finish_and_keep(conn, process, vec![done], row, KeySlots::Free);
    match ended.doing("finish a job")?.is_empty() {
        true => Ok(RunOutcome::Lost),
        false => Ok(RunOutcome::Finished),
    }
}

pub(crate) fn run_outcome(ending: Ending) -> RunOutcome {
    match ending {
        Ending::Fail(failure) => RunOutcome::Failed(failure.kind, failure.message),
        Ending::Retry(failure, delay) => RunOutcome::Retried(failure.kind, failure.message, delay),
        Ending::Discard(failure) | Ending::Expire(failure) | Ending::Cancel(failure) => {
            RunOutcome::Discarded(failure.kind, failure.message)
        }
        Ending::Snooze(delay) => RunOutcome::Snoozed(delay),
        Ending::GiveBack { failure, delay, .. } => {
            RunOutcome::Interrupted(failure.kind, failure.message, delay)
        }
        Ending::Park(wait) => RunOutcome::Waits(wait.step),
        Ending::Release(_, delay) => RunOutcome::Snoozed(delay.unwrap_or_default()),
    }
}
