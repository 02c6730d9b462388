//! Performs enqueued jobs immediately, in the test itself.

use crate::db::model::claim::ClaimOf;
use crate::db::model::new_result::NewOutput;
use crate::db::transition::end;
use crate::db::transition::finish::KeySlots;

use crate::testing::drained::{Drained, Performed, RunOutcome};

use crate::db::transition::prune;

use crate::db::model::claim::{ClaimQueues, ClaimRequest, Claimed, Claims, Fence, FinishedRow};
use crate::db::model::outcome::{ClaimEnd, Ending, expired};
use crate::db::table::jobs;
use crate::db::table::processes::{self, NewProcess};
use crate::db::transition::finish::{self, FinishedJob};
use crate::db::transition::{claim, dispatch, expire, promote, release};
use crate::db::{AsConn, Conn, Database, TestDatabase};
use crate::error::{Doing, Error, Result};
use crate::job::class::Job;
use crate::job::context::{Context, Run};
use crate::job::error::JobError;
use crate::job::error::JobOutput;
use crate::job::id::JobId;
use crate::job::lease::Lease;
use crate::job::perform::{Outcome, perform as perform_claimed};
use crate::job::policy::Policy;
use crate::job::registry::{Registry, decode};
use crate::job::running::Live;
use crate::job::signals::Signals;
use crate::job::step_memory::Steps;
use std::sync::Arc;
use std::time::Duration;

/// Performs the jobs that are ready or due, as a worker would.
///
/// Jobs whose classes are registered run one after the other on this thread, until none is left.
/// That includes jobs that they enqueue, but not jobs that are due later. Paused queues are
/// skipped.
///
/// With the application's own connection inside `test_transaction`,
/// [`Context::connection`](crate::Context::connection) returns no connection. Jobs that call it
/// need [`TestDatabase::drain`].
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, Registry};
/// # #[derive(Serialize, Deserialize)] struct Import;
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use diesel::prelude::*;
/// use windlass::testing;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// conn.test_transaction::<_, windlass::Error, _>(|conn| {
///     Import.enqueue(conn)?;
///     let registry = Registry::new().register::<Import>(());
///     testing::drain(conn, &registry)?.assert_all_finished(1);
///     Ok(())
/// });
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
///
/// # Panics
/// After 10,000 runs, because a job enqueues itself endlessly.
pub fn drain<C: AsConn + ?Sized>(conn: &mut C, registry: &Registry) -> Result<Drained> {
    let crew = InlineWorker::new(registry);
    let mut conn = conn.as_conn();
    let process = crew.register(&mut conn)?;
    let mut drained = Drained::default();
    while let Some(job) = crew.claim(&mut conn, process)? {
        let is_late = InlineWorker::has_expired(&mut conn, &job)?;
        let ran = crew.perform(process, &job, &Database::none(), is_late);
        drained.add(crew.end(&mut conn, &job, ran)?);
    }
    crew.deregister(&mut conn, process)?;
    Ok(drained)
}

impl TestDatabase {
    /// Performs the jobs that are ready or due and whose classes are registered, until none is
    /// left; see [`drain`].
    ///
    /// Jobs may borrow the connection, one at a time.
    ///
    /// # Errors
    /// As for [`drain`].
    ///
    /// # Panics
    /// After 10,000 runs, because a job enqueues itself endlessly. Also if a job does not return
    /// the connection that it borrowed.
    pub fn drain(&mut self, registry: &Registry) -> Result<Drained> {
        let crew = InlineWorker::new(registry);
        let process = crew.register(&mut self.as_conn())?;
        let mut drained = Drained::default();
        while let Some(job) = crew.claim(&mut self.as_conn(), process)? {
            let is_late = InlineWorker::has_expired(&mut self.as_conn(), &job)?;
            let ran = self.with_database(|database| crew.perform(process, &job, database, is_late));
            drained.add(crew.end(&mut self.as_conn(), &job, ran)?);
        }
        crew.deregister(&mut self.as_conn(), process)?;
        Ok(drained)
    }
}

/// A run that is over, before its outcome is saved.
struct PerformedRun {
    run: Run,
    outcome: Outcome,
}

/// A worker without threads.
struct InlineWorker<'a> {
    registry: &'a Registry,
    classes: Vec<String>,
}

impl<'a> InlineWorker<'a> {
    fn new(registry: &'a Registry) -> Self {
        InlineWorker {
            registry,
            classes: registry.classes().map(str::to_owned).collect(),
        }
    }

