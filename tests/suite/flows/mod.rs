//! Jobs that wait for other jobs.

mod ends;
mod example;
mod graph;
mod inputs;
mod joins;
mod parents;
mod sagas;

use crate::support::TestDb;
use crate::support::jobs::{Gate, Log};
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{
    Backoff, Context, Enqueued, Handle, Job, JobError, JobId, JobResult, NewJob, Policy, Registry,
    Worker,
};

/// The way in which a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    Finish,
    Fail,
    RetryOnce,
    Discard,
    Park,
    /// Finishes in its own transaction.
    FinishIn,
    /// Waits for the gate first.
    FinishLater,
    /// Runs until it is told to stop.
    StopWhenTold,
}

/// Notes its name, ends, and returns what it read of the one before it, with its own name.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    name: String,
    end: End,
    reads: Vec<String>,
}

struct Place {
    log: Log,
    gate: Gate,
}

impl Job for Part {
    const NAME: &'static str = "part";
    type State = Place;
    type Output = String;

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(2)
            .backoff(Backoff::Fixed(Duration::ZERO))
    }

    fn perform(self, cx: &Context<'_, Place>) -> JobResult<String> {
        let read = self.reads.iter().map(|name| cx.input::<String>(name));
        let mut read = read.collect::<JobResult<Vec<String>>>()?;
        cx.state().log.add(&*self.name);
        read.push(self.name);
        let read = read.join("+");
        match self.end {
            End::Finish => Ok(read),
            End::Fail => Err(JobError::from("as told").fail()),
            End::RetryOnce if cx.attempt() == 1 => Err("not yet".into()),
            End::RetryOnce => Ok(read),
            End::Discard => Err(JobError::from("no need").discard()),
            End::Park => Err(JobError::from("cannot go on").fail()),
            End::FinishIn => {
                let mut connection = cx.connection()?;
                connection.transaction(|connection| cx.finish_in(connection))?;
                Ok(read)
            }
            End::StopWhenTold => {
                until("it is told to stop", || cx.check().is_err());
                cx.check()?;
                Ok(read)
            }
            End::FinishLater => {
                cx.state().gate.pass();
                Ok(read)
            }
        }
    }
}

fn part(name: &str, end: End) -> NewJob {
    reading(name, end, &[])
}

fn reading(name: &str, end: End, reads: &[&str]) -> NewJob {
    NewJob::new(&Part {
        name: name.to_owned(),
        end,
        reads: reads.iter().map(|name| (*name).to_owned()).collect(),
    })
    .unwrap()
}

/// A database, and what the jobs do.
struct Scene<'d> {
    db: &'d TestDb,
    place: Arc<Place>,
}

impl<'d> Scene<'d> {
    fn new(db: &'d TestDb) -> Self {
        let place = Place {
            log: Log::default(),
            gate: Gate::default(),
        };
        Scene {
            db,
            place: Arc::new(place),
        }
    }

    fn enqueue(&self, job: NewJob) -> Enqueued {
        job.enqueue(&mut self.db.connection()).unwrap()
    }

    fn registry(&self) -> Registry {
        Registry::new().register::<Part>(Arc::clone(&self.place))
    }

    fn worker(&self, keep_finished: bool) -> Handle {
        Worker::new(&self.db.database, self.registry())
            .threads(2)
            .polling_interval(Duration::from_millis(100))
            .keep_finished(keep_finished)
            .start()
            .unwrap()
    }

    /// Runs until nothing is left to do, and returns what has run, in order.
    fn run(&self) -> Vec<String> {
        self.run_keeping(true)
    }

    fn run_keeping(&self, keep_finished: bool) -> Vec<String> {
        let worker = self.worker(keep_finished);
        until("nothing is left to do", || self.open() == 0);
        worker.stop();
        self.ran()
    }

    fn ran(&self) -> Vec<String> {
        self.place.log.lines()
    }

    /// Jobs that are not finished and have not failed, and do not wait for a retry.
    fn open(&self) -> i64 {
        self.db.count(
            "SELECT count(*) AS n FROM solid_queue_jobs j WHERE j.finished_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id) \
             AND NOT EXISTS (SELECT 1 FROM windlass_edges w WHERE w.child_job_id = j.id AND w.otherwise = 'wait' AND w.outcome = 'failed')",
        )
    }

    /// Why a job was discarded, if it was.
    fn discarded(&self, job: JobId) -> Option<String> {
        let why = self.db.texts(&format!(
            "SELECT kind || ': ' || message AS t FROM windlass_attempts WHERE job_id = {job} AND outcome = 'discarded'"
        ));
        why.into_iter().next()
    }
}
