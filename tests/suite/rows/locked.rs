//! Rows that another program has locked. On SQLite there are none.

use super::Locked;
use crate::policies::{Turn, enqueue};
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::process::{Do, Scene, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{Concurrency, Dispatcher, Handle, Job, JobId, NewJob, Policy, Registry, Worker};

const HOUR: Duration = Duration::from_secs(3600);

struct Bench {
    db: TestDb,
    log: Arc<Log>,
    gate: Arc<Gate>,
    events: Events,
    _workers: Vec<Handle>,
}

impl Bench {
    /// Workers that look for work only when they are woken.
    fn new(workers: usize) -> Self {
        let db = TestDb::postgres();
        let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
        let events = Events::default();
        let worker = || {
            let registry = Registry::new()
                .register::<Note>(Arc::clone(&log))
                .register::<crate::policies::Scripted>(Arc::clone(&log))
                .register::<Wait>(Arc::clone(&gate));
            Worker::new(&db.database, registry)
                .threads(4)
                .polling_interval(HOUR)
                .subscriber(events.subscriber())
                .start()
                .unwrap()
        };
        let workers = (0..workers).map(|_| worker()).collect();
        Bench {
            db,
            log,
            gate,
            events,
            _workers: workers,
        }
    }

    fn finished(&self) -> i64 {
        self.db
            .count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
    }

    /// That no statement had to wait so long that it was given up.
    fn has_waited(&self) -> Option<String> {
        let troubles = self.events.of("Unreachable");
        troubles
            .into_iter()
            .find(|trouble| trouble.contains("timeout"))
    }
}

#[test]
fn a_claim_that_is_locked_holds_up_no_other_end() {
    let bench = Bench::new(1);
    let db = &bench.db;
    Wait.enqueue(&mut db.connection()).unwrap();
    until("it runs", || bench.gate.begun() == 1);
    let failing = enqueue(db, "a", [Turn::UntilCancelled], Policy::new());
    until("the other runs", || bench.log.count("a") == 1);
    windlass::jobs::cancel(&mut db.connection(), failing).unwrap();
    let locked = Locked::rows(db, "SELECT 1 FROM solid_queue_claimed_executions");
    bench.gate.open();
    until("it has ended", || bench.gate.ended() == 1);
    for round in 0..5 {
        let notes = (0..40).map(|n| NewJob::new(&Note::new(n.to_string())).unwrap());
        windlass::enqueue_all(&mut db.connection(), notes).unwrap();
        enqueue(db, "b", [Turn::Fail], Policy::new());
        until("the others have ended", || {
            bench.finished() == 40 * (round + 1) && db.rows("failed_executions") == round + 1
        });
    }
    assert_eq!(bench.has_waited(), None);
    assert_eq!(db.rows("claimed_executions"), 2);
    drop(locked);
    until("they have ended too", || db.rows("claimed_executions") == 0);
    assert_eq!(bench.events.count("Fenced"), 0);
}

/// Counts how often keys were named.
fn named(db: &TestDb) -> i64 {
    let sequence = "pg_get_serial_sequence('windlass_wanted_keys', 'id')::regclass";
    let ask = format!("SELECT coalesce(pg_sequence_last_value({sequence}), 0) AS n");
    db.count(&ask)
}

#[test]
fn a_blocked_job_that_is_locked_keeps_no_idle_worker_busy() {
    let bench = Bench::new(2);
    let db = &bench.db;
    let limited = |job: NewJob| {
        job.concurrency(Concurrency::new("k").group("g").limit(1))
            .enqueue(&mut db.connection())
            .unwrap()
    };
    limited(NewJob::new(&Wait).unwrap());
    until("it runs", || bench.gate.begun() == 1);
    limited(NewJob::new(&Note::new("blocked")).unwrap());
    until("it is blocked", || db.rows("blocked_executions") == 1);
    let locked = Locked::rows(db, "SELECT 1 FROM solid_queue_blocked_executions");
    bench.gate.open();
    until("the first has finished", || bench.finished() == 1);
    // Whatever is still to be done, it comes to rest.
    let mut quiet = (0, Instant::now());
    until("no worker has anything to do", || {
        let now = named(db);
        if now != quiet.0 {
            quiet = (now, Instant::now());
        }
        quiet.1.elapsed() > Duration::from_secs(1)
    });
    assert_eq!(db.rows("blocked_executions"), 1);
    drop(locked);
    // As soon as any work comes, or a dispatcher by.
    Note::new("other").enqueue(&mut db.connection()).unwrap();
    until("both have finished", || bench.finished() == 3);
}

/// Counts the looks at the scheduled jobs: each asks every row for a number.
fn count_looks(db: &TestDb) {
    db.execute("CREATE SEQUENCE looks");
    db.execute("CREATE TABLE due (job_id bigint)");
    db.in_transaction(&[
        "ALTER TABLE solid_queue_scheduled_executions RENAME TO scheduled",
        "CREATE VIEW solid_queue_scheduled_executions AS SELECT id, job_id, queue_name, priority, \
           CASE WHEN job_id IN (SELECT job_id FROM due) THEN timestamp '2026-01-01' ELSE scheduled_at END \
           AS scheduled_at, created_at FROM scheduled WHERE nextval('looks') > 0",
    ]);
}

#[test]
fn a_due_job_that_is_locked_keeps_no_dispatcher_busy() {
    let db = TestDb::postgres();
    let later = |text: &str| {
        let job = NewJob::new(&Note::new(text)).unwrap();
        job.after(HOUR).enqueue(&mut db.connection()).unwrap().id
    };
    let (locked_one, other) = (later("locked"), later("other"));
    // It starts on tables only, not on a view.
    let _dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(400))
        .start()
        .unwrap();
    count_looks(&db);
    let one = format!("SELECT 1 FROM scheduled WHERE job_id = {}", locked_one.0);
    let locked = Locked::rows(&db, &one);
    let is_due = |job: JobId| db.execute(&format!("INSERT INTO due VALUES ({})", job.0));
    is_due(locked_one);
    let looks = || db.count("SELECT last_value AS n FROM looks");
    until("it has looked", || looks() > 10);
    let (start, before) = (Instant::now(), looks());
    until("it has looked more often", || looks() > before + 30);
    let took = start.elapsed();
    assert!(took > Duration::from_secs(2), "30 looks in {took:?}");
    // Others do not wait for it.
    is_due(other);
    until("the other is ready", || db.rows("ready_executions") == 1);
    drop(locked);
    until("both are ready", || db.rows("ready_executions") == 2);
    assert_ne!(locked_one, other);
}

#[test]
fn a_dead_process_with_a_locked_claim_holds_up_no_other() {
    let db = TestDb::postgres();
    let scene = Scene::with_deaths(&db);
    for name in ["a", "b"] {
        let mut worker = scene.worker();
        let work = Work::new(name, Do::WaitFor(scene.gate("go")));
        work.enqueue(&mut db.connection()).unwrap();
        scene.started(name, 1);
        worker.signal(Signal::KILL);
        worker.exit();
    }
    let first = "SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = 1";
    let locked = Locked::rows(&db, first);
    let _supervisor = scene.supervisor(1);
    scene.started("b", 2);
    assert_eq!(scene.count("start", "a"), 1);
    drop(locked);
    scene.started("a", 2);
    scene.open("go");
    scene.drained();
}
