//! SIGHUP makes a supervisor replace its children one by one.

use super::app_with;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use windlass::Job as _;

on_each_database!(
    children_are_replaced_one_by_one,
    a_stop_meanwhile_stops_all,
    a_child_that_does_not_start_stops_the_rollout,
);

/// The process ids of the registered workers.
fn workers(db: &TestDb) -> BTreeSet<i64> {
    let processes = windlass::processes::list(&mut db.connection()).unwrap();
    let workers = processes.iter().filter(|one| one.kind == "Worker");
    workers.map(|one| i64::from(one.pid)).collect()
}

/// Returns the starts and ends of children, in order: `+` or `-`.
fn turns(app: &Process) -> String {
    let log = app.log();
    let turn = |line: &str| {
        let started = line.contains("] started child ");
        let ended = line.contains("] child ") && line.contains("exited with code");
        started.then_some('+').or(ended.then_some('-'))
    };
    log.lines().filter_map(turn).collect()
}

fn children_are_replaced_one_by_one(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(&scene, "[[workers]]\nthreads = 1\nprocesses = 2\n");
    until("both are registered", || workers(db).len() == 2);
    let before = workers(db);
    Work::new("long", Do::WaitFor(scene.gate("go")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("long", 1);
    app.signal(Signal::HUP);
    app.logs("rolling restart: 2 children are replaced one by one");
    app.signal(Signal::HUP);
    app.logs("another rolling restart was requested");
    scene.open("go");
    until("both rollouts are over", || {
        let over = "rolling restart: all 2 children were replaced";
        app.log().matches(over).count() == 2
    });
    until("two workers are left", || workers(db).len() == 2);
    assert!(workers(db).is_disjoint(&before));
    // Never two down at once.
    assert_eq!(turns(&app), "++-+-+-+-+");
    assert_eq!(
        (scene.count("end", "long"), scene.count("start", "long")),
        (1, 1)
    );
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

fn a_stop_meanwhile_stops_all(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(&scene, "[[workers]]\nthreads = 1\nprocesses = 2\n");
    until("both are registered", || workers(db).len() == 2);
    for name in ["one", "two"] {
        let work = Work::new(name, Do::WaitFor(scene.gate("go")));
        work.enqueue(&mut db.connection()).unwrap();
        scene.started(name, 1);
    }
    app.signal(Signal::HUP);
    app.logs("rolling restart: 2 children");
    app.signal(Signal::TERM);
    app.logs("stopping the Supervisor");
    scene.open("go");
    assert_eq!(app.exit().code(), Some(0));
    assert!(!app.log().contains("were replaced"));
    assert_eq!(
        (db.rows("processes"), db.rows("claimed_executions")),
        (0, 0)
    );
}

fn a_child_that_does_not_start_stops_the_rollout(db: &TestDb) {
    let scene = Scene::new(db);
    let program = scene.directory().join("program");
    let write = |script: &str| {
        let new = scene.directory().join("new");
        std::fs::write(&new, script).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(new, &program).unwrap();
    };
    // A program that is not of Windlass runs until its input ends.
    write("#!/bin/sh\ncat > /dev/null\n");
    let config = format!(
        "[[workers]]\nprocesses = 2\nprogram = [{:?}]\n",
        program.display().to_string()
    );
    let mut app = app_with(&scene, &config);
    until("both run", || turns(&app) == "++");
    write("#!/bin/sh\nexit 3\n");
    app.signal(Signal::HUP);
    app.logs("rolling restart: stopped, the other children stay as they are");
    assert!(!app.log().contains("were replaced"));
    app.signal(Signal::TERM);
    app.exit();
}
