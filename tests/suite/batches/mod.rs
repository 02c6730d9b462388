//! Batches: over when the last job has ended, and what follows runs once.

mod beside_ruby;
mod checks;
mod ends;
mod follow;
mod members;
mod older;
mod operate;
mod retries;

use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{
    Backoff, Batch, BatchId, Context, Handle, Job, JobError, JobResult, NewJob, Policy, Registry,
    Worker,
};

/// Ends as it says, at the first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Member {
    Finish,
    Fail,
    RetryOnce,
    Discard,
    Snooze,
    /// Adds another to its batch.
    AddOne,
    /// Finishes in its own transaction.
    FinishIn,
}

impl Job for Member {
    const NAME: &'static str = "member";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(2)
            .backoff(Backoff::Fixed(Duration::ZERO))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(format!("member {self:?}"));
        match self {
            Member::Finish => Ok(()),
            Member::Fail => Err(JobError::from("as told").fail()),
            Member::RetryOnce if cx.attempt() == 1 => Err("not yet".into()),
            Member::RetryOnce => Ok(()),
            Member::Discard => Err(JobError::from("no need").discard()),
            Member::Snooze if cx.state().count("member") == 1 => {
                Err(JobError::snooze(Duration::ZERO))
            }
            Member::Snooze => Ok(()),
            Member::AddOne => {
                let batch = cx.batch()?;
                batch.add(&mut cx.connection()?, [&Member::Finish])?;
                Ok(())
            }
            Member::FinishIn => {
                let mut connection = cx.connection()?;
                connection.transaction(|connection| cx.finish_in(connection))
            }
        }
    }
}

fn worker(db: &TestDb, log: &Arc<Log>, events: &Events) -> Handle {
    Worker::new(&db.database, registry(log))
        .threads(2)
        .polling_interval(Duration::from_millis(100))
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

fn registry(log: &Arc<Log>) -> Registry {
    Registry::new()
        .register::<Member>(Arc::clone(log))
        .register::<Note>(Arc::clone(log))
}

/// A batch with jobs that follow it on each outcome.
fn followed(members: impl IntoIterator<Item = Member>) -> Batch {
    Batch::new("test")
        .add(members.into_iter().map(|member| NewJob::new(&member)))
        .on_success(&Note::new("success"))
        .on_failure(&Note::new("failure"))
        .on_finish(&Note::new("finish"))
}

/// Returns the follow-up jobs that have run, sorted.
fn follow_ups(log: &Log) -> Vec<String> {
    let lines = log.lines().into_iter();
    let mut all: Vec<String> = lines.filter(|line| !line.starts_with("member")).collect();
    all.sort();
    all
}

fn is_over(db: &TestDb, batch: BatchId) -> bool {
    batch.status(&mut db.connection()).unwrap().is_over()
}

/// Runs a batch until it is over and nothing is left to do, and returns what has followed it.
fn run(db: &TestDb, batch: Batch) -> (BatchId, Vec<String>) {
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    (batch, run_on(db, batch))
}

fn run_on(db: &TestDb, batch: BatchId) -> Vec<String> {
    let log = Arc::new(Log::default());
    let events = Events::default();
    let worker = worker(db, &log, &events);
    until("the batch is over", || is_over(db, batch));
    until("nothing is left to do", || open_jobs(db) == 0);
    worker.stop();
    follow_ups(&log)
}

/// Jobs that are not finished and have not failed.
fn open_jobs(db: &TestDb) -> i64 {
    db.count(
        "SELECT count(*) AS n FROM solid_queue_jobs j WHERE j.finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)",
    )
}

/// The counts of a batch's row: all, completed, failed.
fn counts(db: &TestDb, batch: BatchId) -> String {
    let texts = db.texts(&format!(
        "SELECT total_jobs || ' ' || completed_jobs || ' ' || failed_jobs AS t FROM solid_queue_batches WHERE id = {batch}"
    ));
    texts.join("")
}
