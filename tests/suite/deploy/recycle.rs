//! Workers that make room for new ones.

use super::app_with;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::process::{Do, Scene, Work};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::processes::Recycle;
use windlass::{Error, Job, Registry, Supervisor, Worker};

on_each_database!(
    recycling_under_load_loses_and_doubles_nothing,
    what_runs_is_waited_for,
    what_would_never_work_is_refused,
);

const JOBS: usize = 60;
const JOBS_OF_A_PROCESS: usize = 7;

fn recycling_under_load_loses_and_doubles_nothing(db: &TestDb) {
    let scene = Scene::new(db);
    let config = format!(
        "shutdown_timeout = '20s'\n[[workers]]\nthreads = 3\nprocesses = 2\nrecycle_after_jobs = {JOBS_OF_A_PROCESS}\n"
    );
    for number in 0..JOBS {
        Work::new(&format!("job-{number}"), Do::Sleep(5))
            .enqueue(&mut db.connection())
            .unwrap();
    }
    let mut app = app_with(&scene, &config);
    scene.drained();
    let mut by_process: BTreeMap<i32, usize> = BTreeMap::new();
    let effects = scene.effects();
    for start in effects.iter().filter(|effect| effect.what == "start") {
        *by_process.entry(start.pid).or_default() += 1;
    }
    assert_eq!(effects.len(), 2 * JOBS, "every job ran once");
    assert!(
        by_process.values().all(|jobs| *jobs <= JOBS_OF_A_PROCESS),
        "{by_process:?}"
    );
    assert!(
        by_process.len() >= JOBS / JOBS_OF_A_PROCESS,
        "{by_process:?}"
    );
    let log = app.log();
    assert!(
        log.contains("is being replaced by a new one: it has run its number of jobs"),
        "{log}"
    );
    assert!(log.contains("exited with code 79"), "{log}");
    // No crash, no pruning, no delay that grows.
    assert!(
        !log.contains("pruned") && !log.contains("in a row"),
        "{log}"
    );
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE crash_count > 0"),
        0
    );
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
    assert_eq!(db.rows("processes"), 0);
}

/// Longer than the shutdown timeout, which is for stops.
fn what_runs_is_waited_for(db: &TestDb) {
    let scene = Scene::new(db);
    let config =
        "shutdown_timeout = '0s'\n[[workers]]\nthreads = 2\nrecycle_above_memory = '1 MiB'\n";
    Work::new("long", Do::WaitFor(scene.gate("go")))
        .enqueue(&mut db.connection())
        .unwrap();
    let mut app = app_with(&scene, config);
    scene.started("long", 1);
    app.logs("of memory, more than 1 MiB");
    Work::new("next", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    let control = Control::start(db);
    control.has_had_its_turn(db);
    control.has_stopped();
    assert_eq!(
        (scene.count("start", "next"), scene.count("end", "long")),
        (0, 0)
    );
    scene.open("go");
    scene.drained();
    let (long, next) = (scene.started("long", 1), scene.started("next", 1));
    assert_ne!(long.pid, next.pid);
    assert_eq!(scene.count("start", "long"), 1);
    until("the last one has gone too", || {
        app.log().matches("exited with code 79").count() == 2
    });
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

fn what_would_never_work_is_refused(db: &TestDb) {
    let worker = |recycle| Worker::new(&db.database, Registry::new()).recycle(recycle);
    for recycle in [
        Recycle::new().after_jobs(0),
        Recycle::new().after(Duration::from_millis(999)),
    ] {
        let refused = worker(recycle).start().unwrap_err();
        assert!(matches!(refused, Error::Settings(_)), "{refused}");
    }
    let within = worker(Recycle::new().after_jobs(1));
    let refused = Supervisor::new(&db.database)
        .worker(within)
        .start()
        .unwrap_err();
    assert!(
        refused.to_string().contains("cannot be recycled"),
        "{refused}"
    );
    // Within a program it just ends.
    let mut alone = worker(Recycle::new().after(Duration::from_secs(1)))
        .start()
        .unwrap();
    let stopped = alone.join(DEADLINE).unwrap();
    assert!(stopped.is_recycled() && stopped.is_drained());
    assert_eq!(db.rows("processes"), 0);
}
