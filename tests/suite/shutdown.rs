//! TERM, INT and QUIT, at every moment.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Gate, Wait};
use crate::support::process::{Do, Once, Process, Scene, Work, suspend};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{Database, Job, Registry, Worker};

on_each_database!(
    term_lets_running_jobs_finish,
    term_during_boot_is_honoured,
    any_number_of_terms_is_one,
    a_second_interrupt_later_ends_at_once,
    jobs_over_the_shutdown_timeout_are_given_back,
    quit_ends_at_once_and_the_supervisor_gives_back,
    a_supervisor_stops_its_children_in_order,
    a_slow_drain_is_not_taken_for_death,
    an_interrupted_at_most_once_job_fails,
    a_child_that_dies_in_the_stop_is_no_drain,
    a_suspended_child_stops_and_resumes,
    a_worker_whose_supervisor_was_killed_gives_back_itself,
    a_child_that_was_cut_short_before_the_stop_is_forgotten,
    a_stop_waits_for_no_lock,
);

crate::through_a_pooler!(
    term_lets_running_jobs_finish,
    term_during_boot_is_honoured,
    any_number_of_terms_is_one,
    a_second_interrupt_later_ends_at_once,
    jobs_over_the_shutdown_timeout_are_given_back,
    quit_ends_at_once_and_the_supervisor_gives_back,
    a_supervisor_stops_its_children_in_order,
    a_slow_drain_is_not_taken_for_death,
    an_interrupted_at_most_once_job_fails,
    a_child_that_dies_in_the_stop_is_no_drain,
    a_child_that_was_cut_short_before_the_stop_is_forgotten,
);

fn processes(db: &TestDb) -> i64 {
    db.rows("processes")
}

fn crash_count(db: &TestDb) -> i64 {
    db.count("SELECT CAST(sum(crash_count) AS bigint) AS n FROM solid_queue_jobs")
}

fn term_lets_running_jobs_finish(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker();
    let mut conn = db.connect();
    for name in ["a", "b", "c"] {
        Work::new(name, Do::WaitFor(scene.gate("go")))
            .enqueue(&mut conn)
            .unwrap();
    }
    scene.started("a", 1);
    scene.started("b", 1);
    worker.signal(Signal::TERM);
    until("it drains", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE draining") == 1
    });
    scene.open("go");
    assert_eq!(worker.exit().code(), Some(0));
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL"),
        2
    );
    assert_eq!(
        (
            db.rows("ready_executions"),
            db.rows("claimed_executions"),
            processes(db)
        ),
        (1, 0, 0)
    );
}

fn term_during_boot_is_honoured(db: &TestDb) {
    let scene = Scene::new(db);
    let begin = Instant::now();
    let first = scene.worker();
    until("it is registered", || processes(db) == 1);
    let boot = begin.elapsed();
    drop(first);
    db.execute("DELETE FROM solid_queue_processes");
    Work::new("a", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    for moment in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12] {
        let mut worker = scene.worker();
        // A matter of time: of as many tenths of what a start takes here.
        std::thread::sleep(boot * moment / 10);
        worker.signal(Signal::TERM);
        let status = worker.exit();
        // Before the handlers are there, the signal itself ends it.
        assert!(
            status.code() == Some(0)
                || std::os::unix::process::ExitStatusExt::signal(&status) == Some(15),
            "{status}"
        );
    }
    assert_eq!((db.rows("claimed_executions"), processes(db)), (0, 0));
    assert_eq!(scene.count("start", "a"), scene.count("end", "a"));
}

fn any_number_of_terms_is_one(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::TERM);
    until("it drains", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE draining") == 1
    });
    worker.signal(Signal::TERM);
    // A matter of time: from two seconds on, a second SIGINT would end it.
    std::thread::sleep(Duration::from_millis(2_200));
    worker.signal(Signal::TERM);
    worker.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    scene.open("a");
    assert_eq!(worker.exit().code(), Some(0));
    assert_eq!(scene.count("end", "a"), 1);
}

fn a_second_interrupt_later_ends_at_once(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("never")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::INT);
    // The second counts from two seconds on: repeat it until it does.
    until("it exits", || {
        if worker.is_running() {
            worker.signal(Signal::INT);
            std::thread::sleep(Duration::from_millis(200));
        }
        !worker.is_running()
    });
    assert_eq!(worker.exit().code(), Some(75));
    assert_eq!((db.rows("claimed_executions"), processes(db)), (0, 0));
    assert_eq!(
        db.rows("scheduled_executions"),
        1,
        "given back, to run in a moment"
    );
}

/// Starts a supervisor whose worker runs the job `a`, which does not end.
fn supervised_without_end(scene: &Scene<'_>) -> Process {
    let supervisor = scene.worker_with(|role| {
        role.workers = Some(1);
        role.shutdown_ms = 300;
    });
    Work::new("a", Do::WaitFor(scene.gate("never")))
        .enqueue(&mut scene.db.connection())
        .unwrap();
    scene.started("a", 1);
    supervisor
}

fn jobs_over_the_shutdown_timeout_are_given_back(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = supervised_without_end(&scene);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(75));
    assert_eq!(
        (
            db.rows("ready_executions"),
            db.rows("claimed_executions"),
            processes(db)
        ),
        (1, 0, 0)
    );
    assert_eq!(crash_count(db), 0, "a stop is no crash");
}

