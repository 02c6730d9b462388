//! The end of a limited job claims the next one of its key, unless something else comes first.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{Concurrency, Delivery, Event, Handle, Job as _, NewJob, Policy, Registry, Worker};

on_each_database!(
    slots_are_passed_on_in_order,
    one_thread_runs_the_jobs_of_a_key,
    a_more_urgent_job_comes_first,
    an_earlier_queue_comes_first,
    a_paused_queue_keeps_its_jobs,
    a_quiet_worker_takes_none,
    a_stop_leaves_the_next_job_to_others,
    a_job_that_waits_for_a_free_thread_has_its_turn,
);

crate::through_a_pooler!(
    slots_are_passed_on_in_order,
    a_more_urgent_job_comes_first,
    an_earlier_queue_comes_first,
    a_paused_queue_keeps_its_jobs,
    a_quiet_worker_takes_none,
    a_stop_leaves_the_next_job_to_others,
    a_job_that_waits_for_a_free_thread_has_its_turn,
);

fn on_key(job: NewJob) -> NewJob {
    job.concurrency(Concurrency::new("k").group("g"))
}

fn note(text: &str) -> NewJob {
    on_key(NewJob::new(&Note::new(text)).unwrap())
}

struct Scene {
    gate: Arc<Gate>,
    log: Arc<Log>,
    worker: Handle,
}

impl Scene {
    /// A worker with one thread that runs a job of the key until the gate is opened.
    fn new(db: &TestDb, queues: &[&str]) -> Self {
        let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
        let worker = Worker::new(&db.database, registry(&gate, &log))
            .queues(queues)
            .unwrap()
            .threads(1);
        let worker = worker.start().unwrap();
        let first = on_key(NewJob::new(&Wait).unwrap());
        first.queue("b").enqueue(&mut db.connection()).unwrap();
        until("the first one runs", || gate.begun() == 1);
        Scene { gate, log, worker }
    }
}

fn registry(gate: &Arc<Gate>, log: &Arc<Log>) -> Registry {
    Registry::new()
        .register::<Wait>(Arc::clone(gate))
        .register::<Note>(Arc::clone(log))
}

/// Returns the number of jobs that have been made ready so far.
fn made_ready(db: &TestDb) -> i64 {
    db.count(if db.is_postgres() {
        "SELECT last_value AS n FROM solid_queue_ready_executions_id_seq"
    } else {
        "SELECT seq AS n FROM sqlite_sequence WHERE name = 'solid_queue_ready_executions'"
    })
}

fn slots_are_passed_on_in_order(db: &TestDb) {
    let scene = Scene::new(db, &["b"]);
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let jobs = names.iter().map(|name| note(name).queue("b"));
    windlass::enqueue_all(&mut db.connection(), jobs.collect::<Vec<_>>()).unwrap();
    scene.gate.open();
    until("all have run", || scene.log.len() == 200);
    assert_eq!(scene.log.lines(), names);
    // The number depends on the machine, as slow transactions are a reason for a pause.
    let ready = made_ready(db);
    assert!(ready <= 200, "all {ready} were made ready first");
    until("nothing is held", || db.rows("claimed_executions") == 0);
    let wrong = windlass::limits::check_semaphores(&mut db.connection()).unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Other threads would have to be woken, for longer than such a job takes. Which thread it is does not matter, nor a few changes.
fn one_thread_runs_the_jobs_of_a_key(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let threads = Arc::new(Log::default());
    let started = Arc::clone(&threads);
    let _worker = Worker::new(&db.database, registry(&gate, &log))
        .threads(8)
        .subscriber(Subscriber::new(move |event| {
            if matches!(event, Event::Started { .. }) {
                started.add(std::thread::current().name().unwrap_or_default());
            }
        }))
        .start()
        .unwrap();
    let mut conn = db.connection();
    on_key(NewJob::new(&Wait).unwrap())
        .enqueue(&mut conn)
        .unwrap();
    until("the first one runs", || gate.begun() == 1);
    let jobs = (0..200).map(|number| note(&number.to_string()));
    windlass::enqueue_all(&mut conn, jobs.collect::<Vec<_>>()).unwrap();
    gate.open();
    until("all have run", || log.len() == 200);
    let threads = threads.lines();
    let changes = threads.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes < 100, "{changes} changes: {threads:?}");
}

