//! Jobs that are claimed before a thread is free for them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::process::HEARTBEAT;
use crate::support::wait::{until, until_none_is_left};
use crossbeam_channel::bounded;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{
    Context, Delivery, Event, Handle, Job, JobResult, NewJob, Policy, Registry, Worker, enqueue_all,
};

on_each_database!(
    long_jobs_are_left_to_who_is_free,
    a_queue_that_runs_dry_is_shared,
    short_ones_are_done_whatever_their_delivery,
    an_important_job_does_not_wait_for_all_others,
    nothing_is_claimed_while_too_many_ends_are_unwritten,
);

struct Bench {
    log: Arc<Log>,
    gate: Arc<Gate>,
}

impl Bench {
    fn new() -> Self {
        Bench {
            log: Arc::default(),
            gate: Arc::default(),
        }
    }

    fn worker(&self, db: &TestDb) -> Handle {
        let registry = Registry::new()
            .register::<Note>(Arc::clone(&self.log))
            .register::<Wait>(Arc::clone(&self.gate));
        Worker::new(&db.database, registry)
            .threads(4)
            .start()
            .unwrap()
    }

    /// Jobs so short that a worker which knows them claims many at once.
    fn run_short_ones(&self, db: &TestDb) {
        let before = self.log.len();
        let jobs = (0..500).map(|n| NewJob::new(&Note::new(n.to_string())).unwrap());
        enqueue_all(&mut db.connection(), jobs).unwrap();
        until("the short ones are done", || self.log.len() == before + 500);
    }
}

/// However short the jobs before them were.
fn long_jobs_are_left_to_who_is_free(db: &TestDb) {
    let bench = Bench::new();
    let _first = bench.worker(db);
    bench.run_short_ones(db);
    let long = (0..8).map(|_| NewJob::new(&Wait).unwrap());
    enqueue_all(&mut db.connection(), long).unwrap();
    until("its threads are busy", || bench.gate.begun() == 4);
    until("it holds no more", || db.rows("claimed_executions") == 4);
    let _second = bench.worker(db);
    until("the other runs the rest", || bench.gate.begun() == 8);
    bench.gate.open();
    until("all are finished", || db.rows("claimed_executions") == 0);
    assert_eq!(bench.gate.ended(), 8);
}

/// A job that takes five milliseconds.
#[derive(Serialize, Deserialize)]
struct Nap;

impl Job for Nap {
    const NAME: &'static str = "nap";
    type State = Arc<AtomicUsize>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Self::State>) -> JobResult {
        std::thread::sleep(Duration::from_millis(5));
        cx.state().fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The worker that has claimed more than its threads can start releases it when the other one is
/// idle. Which one claims how much is a matter of chance, so there are some rounds.
fn a_queue_that_runs_dry_is_shared(db: &TestDb) {
    let (done, shared) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = || {
        let shared = Arc::clone(&shared);
        let subscriber = Subscriber::new(move |event| {
            if let Event::Released { why, .. } = event
                && why.contains("idle worker")
            {
                shared.fetch_add(1, Ordering::SeqCst);
            }
        });
        let registry = Registry::new().register::<Nap>(Arc::clone(&done));
        let worker = Worker::new(&db.database, registry).threads(4);
        worker.subscriber(subscriber).start().unwrap()
    };
    let _workers = [worker(), worker()];
    let mut rounds = 0;
    until("jobs were released for an idle worker", || {
        rounds += 1;
        let jobs = (0..60).map(|_| NewJob::new(&Nap).unwrap());
        enqueue_all(&mut db.connection(), jobs).unwrap();
        until("all are done", || {
            done.load(Ordering::SeqCst) == 60 * rounds
        });
        shared.load(Ordering::SeqCst) > 0
    });
    until("none is left", || {
        db.rows("ready_executions") + db.rows("claimed_executions") == 0
    });
    assert_eq!(
        done.load(Ordering::SeqCst),
        60 * rounds,
        "none has run twice"
    );
}

fn short_ones_are_done_whatever_their_delivery(db: &TestDb) {
    let bench = Bench::new();
    let _worker = bench.worker(db);
    bench.run_short_ones(db);
    let once = Policy::new().delivery(Delivery::AtMostOnce);
    let jobs = (0..400).map(|n| {
        let job = NewJob::new(&Note::new(format!("mixed {n}"))).unwrap();
        if n % 3 == 0 {
            job.policy(once.clone())
        } else {
            job
        }
    });
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    until("all are finished", || db.count(finished) == 900);
    let mut lines = bench.log.lines();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 900, "each has run, and no other twice");
    assert_eq!(bench.log.len(), 900);
}

/// A busy worker looks past what it has taken already, and yet not past what
/// came before that meanwhile.
fn an_important_job_does_not_wait_for_all_others(db: &TestDb) {
    let bench = Bench::new();
    let _worker = bench.worker(db);
    bench.run_short_ones(db);
    let mut conn = db.connect();
    for n in 0..20 {
        let jobs = (0..200).map(|_| NewJob::new(&Note::new("usual")).unwrap());
        enqueue_all(&mut conn, jobs).unwrap();
        let important = NewJob::new(&Note::new(format!("important {n}"))).unwrap();
        important.priority(-1).enqueue(&mut conn).unwrap();
    }
    until("all are done", || bench.log.len() == 500 + 20 * 201);
    assert_eq!(bench.log.count("important"), 20);
    until("none is left", || {
        db.rows("ready_executions") + db.rows("claimed_executions") == 0
    });
}

/// They would all run again if the process died.
fn nothing_is_claimed_while_too_many_ends_are_unwritten(db: &TestDb) {
    const JOBS: usize = 6_000;
    let jobs = (0..JOBS).map(|n| NewJob::new(&Note::new(n.to_string())).unwrap());
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let log: Arc<Log> = Arc::default();
    // The thread that writes the ends hears of the first one, and stands still.
    let (go_on, wait) = bounded::<()>(0);
    let subscriber = Subscriber::new(move |event| {
        if let Event::Finished { .. } = event {
            let _ = wait.recv();
        }
    });
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry)
        .threads(4)
        .heartbeat_interval(HEARTBEAT)
        .subscriber(subscriber)
        .start()
        .unwrap();
    // Dropped before the worker, which would wait for that thread.
    let go_on = go_on;
    until("it works", || log.len() > 2_000);
    let control = Control::start(db);
    let mut last = 0;
    until("no more jobs are begun", || {
        let before = log.len();
        control.has_had_its_turn(db);
        last = log.len();
        last > 2_000 && before == last
    });
    control.has_stopped();
    // Written, being written, unwritten, claimed ahead, and with the threads.
    assert!(last <= 500 + 500 + 2_000 + 1_000 + 4, "{last} have run");
    drop(go_on);
    until_none_is_left("more are finished", || {
        db.rows("ready_executions") + db.rows("claimed_executions")
    });
    assert_eq!(log.len(), JOBS, "each has run, and none twice");
    drop(worker);
}
