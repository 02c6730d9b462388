//! Jobs that do not simply succeed.

mod attempts;
mod cancel;
mod edit;
mod example;
mod expiry;
mod known_outcome;
mod operate;
mod progress;
mod retention;
mod retry_limits;
mod retry_rate;
pub mod steps;
mod timeout;

use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::Log;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{
    Backoff, Context, Dispatcher, Handle, Job, JobError, JobId, JobResult, NewJob, Policy,
    Registry, Worker,
};

/// The action of a job at one attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Turn {
    Succeed,
    Err(String),
    Panic(String),
    RetryAfter(u64),
    Fail,
    Discard,
    Snooze(u64),
    /// Runs until it is told that somebody cancelled it.
    UntilCancelled,
    /// The same, but then it fails for a reason of its own.
    ErrWhenCancelled,
    /// The same, but then it succeeds.
    SucceedWhenCancelled,
}

/// A job that does at every run what its script says, the last turn for ever.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scripted {
    pub name: String,
    pub turns: Vec<Turn>,
}

impl Scripted {
    pub fn new(name: &str, turns: impl Into<Vec<Turn>>) -> Self {
        Scripted {
            name: name.to_owned(),
            turns: turns.into(),
        }
    }
}

impl Job for Scripted {
    const NAME: &'static str = "scripted";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let runs = cx.count(&self.name);
        cx.add(format!("{} {}", self.name, cx.attempt()));
        match self.turns.get(runs).or(self.turns.last()).unwrap() {
            Turn::Succeed => Ok(()),
            Turn::Err(text) => Err(text.clone().into()),
            Turn::Panic(text) => panic!("{text}"),
            Turn::RetryAfter(ms) => {
                Err(JobError::from("later").retry_after(Duration::from_millis(*ms)))
            }
            Turn::Fail => Err(JobError::from("no use").fail()),
            Turn::Discard => Err(JobError::from("no need").discard()),
            Turn::Snooze(ms) => Err(JobError::snooze(Duration::from_millis(*ms))),
            Turn::UntilCancelled => loop {
                cx.check()?;
                std::thread::sleep(Duration::from_millis(1));
            },
            Turn::ErrWhenCancelled => {
                until("the job is cancelled", || cx.is_cancelled());
                Err("no more".into())
            }
            Turn::SucceedWhenCancelled => {
                until("the job is cancelled", || cx.is_cancelled());
                Ok(())
            }
        }
    }
}

/// A job that does what its test says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call;

type Body = dyn Fn(&Context<'_, Doing>) -> JobResult + Send + Sync;

/// The body of a [`Call`].
pub struct Doing(Box<Body>);

impl Doing {
    pub fn new(body: impl Fn(&Context<'_, Doing>) -> JobResult + Send + Sync + 'static) -> Self {
        Doing(Box::new(body))
    }
}

impl Job for Call {
    const NAME: &'static str = "call";
    type State = Doing;
    type Output = ();

    fn perform(self, cx: &Context<'_, Doing>) -> JobResult {
        (cx.0)(cx)
    }
}

/// Enqueues such a job.
pub fn call(db: &TestDb, policy: Policy) -> JobId {
    let job = NewJob::new(&Call).unwrap().policy(policy);
    job.enqueue(&mut db.connection()).unwrap().id
}

/// As often as needed, at once.
pub fn stubborn(attempts: u32) -> Policy {
    Policy::new()
        .max_attempts(attempts)
        .backoff(Backoff::Fixed(Duration::ZERO))
}

/// A worker and a dispatcher in this process, with what their jobs write.
pub struct Bench {
    pub log: Arc<Log>,
    pub events: Events,
    pub worker: Handle,
    _dispatcher: Handle,
}

impl Bench {
    pub fn start(db: &TestDb) -> Self {
        Self::with(db, |registry, _| registry)
    }

    pub fn with(db: &TestDb, register: impl FnOnce(Registry, &Arc<Log>) -> Registry) -> Self {
        let log = Arc::new(Log::default());
        let registry = register(Registry::new().register::<Scripted>(Arc::clone(&log)), &log);
        let events = Events::default();
        let worker = Worker::new(&db.database, registry)
            .subscriber(events.subscriber())
            .threads(2)
            .heartbeat_interval(Duration::from_millis(50))
            .alive_threshold(Duration::from_secs(20));
        let dispatcher = Dispatcher::new(&db.database).polling_interval(Duration::from_millis(20));
        Bench {
            worker: worker.start().unwrap(),
            _dispatcher: dispatcher.start().unwrap(),
            events,
            log,
        }
    }
}

/// Enqueues a scripted job.
pub fn enqueue(db: &TestDb, name: &str, turns: impl Into<Vec<Turn>>, policy: Policy) -> JobId {
    NewJob::new(&Scripted::new(name, turns))
        .unwrap()
        .policy(policy)
        .enqueue(&mut db.connection())
        .unwrap()
        .id
}

/// Returns the number of executions in a table.
pub fn executions(db: &TestDb, table: &str) -> i64 {
    db.count(&format!(
        "SELECT count(*) AS n FROM solid_queue_{table}_executions"
    ))
}

pub fn finished(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
}
