//! Performs enqueued jobs immediately, in the test itself.

use crate::db::model::claim::{
    Begins, ClaimOf, ClaimQueues, ClaimRequest, Claimed, Claims, Fence, FinishedRow,
};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::outcome::{ClaimEnd, Ending, NewOutput, expired};
use crate::db::table::processes::{self, NewProcess};
use crate::db::table::{job_logs, jobs, run_time};
use crate::db::transition::{claim, dispatch, end, finish, prune};
use crate::db::{Conn, Database, test_support};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use crate::job::arguments::decode;
use crate::job::around::performing;
use crate::job::class::Job;
use crate::job::context::{Context, Run, RunTrace};
use crate::job::error::{JobError, JobOutput};
use crate::job::new_job::NewJob;
use crate::job::perform::{Outcome, perform as perform_claimed};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::run_log::Cover;
use crate::job::running::{Lease, Live, Signals, Steps};
use crate::process::upkeep::{due, sweep};
use crate::retention::Retention;
use crate::testing::drained::{Performed, RunOutcome};
use serde_json::Value;
use std::sync::Arc;
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
    /// True if concurrency limits count.
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
        processes::register(conn, &new).during("register the test")
    }

    pub(crate) fn deregister(&self, conn: &mut Conn<'_>, process: i64) -> Result<()> {
        prune::deregister(conn, process).during("deregister the test")?;
        Ok(())
    }

    pub(crate) fn claim(&self, conn: &mut Conn<'_>, process: i64) -> Result<Option<Claimed>> {
        due::make_ready(conn).during("make the jobs ready that are due")?;
        if !self.is_limited {
            test_support::ignore_limits(conn).during("ignore the limits")?;
        }
        sweep::promote_all(conn).during("promote blocked jobs")?;
        let paused = run_time::paused(conn).during("read the paused classes")?;
        let is_open = |class: &&String| !paused.contains(class);
        let classes: Vec<String> = self.classes.iter().filter(is_open).cloned().collect();
        let want = ClaimRequest {
            process_id: process,
            queues: &self.queues,
            classes: &classes,
            max_jobs: 1,
            begins: Begins::All,
            from: &[],
            wanted_after: 0,
        };
        match claim::claim(conn, &want).during("claim a job")? {
            Claims::Held { jobs, .. } => Ok(jobs.into_iter().next()),
            Claims::Unregistered => Err(Error::Settings(
                "a job has deleted the process that runs it".to_owned(),
            )),
        }
    }

    pub(crate) fn carry_out(&self, job: &Claimed, run: Run) -> PerformedRun {
        run.signals.live.begin(run.policy.time_limit());
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
        dispatch::has_expired(conn, job.job_id).during("look for the expiry of a job")
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
            batch_id: job.batch_id,
            attempt: job.attempt(),
            enqueued_at: job.created_at,
            scheduled_at: job.scheduled_at,
            trace: RunTrace::of(job, true),
            job: Arc::new(job.clone()),
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
            && jobs::ended_by_owner(conn, claim).during("read a job")?;
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
                let ended = ended.during("end a job")?.pop();
                ended.map_or(RunOutcome::Lost, |ended| run_outcome(ended.ending))
            }
            // Rows of Rails do not name a class in this column.
            Outcome::UnknownClass | Outcome::NewerVersion => {
                let delay = Some(Duration::from_secs(30));
                let released = end::release(conn, process_id, &[claim_id], delay);
                released.during("release a job")?;
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
        job_logs::save(conn, &[logged]).during("store what a job logged")
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
    match ended.during("finish a job")?.is_empty() {
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
        Ending::Snooze(delay) | Ending::RateLimited(delay) => RunOutcome::Snoozed(delay),
        Ending::GiveBack { failure, delay, .. } => {
            RunOutcome::Interrupted(failure.kind, failure.message, delay)
        }
        Ending::Park(parked) => RunOutcome::Waits(parked.step),
        Ending::Release(_, delay) => RunOutcome::Snoozed(delay.unwrap_or_default()),
    }
}

// --- Performs one job directly, without a database ---

/// Returns the signals of a process that never stops and is never lost.
pub(crate) fn signals() -> Signals {
    const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
    Signals {
        stopping: Arc::default(),
        lease: Arc::new(Lease::new(FOR_EVER)),
        live: Arc::<Live>::default(),
    }
}

/// Performs one job of a registry directly, without a database and with the
/// [functions around it](Registry::around), and returns its result as JSON.
///
/// ```
/// use windlass::{Function, Registry, testing};
///
/// const DOUBLE: Function<u32> = Function::new("double");
/// let registry = Registry::new().function(DOUBLE, |number, _| Ok(2 * number));
/// let result = testing::perform_by(&registry, &DOUBLE.job(&21)?);
/// assert_eq!(result.unwrap(), 42);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// The error of the job, of kind `panic` if it panicked. Also if its class is not registered, or its
/// arguments do not match.
pub fn perform_by(registry: &Registry, job: &NewJob) -> std::result::Result<Value, JobError> {
    let row = &job.row;
    let claimed = Claimed {
        class_name: row.class_name.clone(),
        queue_name: row.queue_name.clone(),
        unique_id: row.unique_id.clone(),
        ..Claimed::default()
    };
    let run = alone(claimed, job.policy.clone());
    let Some(output) = performing(|| registry.perform(&row.arguments, &run)) else {
        let class = &row.class_name;
        return Err(format!("no type of the name `{class}` is registered").into());
    };
    let text = output?.text;
    Ok(serde_json::from_str(text.as_deref().unwrap_or("null"))?)
}

/// Performs one job directly, without a database, to test its effects and its return value.
///
/// The arguments are converted to JSON and back, as for a worker. A panic of the job is a panic of
/// the test. The job sees its first attempt, enqueued at the start of 1970.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// use windlass::testing;
///
/// #[derive(Serialize, Deserialize)]
/// struct Add { numbers: Vec<i64> }
///
/// impl Job for Add {
///     const NAME: &'static str = "add";
///     type State = ();
///     type Output = i64;
///     fn perform(self, _: &Context<'_, ()>) -> JobResult<i64> {
///         Ok(self.numbers.iter().sum())
///     }
/// }
///
/// assert_eq!(testing::perform(Add { numbers: vec![1, 2] }, &()).unwrap(), 3);
/// ```
///
/// # Errors
/// The error of the job, or the reason why its arguments cannot be read back from JSON.
pub fn perform<J: Job>(job: J, state: &J::State) -> std::result::Result<J::Output, JobError> {
    let text = serde_json::to_string(&job)?;
    let job: J = decode(&text)?;
    let claimed = Claimed {
        class_name: J::NAME.to_owned(),
        queue_name: J::QUEUE.to_owned(),
        ..Claimed::default()
    };
    let run = alone(claimed, J::policy());
    let cover = Cover::new(&text, J::REDACT);
    let done = job.perform(&Context::new(state, &run).covered(cover));
    done.map_err(|error| Cover::new(&text, J::REDACT).hide_in(error))
}

/// Returns a run without a database.
fn alone(job: Claimed, policy: Policy) -> Run {
    Run {
        job: Arc::new(job),
        policy,
        job_id: 1,
        fence: Fence {
            process_id: 1,
            claim_id: 1,
        },
        batch_id: None,
        attempt: 1,
        enqueued_at: chrono::NaiveDateTime::default(),
        scheduled_at: None,
        trace: RunTrace::default(),
        signals: signals(),
        database: Database::none(),
        finished: FinishedRow::Keep,
        steps: Steps::default(),
        longest_wait: Retention::EVENTS,
    }
}
