//! Jobs in every state, made by real workers, for the pages about jobs.

use crate::support::TestDb;
use crate::support::jobs::Gate;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass::policies::OnTimeout;
use windlass::{
    Backoff, Concurrency, Context, Delivery, Dispatcher, Handle, Job, JobError, JobId, JobResult,
    NewJob, OnConflict, Policy, Registry, Worker,
};

/// The text that no page may show, to no viewer.
pub const SECRET: &str = "hunter2-never-shown";

/// Does what its mode says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sync {
    pub mode: String,
    pub account: u32,
    pub api_token: String,
    pub card: Value,
}

impl Sync {
    pub fn new(mode: &str) -> Self {
        Sync {
            mode: mode.to_owned(),
            account: 7,
            api_token: SECRET.to_owned(),
            card: json!({"number": SECRET, "name": "Ada"}),
        }
    }
}

/// The gate at which running jobs wait.
#[derive(Debug, Default)]
pub struct Held(pub Gate);

impl Job for Sync {
    const NAME: &'static str = "sync_account";
    const REDACT: &'static [&'static str] = &["api_token", "card.number"];
    type State = Held;
    type Output = Value;

    fn perform(self, cx: &Context<'_, Held>) -> JobResult<Value> {
        cx.log(format!("starts account {}", self.account));
        match &*self.mode {
            "finish" => Ok(json!({"rows": 1204, "api_token": SECRET})),
            "run" => {
                let mut conn = cx.connection()?;
                cx.step(&mut conn, "open_session", |_| {
                    Ok::<_, JobError>(json!({"id": "s-81f2", "api_token": SECRET}))
                })?;
                drop(conn);
                cx.progress(64.0, "page 27 of 42");
                cx.0.pass();
                Ok(Value::Null)
            }
            "late" => loop {
                cx.check()?;
                std::thread::sleep(Duration::from_millis(2));
            },
            "panic" => panic!("it met no account"),
            "discard" => Err(JobError::from("the account was closed").discard()),
            _ => Err(JobError::from(
                "connection reset by peer (os error 104)\n  caused by: reading page 12",
            )),
        }
    }
}

/// The jobs by their names, and the worker that holds some of them.
pub struct World {
    pub jobs: BTreeMap<&'static str, i64>,
    gate: Arc<Held>,
    _worker: Handle,
    _dispatcher: Handle,
}

impl Drop for World {
    fn drop(&mut self) {
        self.gate.0.open();
    }
}

impl World {
    pub fn job(&self, name: &str) -> i64 {
        self.jobs[name]
    }
}

/// The database's clock, for rows that other programs have stored.
pub fn now(db: &TestDb) -> &'static str {
    match db.is_postgres() {
        true => "(statement_timestamp() AT TIME ZONE 'UTC')",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    }
}

fn sync(mode: &str) -> NewJob {
    NewJob::new(&Sync::new(mode)).unwrap().queue("import")
}

fn hourly(attempts: u32) -> Policy {
    Policy::new()
        .max_attempts(attempts)
        .backoff(Backoff::Fixed(Duration::from_secs(3600)))
}

/// Makes the jobs, and waits until each is in its state.
pub fn world(db: &TestDb) -> World {
    let gate = Arc::new(Held::default());
    let registry = Registry::new().register::<Sync>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry)
        .queues(["import"])
        .unwrap()
        .threads(3)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_secs(60));
    let dispatcher = Dispatcher::new(&db.database).polling_interval(Duration::from_millis(20));
    let mut world = World {
        jobs: BTreeMap::new(),
        gate,
        _worker: worker.start().unwrap(),
        _dispatcher: dispatcher.start().unwrap(),
    };
    ended(db, &mut world);
    held(db, &mut world);
    waiting(db, &mut world);
    of_ruby(db, &mut world);
    world
}

fn add(db: &TestDb, world: &mut World, name: &'static str, job: NewJob) -> JobId {
    let id = job.enqueue(&mut db.connection()).unwrap().id;
    world.jobs.insert(name, id.0);
    id
}

