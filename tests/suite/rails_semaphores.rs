//! Jobs that Ruby enqueued with `limits_concurrency`, performed here: their semaphores are signalled at once.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Wait};
use crate::support::solid_queue;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::jobs::{Change, Jobs};
use windlass::{Context, Dispatcher, Job, JobError, JobId, JobResult, Registry, Worker};

const POLLING: Duration = Duration::from_millis(20);

/// Counts of its jobs: those that run, the most at once, and those that are done.
#[derive(Debug, Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    snoozed: Mutex<HashSet<JobId>>,
}

impl Gauge {
    /// Runs one of its jobs.
    fn run(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// A job whose Ruby class has a limit. Its Rust type knows none.
#[derive(Debug, Serialize, Deserialize)]
struct Limited {
    how: String,
}

impl Job for Limited {
    const NAME: &'static str = "LimitedJob";
    type State = Gauge;
    type Output = ();

    fn perform(self, cx: &Context<'_, Gauge>) -> JobResult {
        cx.run();
        match &*self.how {
            "fails" => Err(JobError::from("as told").fail()),
            "discards" => Err(JobError::from("as told").discard()),
            "snoozes" if cx.snoozed.lock().unwrap().insert(cx.job_id()) => {
                Err(JobError::snooze(Duration::ZERO))
            }
            _ => Ok(()),
        }
    }
}

fn value(db: &TestDb) -> i64 {
    db.count("SELECT CAST(value AS bigint) AS n FROM solid_queue_semaphores WHERE key = 'k'")
}

fn enqueue(db: &TestDb, how: &str, limit: u32) {
    let arguments = format!(r#"[{{"how":"{how}","_aj_symbol_keys":["how"]}}]"#);
    solid_queue::enqueue_limited(db, "LimitedJob", &arguments, "k", limit);
}

fn a_semaphore_is_signalled_at_each_end(db: &TestDb) {
    for limit in [1_u32, 2] {
        db.execute("DELETE FROM solid_queue_semaphores");
        db.execute("DELETE FROM solid_queue_jobs");
        db.execute("DELETE FROM solid_queue_failed_executions");
        for how in ["finishes", "fails", "snoozes", "discards"].repeat(3) {
            enqueue(db, how, limit);
        }
        assert_eq!(value(db), 0);
        let gauge = Arc::new(Gauge::default());
        let registry = Registry::new().register::<Limited>(Arc::clone(&gauge));
        let worker = Worker::new(&db.database, registry)
            .threads(4)
            .polling_interval(POLLING);
        let _worker = worker.start().unwrap();
        until("all have run", || gauge.done.load(Ordering::SeqCst) == 15);
        until("each slot is given back", || value(db) == i64::from(limit));
        let most = gauge.most.load(Ordering::SeqCst);
        assert!(most <= limit as usize, "{most} at once");
        assert_eq!(
            db.rows("blocked_executions") + db.rows("ready_executions"),
            0
        );
        assert_eq!(db.rows("failed_executions"), 3);
    }
}

/// A job that a stop interrupts waits for a slot again, which another job may have taken meanwhile.
fn what_is_given_back_gives_its_slot_back(db: &TestDb) {
    let wait = || solid_queue::enqueue_limited(db, Wait::NAME, "[]", "k", 1);
    wait();
    wait();
    let run = |gate: &Arc<Gate>| {
        let registry = Registry::new().register::<Wait>(Arc::clone(gate));
        let worker = Worker::new(&db.database, registry)
            .threads(2)
            .polling_interval(POLLING);
        worker
            .shutdown_timeout(Duration::from_millis(50))
            .start()
            .unwrap()
    };
    let gate = Arc::new(Gate::default());
    let worker = run(&gate);
    until("the first one runs", || gate.begun() == 1);
    drop(worker);
    gate.open();
    assert_eq!(db.rows("claimed_executions"), 0);
    let gate = Arc::new(Gate::default());
    let _worker = run(&gate);
    until("one runs again", || gate.begun() == 1);
    assert_eq!(value(db), 0);
    assert_eq!(db.rows("claimed_executions"), 1);
    gate.open();
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("both have ended", || gate.ended() == 2 && value(db) == 1);
}

/// A dispatcher of Windlass makes a due job of Ruby ready at once, where its semaphore has a slot.
fn a_due_job_takes_a_free_slot(db: &TestDb) {
    enqueue(db, "finishes", 1);
    let gauge = Arc::new(Gauge::default());
    let registry = Registry::new().register::<Limited>(Arc::clone(&gauge));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    until("the slot is free", || {
        gauge.done.load(Ordering::SeqCst) == 1 && value(db) == 1
    });
    let arguments = r#"[{"how":"finishes"}]"#;
    solid_queue::schedule(db, "LimitedJob", arguments, "2999-01-01 00:00:00.000001");
    db.execute("UPDATE solid_queue_jobs SET concurrency_key = 'k'");
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000001'",
    );
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the due one is done", || {
        gauge.done.load(Ordering::SeqCst) == 2
    });
    until("its slot is given back", || value(db) == 1);
}

