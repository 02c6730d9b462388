//! Framework threads that panic: the process ends in good order, nothing
//! stays half alive, and no job is lost.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::jobs::{Log, Note};
use crate::support::process::{Do, HEARTBEAT, Scene, THRESHOLD, Work};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{Dispatcher, Event, Handle, Job, NewJob, Registry, Supervisor, Worker};

on_each_database!(
    a_subscriber_that_panics_on_a_finished_job,
    a_subscriber_that_panics_on_a_registration,
    a_subscriber_that_panics_on_a_dispatch,
    a_supervisor_ends_with_what_it_runs,
    a_supervisor_replaces_who_broke_down,
    a_start_that_fails_half_way_leaves_nothing,
);

crate::through_a_pooler_in_all!(
    a_subscriber_that_panics_on_a_finished_job,
    a_subscriber_that_panics_on_a_registration,
    a_subscriber_that_panics_on_a_dispatch,
    a_supervisor_ends_with_what_it_runs,
    a_supervisor_replaces_who_broke_down,
    a_start_that_fails_half_way_leaves_nothing,
);

/// Panics once, at the first event of this kind.
fn panics_at(kind: &'static str) -> Subscriber {
    let panicked = AtomicBool::new(false);
    Subscriber::new(move |event: &Event<'_>| {
        let is_it = format!("{event:?}").starts_with(kind);
        if is_it && !panicked.swap(true, Ordering::SeqCst) {
            panic!("the subscriber does not like {kind}");
        }
    })
}

fn worker(db: &TestDb, log: &Arc<Log>) -> Worker {
    Worker::new(&db.database, Registry::new().register::<Note>(log.clone()))
        .threads(2)
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
}

fn breaks_down(mut handle: Handle) {
    let stopped = handle.join(DEADLINE).expect("it ends");
    assert!(stopped.is_broken());
    assert_eq!(
        format!("{:?}", stopped.exit_code()),
        format!("{:?}", std::process::ExitCode::from(70))
    );
}

/// Every job is finished or ready, and what ran is finished.
fn nothing_is_lost(db: &TestDb, log: &Log, jobs: i64) {
    let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    let finished = db.count(finished);
    assert_eq!(finished, i64::try_from(log.len()).unwrap());
    assert_eq!(db.rows("ready_executions"), jobs - finished);
    assert_eq!(db.rows("claimed_executions"), 0);
    assert_eq!(db.rows("processes"), 0);
}

fn a_subscriber_that_panics_on_a_finished_job(db: &TestDb) {
    let log = Arc::new(Log::default());
    let mut conn = db.connect();
    for number in 0..50 {
        Note::new(number.to_string()).enqueue(&mut conn).unwrap();
    }
    let worker = worker(db, &log).subscriber(panics_at("Finished"));
    breaks_down(worker.start().unwrap());
    nothing_is_lost(db, &log, 50);
    assert!(log.len() > 0);
}

fn a_subscriber_that_panics_on_a_registration(db: &TestDb) {
    let log = Arc::new(Log::default());
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    let worker = worker(db, &log).subscriber(panics_at("Registered"));
    breaks_down(worker.start().unwrap());
    nothing_is_lost(db, &log, 1);
}

fn a_subscriber_that_panics_on_a_dispatch(db: &TestDb) {
    let log = Log::default();
    let later = NewJob::new(&Note::new("a")).unwrap();
    later
        .after(Duration::from_millis(10))
        .enqueue(&mut db.connection())
        .unwrap();
    let dispatcher = Dispatcher::new(&db.database).subscriber(panics_at("Dispatched"));
    breaks_down(dispatcher.start().unwrap());
    nothing_is_lost(db, &log, 1);
}

fn a_supervisor_ends_with_what_it_runs(db: &TestDb) {
    let log = Arc::new(Log::default());
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    let supervisor = Supervisor::new(&db.database)
        .worker(worker(db, &log).subscriber(panics_at("Finished")))
        .dispatcher(Dispatcher::new(&db.database));
    breaks_down(supervisor.start().unwrap());
    nothing_is_lost(db, &log, 1);
}

fn a_supervisor_replaces_who_broke_down(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.worker_with(|role| {
        role.workers = Some(1);
        role.panics_at = Some("Finished".to_owned());
    });
    let mut conn = db.connect();
    for (ends, name) in (1..).zip(["a", "b"]) {
        Work::new(name, Do::Nothing).enqueue(&mut conn).unwrap();
        scene.ended(name, 1);
        until("its worker ends", || {
            supervisor.log().matches("exited with code 70").count() == ends
        });
    }
    scene.drained();
    assert!(supervisor.is_running());
    let pids: std::collections::BTreeSet<i32> =
        scene.effects().iter().map(|effect| effect.pid).collect();
    assert!(pids.len() > 1, "one process did it all");
    assert_eq!(
        db.count("SELECT CAST(sum(crash_count) AS bigint) AS n FROM solid_queue_jobs"),
        0
    );
}

/// The second of two workers has impossible settings.
fn a_start_that_fails_half_way_leaves_nothing(db: &TestDb) {
    let log = Arc::new(Log::default());
    let supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
        .dispatcher(Dispatcher::new(&db.database).heartbeat_interval(HEARTBEAT))
        .worker(worker(db, &log))
        .worker(worker(db, &log).threads(0));
    let error = supervisor.start().unwrap_err();
    assert!(error.to_string().contains("at least one thread"), "{error}");
    // A worker that was left behind would have registered before this one, and
    // would have performed the job.
    let control = Control::start(db);
    until("the control is registered", || db.rows("processes") > 0);
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    control.has_had_its_turn(db);
    assert_eq!(db.rows("processes"), 1);
    assert_eq!((log.len(), db.rows("ready_executions")), (0, 1));
    control.has_stopped();
    assert_eq!(db.rows("processes"), 0);
}
