//! Workers, dispatchers and supervisors as threads of a program of one's own:
//! started, stopped and waited for.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::hooks::Subscriber;
use windlass::{
    Context, Delivery, Dispatcher, Event, Handle, Job, JobId, JobResult, NewJob, Policy, Registry,
    Supervisor, Worker, enqueue_all,
};

const SOON: Duration = DEADLINE;

/// A worker for jobs that wait at a gate.
fn gated(db: &TestDb, gate: &Arc<Gate>, events: &Events) -> Worker {
    let registry = Registry::new()
        .register::<Wait>(Arc::clone(gate))
        .register::<WaitOnce>(Arc::clone(gate));
    Worker::new(&db.database, registry).subscriber(events.subscriber())
}

/// The same as `Wait`, but never run again by itself.
#[derive(Debug, Serialize, Deserialize)]
struct WaitOnce;

impl Job for WaitOnce {
    const NAME: &'static str = "wait_once";
    type State = Gate;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn perform(self, cx: &Context<'_, Gate>) -> JobResult {
        Wait.perform(cx)
    }
}

fn finished(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
}

/// The mask of signals that this process handles.
fn handled() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

#[cfg(target_os = "linux")]
fn no_signal_handler_is_installed(db: &TestDb) {
    const HUP_INT_QUIT_TERM: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14;
    let before = handled() & HUP_INT_QUIT_TERM;
    let handles = [
        Worker::new(&db.database, Registry::new()).start().unwrap(),
        Dispatcher::new(&db.database).start().unwrap(),
        Supervisor::new(&db.database).start().unwrap(),
    ];
    until("all are registered", || db.rows("processes") == 3);
    assert_eq!(handled() & HUP_INT_QUIT_TERM, before);
    drop(handles);
    assert_eq!(db.rows("processes"), 0);
}

fn a_stop_waits_for_what_runs(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let mut worker = gated(db, &gate, &events).threads(2).start().unwrap();
    let control = Control::start(db);
    let mut conn = db.connect();
    enqueue_all(&mut conn, (0..3).map(|_| NewJob::new(&Wait).unwrap())).unwrap();
    until("two run", || gate.begun() == 2);
    assert!(
        worker.join(Duration::ZERO).is_none(),
        "nobody has stopped it"
    );
    worker.stop();
    worker.stop();
    until("it says that it drains", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE draining") == 1
    });
    control.has_stopped();
    assert!(worker.join(Duration::ZERO).is_none(), "they still run");
    assert_eq!(db.rows("claimed_executions"), 2);
    assert_eq!(gate.begun(), 2, "nothing more is begun");
    gate.open();
    let stopped = worker.join(SOON).unwrap();
    assert!(stopped.is_drained() && stopped.unfinished.is_empty());
    assert_eq!(
        worker.join(SOON),
        Some(stopped),
        "asked again, it says the same"
    );
    assert_eq!((gate.begun(), gate.ended()), (2, 2));
    assert_eq!(finished(db), 2);
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(db.rows("claimed_executions") + db.rows("processes"), 0);
}

/// Whatever was claimed, handed out or under way at that moment.
fn a_stop_at_any_moment_loses_and_doubles_nothing(db: &TestDb) {
    let log = Arc::new(Log::default());
    let mut conn = db.connect();
    let jobs = (0..600).map(|n| NewJob::new(&Note::new(n.to_string())).unwrap());
    enqueue_all(&mut conn, jobs).unwrap();
    for round in 0..12 {
        let registry = Registry::new().register::<Note>(Arc::clone(&log));
        let mut worker = Worker::new(&db.database, registry)
            .threads(16)
            .start()
            .unwrap();
        let so_far = log.len();
        let some = (round % 4) * 15;
        until("it works", || log.len() >= 600.min(so_far + some));
        worker.stop();
        assert!(worker.join(SOON).unwrap().is_drained());
        drop(worker);
        assert_eq!(db.rows("claimed_executions"), 0);
        assert_eq!(db.rows("processes"), 0);
        let done = i64::try_from(log.len()).unwrap();
        assert_eq!(finished(db), done);
        assert_eq!(db.rows("ready_executions"), 600 - done);
    }
    let mut texts = log.lines();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), log.len(), "some were performed twice");
}

fn what_runs_too_long_is_given_back_and_fenced(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let worker = |gate: &Arc<Gate>| {
        let timeout = Duration::from_millis(200);
        gated(db, gate, &events)
            .shutdown_timeout(timeout)
            .start()
            .unwrap()
    };
    let mut first = worker(&gate);
    let id = Wait.enqueue(&mut db.connection()).unwrap().id;
    until("it runs", || gate.begun() == 1);
    first.stop();
    let stopped = first.join(SOON).unwrap();
    assert!(!stopped.is_drained());
    assert_eq!(stopped.unfinished, [id]);
    drop(first);
    // Given back for a little later, as it still runs here.
    assert_eq!(db.rows("claimed_executions") + db.rows("processes"), 0);
    assert_eq!(db.rows("scheduled_executions"), 1);
    assert_eq!(events.count("Released"), 1);
    gate.open();
    until("its late end is fenced", || events.count("Fenced") == 1);
    assert_eq!(gate.ended(), 1);
    assert_eq!(finished(db), 0);
    assert_eq!(db.rows("scheduled_executions"), 1);
    assert_eq!(events.count("Finished"), 0);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE attempts > 0"),
        0
    );
    // The next one performs it for good.
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let _second = worker(&gate);
    until("it is finished", || finished(db) == 1);
    assert_eq!((gate.ended(), events.count("Fenced")), (2, 1));
    assert_eq!(
        db.rows("scheduled_executions") + db.rows("ready_executions"),
        0
    );
}