/// One that is discarded while it waits has a slot only if it is ready.
fn what_is_discarded_gives_its_slot_back(db: &TestDb) {
    for _ in 0..3 {
        enqueue(db, "finishes", 1);
    }
    let mut conn = db.connect();
    let oldest = db.count("SELECT min(id) AS n FROM solid_queue_jobs");
    let newest = db.count("SELECT max(id) AS n FROM solid_queue_jobs");
    let some = Jobs::waiting().ids([JobId(oldest), JobId(newest)]);
    some.change(&mut conn, Change::Discard).unwrap();
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the other one is ready", || {
        db.rows("blocked_executions") == 0
    });
    assert_eq!(Jobs::waiting().count(&mut conn).unwrap(), 1);
    assert_eq!(value(db), 0);
}

/// One round of a worker of Solid Queue: it claims a job, performs it, ends it, signals its semaphore, and makes the next
/// blocked job ready, each in a transaction of its own. Returns whether there was a job.
fn ruby_performs_one(db: &TestDb, process: i64, gauge: &Gauge) -> bool {
    let now = "'2026-11-21 03:36:27.384057'";
    let lock = |what: &str| {
        if db.is_postgres() {
            format!(" FOR UPDATE{what}")
        } else {
            String::new()
        }
    };
    let claimed =
        format!("SELECT job_id FROM solid_queue_claimed_executions WHERE process_id = {process}");
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) SELECT job_id, {process}, {now} \
             FROM solid_queue_ready_executions ORDER BY priority, job_id LIMIT 1{}",
            lock(" SKIP LOCKED")
        ),
        &format!("DELETE FROM solid_queue_ready_executions WHERE job_id IN ({claimed})"),
    ]);
    if db.count(&format!("SELECT count(*) AS n FROM ({claimed}) AS mine")) == 0 {
        return false;
    }
    gauge.run();
    db.in_transaction(&[
        &format!("UPDATE solid_queue_jobs SET finished_at = {now} WHERE id IN ({claimed})"),
        &format!("DELETE FROM solid_queue_claimed_executions WHERE process_id = {process}"),
    ]);
    db.execute("UPDATE solid_queue_semaphores SET value = value + 1 WHERE key = 'k' AND value < 2");
    let is_ready = "SELECT job_id FROM solid_queue_ready_executions";
    db.in_transaction(&[
        &format!(
            "SELECT id FROM solid_queue_blocked_executions WHERE concurrency_key = 'k' \
             ORDER BY priority, job_id LIMIT 1{}",
            lock(" SKIP LOCKED")
        ),
        &format!("SELECT id FROM solid_queue_semaphores WHERE key = 'k'{}", lock("")),
        &format!(
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
             SELECT job_id, queue_name, priority, {now} FROM solid_queue_blocked_executions WHERE concurrency_key = 'k' \
             AND EXISTS (SELECT 1 FROM solid_queue_semaphores WHERE key = 'k' AND value > 0) \
             ORDER BY priority, job_id LIMIT 1{}",
            lock(" SKIP LOCKED")
        ),
        &format!(
            "UPDATE solid_queue_semaphores SET value = value - 1 WHERE key = 'k' \
             AND EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id IN ({is_ready}))"
        ),
        &format!("DELETE FROM solid_queue_blocked_executions WHERE job_id IN ({is_ready})"),
    ]);
    true
}