    fn register(&self, conn: &mut Conn<'_>) -> Result<i64> {
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

    fn deregister(&self, conn: &mut Conn<'_>, process: i64) -> Result<()> {
        prune::deregister(conn, process).doing("deregister the test")?;
        Ok(())
    }

    fn claim(&self, conn: &mut Conn<'_>, process: i64) -> Result<Option<Claimed>> {
        dispatch::dispatch(conn, 500).doing("dispatch jobs")?;
        while promote::promote(conn, 500)
            .doing("promote blocked jobs")?
            .is_progress(500)
        {}
        let want = ClaimRequest {
            process_id: process,
            queues: &ClaimQueues::All,
            classes: &self.classes,
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

    fn has_expired(conn: &mut Conn<'_>, job: &Claimed) -> Result<bool> {
        let expired = job.may_expire()
            && expire::has_expired(conn, job.job_id).doing("look for the expiry of a job")?;
        Ok(expired)
    }

    fn perform(
        &self,
        process_id: i64,
        job: &Claimed,
        database: &Database,
        is_late: bool,
    ) -> PerformedRun {
        let stored = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
        let policy = self.registry.complete(&job.class_name, stored);
        let signals = signals();
        signals.live.begin(policy.limit());
        let run = Run {
            policy,
            job_id: job.job_id,
            fence: Fence {
                process_id,
                claim_id: job.claim_id,
            },
            class_name: job.class_name.clone(),
            unique_id: job.unique_id.clone(),
            queue_name: job.queue_name.clone(),
            attempt: u32::try_from(job.attempts).unwrap_or(0) + 1,
            enqueued_at: job.created_at,
            scheduled_at: job.scheduled_at,
            signals,
            database: database.clone(),
            finished: FinishedRow::Keep,
            steps: Steps::default(),
        };
        let outcome = match is_late {
            true => Outcome::Ended(Ending::Expire(expired())),
            false => perform_claimed(self.registry, &job.arguments, &run),
        };
        PerformedRun { run, outcome }
    }

    fn end(
        &self,
        conn: &mut Conn<'_>,
        job: &Claimed,
        PerformedRun { run, outcome }: PerformedRun,
    ) -> Result<Performed> {
        let Fence {
            process_id,
            claim_id,
        } = run.fence;
        let claim = ClaimOf {
            claim_id,
            job_id: job.job_id,
        };
        let finished_itself = run.signals.live.ends_itself()
            && jobs::ended_by_owner(conn, claim).doing("read a job")?;
        let outcome = match outcome {
            _ if finished_itself => RunOutcome::Finished,
            Outcome::Finished(output) => finish(conn, job, &run, &output)?,
            Outcome::Ended(ending) => {
                let end = ClaimEnd {
                    claim_id,
                    ending: &ending,
                    ran: Duration::ZERO,
                    last_retry: run.policy.last_retry(run.enqueued_at, run.scheduled_at),
                };
                let ended = end::end_all(conn, process_id, &[end], FinishedRow::Keep);
                let ended = ended.doing("end a job")?.pop();
                ended.map_or(RunOutcome::Lost, |ended| run_outcome(ended.ending))
            }
            // Rows of Rails do not name a class in this column.
            Outcome::UnknownClass => {
                let delay = Some(Duration::from_secs(30));
                let released = release::release(conn, process_id, &[claim_id], delay);
                released.doing("release a job")?;
                RunOutcome::Snoozed(Duration::from_secs(30))
            }
        };
        Ok(Performed {
            id: JobId(job.job_id),
            class_name: job.class_name.clone(),
            outcome,
        })
    }
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
        Ending::Release(_) => RunOutcome::Snoozed(Duration::ZERO),
    }
}

/// Returns the signals of a process that never stops and is never lost.
fn signals() -> Signals {
    const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
    Signals {
        stopping: Arc::default(),
        lease: Arc::new(Lease::new(FOR_EVER)),
        live: Arc::<Live>::default(),
    }
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
pub fn perform<J: Job>(job: J, state: &J::State) -> Result<J::Output, JobError> {
    let text = serde_json::to_string(&job)?;
    let job: J = decode(&text)?;
    let run = Run {
        policy: J::policy(),
        job_id: 1,
        fence: Fence {
            process_id: 1,
            claim_id: 1,
        },
        unique_id: None,
        class_name: J::NAME.to_owned(),
        queue_name: J::QUEUE.to_owned(),
        attempt: 1,
        enqueued_at: chrono::NaiveDateTime::default(),
        scheduled_at: None,
        signals: signals(),
        database: Database::none(),
        finished: FinishedRow::Keep,
        steps: Steps::default(),
    };
    job.perform(&Context::new(state, &run))
}
