//! Claiming no more, and claiming again.

use super::app_with;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::process::{Do, HEARTBEAT, Scene, Work, signal};
use crate::support::program::windlass;
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Job, Registry, Worker};

on_each_database!(
    a_quiet_supervisor_keeps_its_workers_from_claiming,
    a_quiet_worker_goes_on_with_what_it_runs,
    a_quiet_worker_is_seen_everywhere,
    a_job_cannot_read_what_the_supervisor_says,
    what_a_wrapper_has_read_is_said_again,
    a_worker_that_is_quiet_alone_is_named,
);

fn enqueue(db: &TestDb, name: &str, what: Do) {
    Work::new(name, what).enqueue(&mut db.connection()).unwrap();
}

fn a_quiet_supervisor_keeps_its_workers_from_claiming(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(
        &scene,
        "[[workers]]\nthreads = 2\npolling_interval = '50ms'\n",
    );
    enqueue(db, "long", Do::WaitFor(scene.gate("go")));
    let started = scene.started("long", 1);
    app.signal(Signal::TSTP);
    let quieted = |times| {
        let log = app.log();
        log.matches("quiet: claiming nothing more").count() == times
    };
    // The supervisor's line, and its worker's.
    until("both are quiet", || quieted(2));
    let control = Control::start(db);
    enqueue(db, "next", Do::Nothing);
    control.has_had_its_turn(db);
    assert_eq!(db.rows("ready_executions"), 1);
    // A worker that is started meanwhile is quiet from the beginning.
    signal(started.pid, Signal::KILL);
    until("the next worker is quiet", || quieted(3));
    until("the job is given back", || db.rows("ready_executions") == 2);
    control.has_had_its_turn(db);
    assert_eq!(
        (scene.count("start", "long"), scene.count("start", "next")),
        (1, 0)
    );
    scene.open("go");
    app.signal(Signal::CONT);
    scene.drained();
    app.logs("claiming again");
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

fn a_quiet_worker_goes_on_with_what_it_runs(db: &TestDb) {
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
    let events = Events::default();
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Wait>(Arc::clone(&gate));
    let mut worker = Worker::new(&db.database, registry)
        .polling_interval(Duration::from_millis(20))
        .heartbeat_interval(HEARTBEAT)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    Wait.enqueue(&mut db.connection()).unwrap();
    until("it runs", || gate.begun() == 1);
    worker.quiet();
    until("its last claim is over", || events.count("Quieted") == 1);
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    gate.open();
    until("what it ran is finished", || {
        db.rows("claimed_executions") == 0
    });
    let control = Control::start(db);
    control.has_had_its_turn(db);
    control.has_stopped();
    assert_eq!(
        (log.len(), gate.ended(), db.rows("ready_executions")),
        (0, 1, 1)
    );
    assert_eq!(db.rows("processes"), 1);
    worker.resume();
    until("the other is done", || log.len() == 1);
    // And a quiet one stops like any other.
    worker.quiet();
    worker.stop();
    assert!(worker.join(DEADLINE).unwrap().is_drained());
}

fn a_quiet_worker_is_seen_everywhere(db: &TestDb) {
    let registry = Registry::new().register::<Note>(Arc::default());
    // Its next heartbeat is far away: it tells at once.
    let worker = Worker::new(&db.database, registry).start().unwrap();
    let state = |command: &str| {
        let said = windlass(&db.url, &[command]);
        let words = ["late", "draining", "quiet", "alive"];
        let seen = words.into_iter().filter(|word| said.out.contains(word));
        seen.collect::<Vec<_>>().join(" ")
    };
    until("it is registered", || db.rows("processes") == 1);
    for command in ["status", "processes"] {
        until(command, || state(command) == "alive");
    }
    worker.quiet();
    until("its row says so", || {
        windlass::processes::list(&mut db.connection()).unwrap()[0].quiet
    });
    // On a busy machine, its heartbeat may come late.
    for command in ["status", "processes"] {
        until(command, || state(command) == "quiet");
    }
    let doctor = windlass(&db.url, &["doctor"]);
    assert!(
        doctor.out.contains("1 of 1 workers are quiet"),
        "{doctor:?}"
    );
    assert_eq!(doctor.code, Some(0), "nothing waits: {doctor:?}");
    let job = Note::new("a").enqueue(&mut db.connection()).unwrap().id;
    let explained = windlass(&db.url, &["explain", &job.to_string()]);
    assert!(
        explained.out.contains("claim nothing until SIGCONT"),
        "{explained:?}"
    );
    let doctor = windlass(&db.url, &["doctor"]);
    assert_eq!(doctor.code, Some(3), "a job waits: {doctor:?}");
    assert!(doctor.out.contains("no worker claims them"), "{doctor:?}");
    // Those that are late are so for both.
    for command in ["status", "processes"] {
        until(command, || {
            db.execute(
                "UPDATE solid_queue_processes SET last_heartbeat_at = '2020-01-01 00:00:00.000000'",
            );
            state(command) == "late"
        });
    }
    worker.resume();
    until("the job is done and its row says so", || {
        let process = &windlass::processes::list(&mut db.connection()).unwrap()[0];
        !process.quiet && db.rows("ready_executions") == 0
    });
}

/// Waits until the row of the only worker has this mode.
fn until_worker_is(db: &TestDb, is_quiet: bool) {
    until(&format!("the worker is quiet: {is_quiet}"), || {
        let processes = windlass::processes::list(&mut db.connection()).unwrap();
        let workers = processes.iter().filter(|one| one.kind == "Worker");
        workers.map(|one| one.quiet).eq([is_quiet])
    });
}

fn a_job_cannot_read_what_the_supervisor_says(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(&scene, "[[workers]]\nthreads = 2\n");
    enqueue(db, "cat", Do::ReadInput);
    scene.started("cat", 1);
    for _ in 0..5 {
        app.signal(Signal::TSTP);
        until_worker_is(db, true);
        app.signal(Signal::CONT);
        until_worker_is(db, false);
    }
    scene.drained();
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

fn what_a_wrapper_has_read_is_said_again(db: &TestDb) {
    let scene = Scene::new(db);
    let program = std::env::current_exe().unwrap();
    let worker = format!(
        "echo waits; dd bs=1 count=1 of=/dev/null 2>/dev/null; exec {} deploy::app --exact --nocapture",
        program.display()
    );
    let mut app = app_with(
        &scene,
        &format!("[[workers]]\nthreads = 1\nprogram = ['sh', '-c', '{worker}']\n"),
    );
    app.logs("waits");
    app.signal(Signal::TSTP);
    until_worker_is(db, true);
    app.signal(Signal::CONT);
    until_worker_is(db, false);
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

fn a_worker_that_is_quiet_alone_is_named(db: &TestDb) {
    let scene = Scene::new(db);
    let app = app_with(&scene, "[[workers]]\nthreads = 1\n");
    until_worker_is(db, false);
    let processes = windlass::processes::list(&mut db.connection()).unwrap();
    let worker = processes.iter().find(|one| one.kind == "Worker").unwrap();
    let doctor = || windlass(&db.url, &["doctor"]).out;
    let alone = "although its supervisor is not";
    app.signal(Signal::TSTP);
    until_worker_is(db, true);
    until("both say so", || {
        let said = doctor();
        said.contains("1 of 1 workers are quiet") && !said.contains(alone)
    });
    app.signal(Signal::CONT);
    until_worker_is(db, false);
    signal(worker.pid, Signal::TSTP);
    until_worker_is(db, true);
    until("the worker is named", || {
        let said = doctor();
        said.contains(alone) && said.contains(&worker.name)
    });
    signal(worker.pid, Signal::CONT);
    until_worker_is(db, false);
}