/// Workers of Ruby and of Rust serve one queue, whose jobs have one limit of two.
fn both_sides_hold_one_limit(db: &TestDb) {
    for process in 1..=2 {
        db.execute(&format!(
            "INSERT INTO solid_queue_processes (id, kind, last_heartbeat_at, pid, created_at, name) VALUES \
             ({process}, 'Worker', '2026-01-01 00:00:00.000000', 1, '2026-01-01 00:00:00.000000', 'ruby-{process}')"
        ));
    }
    if db.is_postgres() {
        db.execute("ALTER TABLE solid_queue_processes ALTER COLUMN id RESTART WITH 10");
    }
    const JOBS: usize = 100;
    for _ in 0..JOBS {
        enqueue(db, "finishes", 2);
    }
    let gauge = Arc::new(Gauge::default());
    let registry = Registry::new().register::<Limited>(Arc::clone(&gauge));
    let worker = Worker::new(&db.database, registry)
        .threads(2)
        .polling_interval(POLLING);
    let _worker = worker.start().unwrap();
    std::thread::scope(|scope| {
        for process in 1..=2 {
            let gauge = &gauge;
            scope.spawn(move || {
                until("all have run", || {
                    while ruby_performs_one(db, process, gauge) {}
                    gauge.done.load(Ordering::SeqCst) >= JOBS
                });
            });
        }
    });
    until("all have ended, and each slot is given back", || {
        let left =
            ["ready", "claimed", "blocked"].map(|place| db.rows(&format!("{place}_executions")));
        left == [0; 3] && value(db) == 2
    });
    assert_eq!(gauge.done.load(Ordering::SeqCst), JOBS);
    let most = gauge.most.load(Ordering::SeqCst);
    assert!(most <= 2, "{most} at once");
}

/// Places due or retried jobs of the gem as Solid Queue does: it takes a slot of their semaphore, whose limit is one if
/// the class in Ruby has none, and blocks the others.
fn enqueue_of_gem(db: &TestDb, slots: u32) {
    let arguments = r#"[{"how":"finishes","_aj_symbol_keys":["how"]}]"#;
    solid_queue::place_limited(db, "LimitedJob", arguments, "k", 1, &slots.to_string());
}

/// Their limit is that of Windlass, and no slot of Ruby holds one of them up.
fn limited_jobs_of_the_gem_follow_each_other(db: &TestDb) {
    for slots in [1_u32, 3] {
        db.execute("DELETE FROM solid_queue_semaphores");
        for _ in 0..10 {
            enqueue_of_gem(db, slots);
        }
        assert_eq!(db.rows("blocked_executions"), 9);
        let gauge = Arc::new(Gauge::default());
        let registry = Registry::new().register::<Limited>(Arc::clone(&gauge));
        let worker = Worker::new(&db.database, registry)
            .threads(4)
            .polling_interval(POLLING);
        let _worker = worker.start().unwrap();
        until("those that waited are done", || {
            gauge.done.load(Ordering::SeqCst) == 10
        });
        // While the worker runs.
        for _ in 0..10 {
            enqueue_of_gem(db, slots);
        }
        until("all are done", || gauge.done.load(Ordering::SeqCst) == 20);
        until("the slot of Ruby is free", || value(db) == 1);
        let most = gauge.most.load(Ordering::SeqCst);
        assert!(most <= slots as usize, "{most} at once");
        assert!(
            windlass::limits::check_semaphores(&mut db.connection())
                .unwrap()
                .is_empty()
        );
    }
}

/// A limited job of the gem that leaves its place without a run.
fn a_limited_job_of_the_gem_that_is_discarded_holds_up_none(db: &TestDb) {
    for _ in 0..3 {
        enqueue_of_gem(db, 1);
    }
    let mut conn = db.connect();
    let first = db.count("SELECT job_id AS n FROM solid_queue_ready_executions");
    let ready = Jobs::waiting().ids([JobId(first)]);
    ready.change(&mut conn, Change::Discard).unwrap();
    let gauge = Arc::new(Gauge::default());
    let registry = Registry::new().register::<Limited>(Arc::clone(&gauge));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    until("the others are done", || {
        gauge.done.load(Ordering::SeqCst) == 2
    });
    until("the slot of Ruby is free", || value(db) == 1);
}

on_each_database!(
    limited_jobs_of_the_gem_follow_each_other,
    a_limited_job_of_the_gem_that_is_discarded_holds_up_none,
    both_sides_hold_one_limit,
    a_semaphore_is_signalled_at_each_end,
    what_is_given_back_gives_its_slot_back,
    a_due_job_takes_a_free_slot,
    what_is_discarded_gives_its_slot_back,
);