fn quit_ends_at_once_and_the_supervisor_gives_back(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(1);
    Work::new("a", Do::WaitFor(scene.gate("never")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    supervisor.signal(Signal::QUIT);
    assert_eq!(supervisor.exit().code(), Some(75));
    assert_eq!(
        (
            db.rows("ready_executions"),
            db.rows("claimed_executions"),
            processes(db)
        ),
        (1, 0, 0)
    );
    assert_eq!(crash_count(db), 0);
}

fn a_supervisor_stops_its_children_in_order(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(2);
    let mut conn = db.connect();
    for name in ["a", "b", "c"] {
        Work::new(name, Do::WaitFor(scene.gate("go")))
            .enqueue(&mut conn)
            .unwrap();
    }
    for name in ["a", "b", "c"] {
        scene.started(name, 1);
    }
    supervisor.signal(Signal::INT);
    until("both drain", || {
        db.count(
            "SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker' AND draining",
        ) == 2
    });
    scene.open("go");
    assert_eq!(supervisor.exit().code(), Some(0));
    assert_eq!(scene.effects().len(), 6);
    assert_eq!((db.rows("claimed_executions"), processes(db)), (0, 0));
}

fn a_slow_drain_is_not_taken_for_death(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _watching = scene.supervisor(0);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("go")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::TERM);
    until("it drains", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE draining") == 1
    });
    scene.are_watched_for_a_threshold();
    scene.open("go");
    assert_eq!(worker.exit().code(), Some(0));
    scene.drained();
    assert_eq!(scene.count("start", "a"), 1);
    assert!(!worker.log().contains("fenced"));
}

fn an_interrupted_at_most_once_job_fails(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 300);
    Once(Work::new("a", Do::WaitFor(scene.gate("never"))))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(75));
    assert_eq!(
        (
            db.rows("failed_executions"),
            db.rows("claimed_executions"),
            processes(db)
        ),
        (1, 0, 0)
    );
}

fn a_child_that_dies_in_the_stop_is_no_drain(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(1);
    Work::new("a", Do::WaitFor(scene.gate("never")))
        .enqueue(&mut db.connection())
        .unwrap();
    let child = scene.started("a", 1).pid;
    supervisor.signal(Signal::TERM);
    supervisor.logs("stopping the Supervisor");
    crate::support::process::signal(child, Signal::KILL);
    assert_eq!(supervisor.exit().code(), Some(75));
    assert_eq!((db.rows("claimed_executions"), processes(db)), (0, 0));
}

/// As one that a SIGTSTP to the process group has met before its handlers were installed.
fn a_suspended_child_stops_and_resumes(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.worker_with(|role| {
        role.workers = Some(1);
        // Longer than the test waits.
        role.shutdown_ms = 600_000;
    });
    let enqueue = |name: &str| {
        let work = Work::new(name, Do::WaitFor(scene.gate(name)));
        work.enqueue(&mut db.connection()).unwrap();
        scene.started(name, 1).pid
    };
    let child = enqueue("a");
    supervisor.signal(Signal::TSTP);
    until("its worker is quiet", || {
        supervisor.log().matches("claiming nothing more").count() == 2
    });
    suspend(db, child);
    scene.open("a");
    supervisor.signal(Signal::CONT);
    scene.ended("a", 1);
    assert_eq!(enqueue("b"), child);
    suspend(db, child);
    supervisor.signal(Signal::TERM);
    scene.open("b");
    assert_eq!(supervisor.exit().code(), Some(0));
    assert_eq!((scene.count("start", "b"), scene.count("end", "b")), (1, 1));
    assert_eq!((db.rows("claimed_executions"), processes(db)), (0, 0));
}

fn a_worker_whose_supervisor_was_killed_gives_back_itself(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = supervised_without_end(&scene);
    supervisor.signal(Signal::KILL);
    supervisor.exit();
    until("it is given back, to run in a moment", || {
        (
            db.rows("claimed_executions"),
            db.rows("scheduled_executions"),
        ) == (0, 1)
    });
    assert_eq!(crash_count(db), 0);
}

fn a_child_that_was_cut_short_before_the_stop_is_forgotten(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.worker_with(|role| {
        role.workers = Some(1);
        role.shutdown_ms = 300;
    });
    Work::new("a", Do::WaitFor(scene.gate("go")))
        .enqueue(&mut db.connection())
        .unwrap();
    let child = scene.started("a", 1).pid;
    crate::support::process::signal(child, Signal::TERM);
    supervisor.logs("exited with code 75");
    scene.started("a", 2);
    scene.open("go");
    scene.drained();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
    assert_eq!(crash_count(db), 0);
}

/// Another program that holds a lock is like a database without an answer.
fn a_stop_waits_for_no_lock(db: &TestDb) {
    /// The time that a stop may take after its timeout while the database answers.
    const WHILE_IT_ANSWERS: Duration = Duration::from_secs(20);
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let mut worker = Worker::new(&db.database, registry)
        .shutdown_timeout(Duration::from_millis(100))
        .start()
        .unwrap();
    Wait.enqueue(&mut db.connection()).unwrap();
    until("it runs", || gate.begun() == 1);
    let mut other = Database::open(&db.url).unwrap().connect().unwrap();
    if db.is_postgres() {
        execute(&mut other, "BEGIN");
        execute(
            &mut other,
            "LOCK TABLE solid_queue_jobs, solid_queue_claimed_executions, solid_queue_processes",
        );
    } else {
        execute(&mut other, "BEGIN IMMEDIATE");
    }
    let asked = Instant::now();
    worker.stop();
    let stopped = worker.join(DEADLINE).unwrap();
    assert!(asked.elapsed() < WHILE_IT_ANSWERS, "{stopped:?}");
    assert!(!stopped.is_drained());
    execute(&mut other, "ROLLBACK");
    gate.open();
}
