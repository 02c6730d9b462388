//! A Postgres server that misbehaves for a while: read-only, out of
//! connections, sessions that are cut off, a restart. Nobody exits, and every
//! job is done once.

use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Wait};
use crate::support::process::{HEARTBEAT, THRESHOLD};
use crate::support::server::Server;
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass::NewJob;
use windlass::hooks::Subscriber;
use windlass::{Context, Database, Handle, Job, JobResult, Registry, Worker, enqueue_all};

/// Notes its number after a moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step(usize);

impl Job for Step {
    const NAME: &'static str = "step";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        std::thread::sleep(Duration::from_millis(5));
        cx.add(self.0.to_string());
        Ok(())
    }
}

/// A worker that connects as a role of its own, so that the troubles of its
/// sessions are nobody else's.
struct Scene {
    db: TestDb,
    role: Option<String>,
    log: Arc<Log>,
    gate: Arc<Gate>,
    events: Events,
    worker: Handle,
}

impl Scene {
    fn new() -> Self {
        let db = TestDb::postgres();
        let role = format!("role_{:016x}", fastrand::u64(..));
        let schema = &db.texts("SELECT current_schema()::text AS t")[0];
        for grant in [
            format!("CREATE ROLE {role} LOGIN"),
            format!("GRANT USAGE ON SCHEMA {schema} TO {role}"),
            format!("GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}"),
            format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"),
        ] {
            db.execute(&grant);
        }
        let (_, rest) = db.url.split_once('@').unwrap();
        let url = format!("postgres://{role}@{rest}");
        Self::of(db, &url, Some(role))
    }

    fn of(db: TestDb, url: &str, role: Option<String>) -> Self {
        let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
        let registry = Registry::new()
            .register::<Step>(log.clone())
            .register::<Wait>(gate.clone());
        let events = Events::default();
        let subscriber: Subscriber = events.subscriber();
        let worker = Worker::new(&Database::open(url).unwrap(), registry)
            .threads(4)
            .polling_interval(Duration::from_millis(200))
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD)
            .subscriber(subscriber)
            .start()
            .unwrap();
        until("it is registered", || db.rows("processes") == 1);
        Scene {
            db,
            role,
            log,
            gate,
            events,
            worker,
        }
    }

    fn enqueue(&self, count: usize) {
        self.enqueue_from(0, count);
    }

    /// Jobs with so many numbers from `first` on.
    fn enqueue_from(&self, first: usize, count: usize) {
        let steps: Vec<Step> = (first..first + count).map(Step).collect();
        let jobs = steps.iter().map(|step| NewJob::new(step).unwrap());
        enqueue_all(&mut self.db.connection(), jobs).unwrap();
    }

    /// Changes the role and ends its sessions, which would not notice.
    fn alter(&self, change: &str) {
        let role = self.role.as_ref().unwrap();
        self.db.execute(&format!("ALTER ROLE {role} {change}"));
        self.cut();
    }

    /// Ends the sessions of the role, and returns their number.
    fn cut(&self) -> usize {
        let role = self.role.as_ref().unwrap();
        let sessions = "SELECT CAST(pg_terminate_backend(pid) AS text) AS t FROM pg_stat_activity";
        let ended = self
            .db
            .texts(&format!("{sessions} WHERE usename = '{role}'"));
        ended.len()
    }

    fn finished(&self) -> usize {
        let jobs = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
        usize::try_from(self.db.count(jobs)).unwrap()
    }

    /// Waits until so much time has passed without a heartbeat that the worker
    /// trusts its claims no longer.
    fn goes_unheard(&self) {
        until("the worker loses its registration", || {
            self.events.count("Lost") > 0
        });
    }

    /// Two jobs run when the trouble begins and end in it, twenty come in it.
    fn outlives(self, trouble: impl FnOnce(&Scene), heal: impl FnOnce(&Scene)) {
        for _ in 0..2 {
            Wait.enqueue(&mut self.db.connection()).unwrap();
        }
        until("both jobs run", || self.gate.begun() == 2);
        trouble(&self);
        self.gate.open();
        until("both jobs have ended", || self.gate.ended() == 2);
        self.enqueue(20);
        // It has tried, and was refused.
        until("their ends cannot be written", || {
            let troubles = self.events.of("Unreachable");
            troubles.iter().any(|trouble| {
                trouble.contains("finish jobs") || trouble.contains("end some claims")
            })
        });
        let waits = "SELECT count(*) AS n FROM solid_queue_jobs \
                     WHERE class_name = 'wait' AND finished_at IS NULL";
        assert_eq!(self.db.count(waits), 2, "the trouble is none");
        heal(&self);
        self.ends_well(20, 22);
    }

    /// That every step was done once, every job has finished, and the worker
    /// still runs.
    fn ends_well(mut self, steps: usize, jobs: usize) {
        until("every job has finished", || self.finished() == jobs);
        let lines = self.log.lines();
        let different: BTreeSet<&String> = lines.iter().collect();
        assert_eq!((lines.len(), different.len()), (steps, steps));
        until("each is told", || self.events.count("Finished") >= jobs);
        assert_eq!(self.events.count("Fenced"), 0);
        assert_eq!(self.db.rows("failed_executions"), 0);
        assert_eq!(self.db.rows("claimed_executions"), 0);
        assert!(self.worker.join(Duration::ZERO).is_none(), "it has ended");
        self.worker.stop();
        let stopped = self.worker.join(DEADLINE).unwrap();
        assert!(stopped.is_drained() && !stopped.is_broken());
        assert_eq!(self.events.count("Finished"), jobs, "told once each");
        assert_eq!(self.db.rows("processes"), 0);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.worker.stop_now();
        if let Some(role) = &self.role {
            self.cut();
            self.db.execute(&format!("DROP OWNED BY {role}"));
            self.db.execute(&format!("DROP ROLE {role}"));
        }
    }
}