fn a_more_urgent_job_comes_first(db: &TestDb) {
    let scene = Scene::new(db, &["*"]);
    let mut conn = db.connect();
    note("next").priority(5).enqueue(&mut conn).unwrap();
    Note::new("urgent").enqueue(&mut conn).unwrap();
    until("one is ready", || db.rows("ready_executions") == 1);
    scene.gate.open();
    until("both have run", || scene.log.len() == 2);
    assert_eq!(scene.log.lines(), ["urgent", "next"]);
}

fn an_earlier_queue_comes_first(db: &TestDb) {
    let scene = Scene::new(db, &["a", "b"]);
    let mut conn = db.connect();
    note("next").queue("b").enqueue(&mut conn).unwrap();
    let other = NewJob::new(&Note::new("other")).unwrap();
    other.queue("a").priority(9).enqueue(&mut conn).unwrap();
    scene.gate.open();
    until("both have run", || scene.log.len() == 2);
    assert_eq!(scene.log.lines(), ["other", "next"]);
}

fn a_paused_queue_keeps_its_jobs(db: &TestDb) {
    let scene = Scene::new(db, &["a", "b"]);
    let mut conn = db.connect();
    note("next").queue("a").enqueue(&mut conn).unwrap();
    windlass::queues::pause(&mut conn, "a", "test", "it must wait").unwrap();
    scene.gate.open();
    // A promotion makes it ready, and no worker takes it.
    until("it is ready", || db.rows("ready_executions") == 1);
    until("nothing runs", || db.rows("claimed_executions") == 0);
    assert_eq!(scene.log.len(), 0);
    windlass::queues::resume(&mut conn, "a").unwrap();
    until("it has run", || scene.log.len() == 1);
}

fn a_quiet_worker_takes_none(db: &TestDb) {
    let scene = Scene::new(db, &["b"]);
    note("next")
        .queue("b")
        .enqueue(&mut db.connection())
        .unwrap();
    scene.worker.quiet();
    scene.gate.open();
    until("it is ready", || db.rows("ready_executions") == 1);
    until("nothing runs", || db.rows("claimed_executions") == 0);
    assert_eq!(scene.log.len(), 0);
    scene.worker.resume();
    until("it has run", || scene.log.len() == 1);
}

fn a_stop_leaves_the_next_job_to_others(db: &TestDb) {
    let mut scene = Scene::new(db, &["b"]);
    note("next")
        .queue("b")
        .enqueue(&mut db.connection())
        .unwrap();
    scene.worker.stop();
    scene.gate.open();
    let stopped = scene.worker.join(Duration::from_secs(60)).unwrap();
    assert!(stopped.is_drained(), "{stopped:?}");
    assert_eq!(scene.log.len(), 0);
    assert_eq!(db.rows("claimed_executions"), 0);
    let _other = Worker::new(&db.database, registry(&scene.gate, &scene.log))
        .start()
        .unwrap();
    until("another worker has run it", || scene.log.len() == 1);
}

/// A job that runs at most once is claimed ahead, but marked as started only for a free thread.
fn a_job_that_waits_for_a_free_thread_has_its_turn(db: &TestDb) {
    let scene = Scene::new(db, &["b"]);
    let jobs = (0..2_000).map(|_| note("limited").queue("b"));
    windlass::enqueue_all(&mut db.connection(), jobs.collect::<Vec<_>>()).unwrap();
    scene.gate.open();
    until("slots are passed on", || scene.log.len() > 20);
    let policy = Policy::new().delivery(Delivery::AtMostOnce);
    let once = NewJob::new(&Note::new("once")).unwrap().policy(policy);
    once.queue("b").enqueue(&mut db.connection()).unwrap();
    until("it has run", || {
        scene.log.lines().contains(&"once".to_owned())
    });
    let limited = scene.log.len();
    assert!(limited < 1_900, "after {limited} others");
}