fn an_at_most_once_job_that_runs_too_long_fails(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let mut worker = gated(db, &gate, &events)
        .shutdown_timeout(Duration::from_millis(200))
        .start()
        .unwrap();
    let id = WaitOnce.enqueue(&mut db.connection()).unwrap().id;
    until("it runs", || gate.begun() == 1);
    worker.stop();
    assert_eq!(worker.join(SOON).unwrap().unfinished, [id]);
    gate.open();
    until("its late end is fenced", || events.count("Fenced") == 1);
    let errors = db.texts("SELECT error AS t FROM solid_queue_failed_executions");
    assert!(errors[0].contains("outcome_unknown"), "{errors:?}");
    for table in ["claimed", "ready", "scheduled"] {
        assert_eq!(db.rows(&format!("{table}_executions")), 0, "{table}");
    }
    assert_eq!(finished(db), 0);
}

fn stop_now_waits_for_nobody(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let mut worker = gated(db, &gate, &events)
        .shutdown_timeout(Duration::from_secs(3600))
        .start()
        .unwrap();
    let id = Wait.enqueue(&mut db.connection()).unwrap().id;
    until("it runs", || gate.begun() == 1);
    let control = Control::start(db);
    worker.stop();
    control.has_stopped();
    assert!(worker.join(Duration::ZERO).is_none());
    worker.stop_now();
    assert_eq!(worker.join(SOON).unwrap().unfinished, [id]);
    gate.open();
    until("its late end is fenced", || events.count("Fenced") == 1);
}

/// The least time of some: a busy machine may be slow at one or the other.
fn a_stop_ends_soon_after_its_timeout(db: &TestDb) {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let stop = |runs: usize| {
        let worker = gated(db, &gate, &events).shutdown_timeout(TIMEOUT);
        let mut worker = worker.start().unwrap();
        Wait.enqueue(&mut db.connection()).unwrap();
        until("it runs", || gate.begun() == runs);
        let begin = Instant::now();
        worker.stop();
        assert!(!worker.join(SOON).unwrap().is_drained());
        begin.elapsed()
    };
    // A wait for the end of the job would add two seconds to each.
    let soon = (1..=20).any(|runs| stop(runs) < TIMEOUT + Duration::from_millis(1_700));
    assert!(soon, "every stop took much too long");
    gate.open();
}

/// Ends early when asked to.
#[derive(Debug, Serialize, Deserialize)]
struct Obedient;

impl Job for Obedient {
    const NAME: &'static str = "obedient";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("begun");
        until("it is asked to stop", || cx.is_stopping());
        Err("asked to stop".into())
    }
}

fn a_job_can_see_the_stop(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Obedient>(Arc::clone(&log));
    let mut worker = Worker::new(&db.database, registry).start().unwrap();
    Obedient.enqueue(&mut db.connection()).unwrap();
    until("it runs", || log.len() == 1);
    worker.stop();
    assert!(worker.join(SOON).unwrap().is_drained());
    assert_eq!(db.rows("failed_executions"), 1);
}

fn dropping_the_handle_stops(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let worker = gated(db, &gate, &events).start().unwrap();
    Wait.enqueue(&mut db.connection()).unwrap();
    until("it runs", || gate.begun() == 1);
    let opener = std::thread::spawn({
        let (gate, database) = (Arc::clone(&gate), db.database.clone());
        move || {
            let mut conn = database.connect().unwrap();
            let draining = "SELECT count(*) AS n FROM solid_queue_processes WHERE draining";
            until("it drains", || {
                crate::support::db::count(&mut conn, draining) == 1
            });
            gate.open();
        }
    });
    drop(worker);
    opener.join().unwrap();
    assert_eq!((gate.ended(), finished(db)), (1, 1));
    assert_eq!(db.rows("processes"), 0);
    Wait.enqueue(&mut db.connection()).unwrap();
    assert_eq!(events.count("Deregistered"), 1);
    assert_eq!(db.rows("ready_executions"), 1);
}