fn ended(db: &TestDb, world: &mut World) {
    let tagged = sync("finish").tag("eu").meta("ticket", "T-1");
    add(
        db,
        world,
        "finished",
        tagged.policy(Policy::new().keep_result(Duration::from_secs(3600))),
    );
    add(
        db,
        world,
        "failed",
        sync("fail").policy(
            Policy::new()
                .max_attempts(2)
                .backoff(Backoff::Fixed(Duration::ZERO)),
        ),
    );
    add(db, world, "panicked", sync("panic"));
    let timeout = Policy::new()
        .timeout(Duration::from_millis(50))
        .on_timeout(OnTimeout::Fail);
    add(db, world, "timed_out", sync("late").policy(timeout));
    add(db, world, "discarded", sync("discard"));
    add(db, world, "retried", sync("fail").policy(hourly(5)));
    let once = Policy::new().delivery(Delivery::AtMostOnce);
    add(db, world, "once", sync("fail").policy(once));
    let cancelled = add(
        db,
        world,
        "cancelled",
        sync("finish").after(Duration::from_secs(3600)),
    );
    windlass::jobs::cancel(&mut db.connection(), cancelled).unwrap();
    until("they have ended", || {
        db.rows("failed_executions") == 4 && db.rows("scheduled_executions") == 1
    });
    until("the others have finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 3
    });
}

fn held(db: &TestDb, world: &mut World) {
    let limited = |mode: &str| sync(mode).concurrency(Concurrency::new("7").group("sync"));
    add(db, world, "running", limited("run"));
    add(
        db,
        world,
        "unique",
        sync("run").unique_id("sync/customer/7"),
    );
    until("two run, with their progress", || {
        db.count(
            "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE note LIKE '%page 27%'",
        ) == 2
    });
    add(db, world, "limited", limited("finish"));
    let again = Policy::new().on_conflict(OnConflict::RunAgain);
    let again = sync("finish").unique_id("sync/customer/7").policy(again);
    add(db, world, "behind", again);
    let ordered = || {
        sync("fail")
            .concurrency(Concurrency::new("a").group("line").ordered())
            .policy(hourly(3))
    };
    add(db, world, "first", ordered());
    until("it waits for its retry", || {
        db.rows("scheduled_executions") == 2
    });
    add(db, world, "second", ordered());
    until("three are blocked", || db.rows("blocked_executions") == 3);
}

fn waiting(db: &TestDb, world: &mut World) {
    add(
        db,
        world,
        "later",
        sync("finish").after(Duration::from_secs(7200)).priority(5),
    );
    add(db, world, "paused", sync("finish").queue("webhooks"));
    let keyed = sync("finish").queue("media").idempotency_key("order-77");
    add(db, world, "elsewhere", keyed.priority(-3));
    let other = NewJob::of_class("unregistered", format!(r#"{{"token":"{SECRET}"}}"#));
    add(db, world, "unknown", other.queue("media"));
    let actor = windlass::audit::Actor::named("ada").reason("the provider is down");
    actor.pause_queue(&mut db.connection(), "webhooks").unwrap();
    let recurring = add(db, world, "recurring", sync("finish").queue("media"));
    db.execute(&format!(
        "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
         SELECT id, 'nightly', created_at, created_at FROM solid_queue_jobs WHERE id = {}",
        recurring.0
    ));
}

/// A job that Ruby has enqueued, and one that it has run and stored as failed.
fn of_ruby(db: &TestDb, world: &mut World) {
    for (name, id) in [("of_ruby", "0199-aj-1"), ("failed_in_ruby", "0199-aj-2")] {
        let arguments = json!({
            "job_class": "ReportJob", "job_id": id, "queue_name": "reports",
            "arguments": [{"report": "sales", "_aj_symbol_keys": ["report"]}],
        });
        db.execute(&format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, active_job_id, created_at, updated_at) \
             VALUES ('reports', 'ReportJob', '{arguments}', 0, '{id}', {now}, {now})",
            now = now(db)
        ));
        let job = db.count(&format!(
            "SELECT id AS n FROM solid_queue_jobs WHERE active_job_id = '{id}'"
        ));
        world.jobs.insert(name, job);
    }
    let error = json!({
        "exception_class": "Net::ReadTimeout", "message": "Net::ReadTimeout with #<TCPSocket:(closed)>",
        "backtrace": ["app/jobs/report_job.rb:12:in `perform`", "lib/worker.rb:3"],
    });
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES ({}, '{error}', {})",
        world.job("failed_in_ruby"),
        now(db)
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) VALUES ({}, 'reports', 0, {})",
        world.job("of_ruby"),
        now(db)
    ));
}