#[test]
fn read_only() {
    Scene::new().outlives(
        |scene| scene.alter("SET default_transaction_read_only = on"),
        |scene| {
            scene.goes_unheard();
            scene.alter("RESET default_transaction_read_only");
        },
    );
}

#[test]
fn no_connection_left() {
    Scene::new().outlives(
        |scene| scene.alter("CONNECTION LIMIT 0"),
        |scene| {
            scene.goes_unheard();
            scene.alter("CONNECTION LIMIT -1");
        },
    );
}

/// The worker has half a dozen loops, which all want one.
#[test]
fn one_connection_left() {
    let scene = Scene::new();
    scene.enqueue(20);
    scene.alter("CONNECTION LIMIT 1");
    until("the worker tells of the trouble", || {
        scene.events.count("Unreachable") > 0
    });
    scene.alter("CONNECTION LIMIT -1");
    scene.ends_well(20, 20);
}

/// Somebody holds the claims for longer than a statement waits, and every new
/// session begins with a timeout that is far too short.
#[test]
fn statements_that_time_out() {
    let scene = Scene::new();
    let holder = std::cell::RefCell::new(scene.db.connect());
    scene.outlives(
        |scene| {
            let mut holder = holder.borrow_mut();
            execute(&mut *holder, "BEGIN");
            let lock = "SELECT 1 FROM solid_queue_claimed_executions FOR UPDATE";
            execute(&mut *holder, lock);
            scene.alter("SET statement_timeout = '20ms'");
        },
        |scene| {
            execute(&mut *holder.borrow_mut(), "ROLLBACK");
            scene.alter("RESET statement_timeout");
        },
    );
}

#[test]
fn sessions_that_are_cut_off() {
    const ROUNDS: usize = 40;
    let scene = Scene::new();
    for round in 0..ROUNDS {
        scene.enqueue_from(round * 10, 10);
        // At any moment of what the worker does with them.
        std::thread::sleep(Duration::from_millis(fastrand::u64(..40)));
        until("there are sessions to cut", || scene.cut() > 0);
    }
    scene.ends_well(ROUNDS * 10, ROUNDS * 10);
}

#[test]
fn a_restart_under_load() {
    const JOBS: usize = 600;
    let Some(server) = Server::start() else {
        eprintln!("NOT TESTED: restarts need WINDLASS_TEST_POSTGRES_BIN, which bin/test sets");
        return;
    };
    let db = server.database();
    let url = db.url.clone();
    let scene = Scene::of(db, &url, None);
    scene.enqueue(JOBS);
    for (number, mode) in (1..).zip(["fast", "immediate", "immediate"]) {
        until("some jobs are done", || scene.log.len() >= number * 100);
        server.restart(mode);
    }
    scene.ends_well(JOBS, JOBS);
}