/// One program, several workers, even on databases of different kinds.
fn two_workers_live_in_one_program(db: &TestDb) {
    let other = TestDb::sqlite();
    let logs = [(); 3].map(|()| Arc::new(Log::default()));
    let worker = |db: &TestDb, queue: &str, log: &Arc<Log>| -> Handle {
        let registry = Registry::new().register::<Note>(Arc::clone(log));
        Worker::new(&db.database, registry)
            .queues([queue])
            .unwrap()
            .start()
            .unwrap()
    };
    let mut first = worker(db, "a", &logs[0]);
    let second = worker(db, "b", &logs[1]);
    let third = worker(&other, "a", &logs[2]);
    for (db, queue) in [(db, "a"), (db, "b"), (&other, "a")] {
        let jobs = (0..20).map(|_| NewJob::new(&Note::new("x")).unwrap().queue(queue));
        enqueue_all(&mut db.connection(), jobs).unwrap();
    }
    until("all are done", || logs.iter().all(|log| log.len() == 20));
    assert_eq!(db.rows("processes"), 2);
    // The end of one is not the end of the others.
    first.stop();
    assert!(first.join(SOON).is_some());
    NewJob::new(&Note::new("x"))
        .unwrap()
        .queue("b")
        .enqueue(&mut db.connection())
        .unwrap();
    until("the second goes on", || logs[1].len() == 21);
    drop((second, third));
}

fn a_supervisor_runs_workers_and_dispatchers_as_threads(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let mut supervisor = Supervisor::new(&db.database)
        .worker(Worker::new(&db.database, registry))
        .dispatcher(Dispatcher::new(&db.database))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("all are registered", || db.rows("processes") == 3);
    let job = NewJob::new(&Note::new("later")).unwrap();
    job.after(Duration::from_millis(50))
        .enqueue(&mut db.connection())
        .unwrap();
    until("the job is done", || log.len() == 1);
    supervisor.stop();
    assert!(supervisor.join(SOON).unwrap().is_drained());
    assert_eq!(db.rows("processes"), 0);
    assert_eq!(events.count("Pruned"), 0);
}

/// Before it is registered, while it is, or just after: after so many parts of
/// the time that this takes here.
fn a_stop_right_after_the_start_leaves_nothing_behind(db: &TestDb) {
    let start = || {
        [
            Worker::new(&db.database, Registry::new()).start().unwrap(),
            Dispatcher::new(&db.database).start().unwrap(),
            Supervisor::new(&db.database).start().unwrap(),
        ]
    };
    let handles = start();
    let started = Instant::now();
    until("all are registered", || db.rows("processes") == 3);
    let registration = started.elapsed();
    drop(handles);
    for round in 0..40 {
        let handles = start();
        std::thread::sleep(registration * round / 30);
        for mut handle in handles {
            handle.stop();
            assert!(handle.join(SOON).unwrap().is_drained());
        }
        assert_eq!(db.rows("processes"), 0, "round {round}");
    }
}

/// The panic of a subscriber ends the process, in good order.
fn a_subscriber_that_panics_ends_its_worker(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let mut worker = Worker::new(&db.database, registry)
        .subscriber(Subscriber::new(|event: &Event<'_>| {
            assert!(!matches!(event, Event::Finished { .. }), "at {event:?}");
        }))
        .start()
        .unwrap();
    Note::new("x").enqueue(&mut db.connection()).unwrap();
    let stopped = worker.join(SOON).unwrap();
    assert!(stopped.is_broken() && stopped.unfinished.is_empty());
    assert_eq!(worker.join(SOON), Some(stopped));
    assert_eq!((log.len(), finished(db)), (1, 1));
    assert_eq!(db.rows("processes") + db.rows("claimed_executions"), 0);
}

fn unfinished_jobs_are_told_by_their_ids(db: &TestDb) {
    let (gate, events) = (Arc::new(Gate::default()), Events::default());
    let mut worker = gated(db, &gate, &events)
        .threads(3)
        .shutdown_timeout(Duration::ZERO)
        .start()
        .unwrap();
    let mut conn = db.connect();
    let jobs = (0..5).map(|_| NewJob::new(&Wait).unwrap());
    let enqueued = enqueue_all(&mut conn, jobs).unwrap();
    until("three run", || gate.begun() == 3);
    worker.stop();
    let mut unfinished = worker.join(SOON).unwrap().unfinished;
    unfinished.sort();
    let first: Vec<JobId> = enqueued[..3].iter().map(|job| job.id).collect();
    assert_eq!(unfinished, first);
    gate.open();
    until("they have ended", || gate.ended() == 3);
    until("the first of their ends is fenced", || {
        events.count("Fenced") > 0
    });
    assert_eq!((events.count("Finished"), finished(db)), (0, 0));
}

on_each_database!(
    #[cfg(target_os = "linux")]
    no_signal_handler_is_installed,
    a_stop_waits_for_what_runs,
    a_stop_at_any_moment_loses_and_doubles_nothing,
    what_runs_too_long_is_given_back_and_fenced,
    an_at_most_once_job_that_runs_too_long_fails,
    stop_now_waits_for_nobody,
    a_stop_ends_soon_after_its_timeout,
    a_job_can_see_the_stop,
    dropping_the_handle_stops,
    two_workers_live_in_one_program,
    a_supervisor_runs_workers_and_dispatchers_as_threads,
    a_stop_right_after_the_start_leaves_nothing_behind,
    a_subscriber_that_panics_ends_its_worker,
    unfinished_jobs_are_told_by_their_ids,
);
