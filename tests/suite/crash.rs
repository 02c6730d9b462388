//! Processes that die, freeze and are replaced.

use crate::on_each_durable_database;
use crate::support::TestDb;
use crate::support::process::{Do, Once, Scene, Work, signal};
use crate::support::wait::{eventually, until};
use rustix::process::Signal;
use std::time::Duration;
use windlass::{Job, NewJob, enqueue_all};

on_each_durable_database!(
    a_killed_child_is_replaced_and_its_job_runs_again,
    a_killed_worker_is_pruned_after_the_threshold,
    workers_of_a_killed_supervisor_drain,
    everything_killed_is_recovered_by_the_next,
    a_frozen_worker_finishes_too_late_and_changes_nothing,
    a_frozen_worker_tells_its_jobs_and_registers_anew,
    a_job_that_kills_is_parked,
    an_at_most_once_job_never_starts_again,
    short_jobs_start_at_most_once,
    a_long_job_is_not_taken_for_dead,
    two_supervisors_recover_a_job_once,
    a_job_that_exits_is_counted_too,
    gaps_do_not_hide_the_dead,
);

crate::through_a_pooler!(
    a_killed_child_is_replaced_and_its_job_runs_again,
    a_killed_worker_is_pruned_after_the_threshold,
    a_job_that_kills_is_parked,
);

crate::through_a_pooler_in_all!(
    workers_of_a_killed_supervisor_drain,
    everything_killed_is_recovered_by_the_next,
    a_frozen_worker_finishes_too_late_and_changes_nothing,
    a_frozen_worker_tells_its_jobs_and_registers_anew,
    an_at_most_once_job_never_starts_again,
    a_long_job_is_not_taken_for_dead,
    two_supervisors_recover_a_job_once,
    a_job_that_exits_is_counted_too,
);

fn crash_count(db: &TestDb) -> i64 {
    db.count("SELECT CAST(sum(crash_count) AS bigint) AS n FROM solid_queue_jobs")
}

fn a_killed_child_is_replaced_and_its_job_runs_again(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    let second = scene.started("a", 2);
    assert_ne!(first.pid, second.pid);
    assert!(second.claim > first.claim, "claim ids grow");
    assert_eq!(crash_count(db), 1);
    scene.open("a");
    scene.drained();
    assert_eq!(scene.count("end", "a"), 1);
    assert_eq!(crash_count(db), 0, "success resets the count");
}

fn a_killed_worker_is_pruned_after_the_threshold(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = scene.supervisor(0);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::KILL);
    worker.exit();
    let _other = scene.worker();
    scene.started("a", 2);
    scene.open("a");
    scene.drained();
    until("the dead worker's row is gone", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'") == 1
    });
}

fn workers_of_a_killed_supervisor_drain(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut supervisor = scene.supervisor(1);
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    supervisor.signal(Signal::KILL);
    supervisor.exit();
    until("the worker drains", || {
        db.count(
            "SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker' AND draining",
        ) == 1
    });
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.open("a");
    scene.ended("a", 1);
    until("the worker is gone", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'") == 0
    });
    assert_eq!(
        scene.count("start", "b"),
        0,
        "nothing is claimed while draining"
    );
    let _next = scene.supervisor(1);
    scene.drained();
    assert_eq!(scene.count("start", "a"), 1);
    until("the dead supervisor is pruned", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Supervisor'") == 1
    });
}

fn everything_killed_is_recovered_by_the_next(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut supervisor = scene.supervisor(1);
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    supervisor.signal(Signal::KILL);
    supervisor.exit();
    let _next = scene.supervisor(1);
    scene.started("a", 2);
    scene.open("a");
    scene.drained();
    assert_eq!(scene.count("end", "a"), 1);
}

fn a_frozen_worker_finishes_too_late_and_changes_nothing(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let supervisor = scene.supervisor(0);
    let frozen = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    let first = scene.started("a", 1);
    frozen.freeze(db);
    until("the frozen worker is pruned", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'") == 0
    });
    let other = scene.worker();
    let second = scene.started("a", 2);
    assert_ne!(first.pid, second.pid);
    // The first finishes while the second still holds the job, however long
    // that takes: nothing is left that could take the second one for dead.
    supervisor.freeze(db);
    other.freeze(db);
    scene.open("a");
    frozen.signal(Signal::CONT);
    scene.ended("a", 1);
    until("the late finish is logged", || {
        frozen.log().contains("fenced: job")
    });
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL"),
        0
    );
    assert_eq!(
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE id = {}",
            second.claim
        )),
        1
    );
    other.signal(Signal::CONT);
    scene.drained();
    assert_eq!(
        db.count("SELECT last_claim_id AS n FROM solid_queue_jobs"),
        second.claim
    );
}

fn a_frozen_worker_tells_its_jobs_and_registers_anew(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = scene.supervisor(0);
    let frozen = scene.worker();
    Work::new("a", Do::WaitForOrLost(scene.gate("never")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    frozen.freeze(db);
    until("the frozen worker is pruned", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'") == 0
    });
    frozen.signal(Signal::CONT);
    scene.ended("a", 1);
    until("it registers anew", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'") == 1
    });
    scene.started("a", 2);
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("b", 1);
}

fn a_job_that_kills_is_parked(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    Work::new("bad", Do::Abort)
        .enqueue(&mut db.connection())
        .unwrap();
    // From the second crash on it waits; the tests do not.
    until("the job is parked", || {
        db.execute("UPDATE solid_queue_scheduled_executions SET scheduled_at = created_at");
        db.rows("failed_executions") == 1
    });
    assert_eq!(
        scene.count("start", "bad"),
        4,
        "the first run and max_crashes more"
    );
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .remove(0);
    assert!(
        error.contains("crashed") && error.contains("signal 6"),
        "{error}"
    );
    Work::new("good", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("good", 1);
}

fn an_at_most_once_job_never_starts_again(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    Once(Work::new("a", Do::WaitFor(scene.gate("a"))))
        .enqueue(&mut db.connection())
        .unwrap();
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    until("the job has failed", || db.rows("failed_executions") == 1);
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .remove(0);
    assert!(
        error.contains("outcome_unknown") && error.contains("signal 9"),
        "{error}"
    );
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("b", 1);
    assert_eq!(scene.count("start", "a"), 1);
}

/// They are marked as started some at a time: those that a thread had not reached fail as well.
fn short_jobs_start_at_most_once(db: &TestDb) {
    const JOBS: i64 = 1_000;
    let scene = Scene::new(db);
    let job = |n: i64| NewJob::new(&Once(Work::new(&n.to_string(), Do::Nothing))).unwrap();
    enqueue_all(&mut db.connection(), (0..JOBS).map(job)).unwrap();
    let _supervisor = scene.supervisor(1);
    let starts = || {
        let effects = scene.effects().into_iter();
        effects.filter(|effect| effect.what == "start")
    };
    let last = eventually("some have started", || starts().nth(100));
    signal(last.pid, Signal::KILL);
    let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    until("all have ended", || {
        db.count(finished) + db.rows("failed_executions") == JOBS
    });
    let mut started: Vec<String> = starts().map(|start| start.name).collect();
    let count = started.len();
    started.sort_unstable();
    started.dedup();
    assert_eq!(started.len(), count, "none has started twice");
    let ended: Vec<_> = scene.effects();
    let ended = ended.iter().filter(|effect| effect.what == "end").count();
    assert!(db.count(finished) <= i64::try_from(ended).unwrap());
    let unknown = "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE error LIKE '%outcome_unknown%'";
    assert_eq!(db.count(unknown), db.rows("failed_executions"));
}

fn a_long_job_is_not_taken_for_dead(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = scene.supervisor(1);
    for name in ["a", "b"] {
        Work::new(name, Do::SpinUntil(scene.gate("go")))
            .enqueue(&mut db.connection())
            .unwrap();
    }
    scene.started("a", 1);
    scene.started("b", 1);
    scene.are_watched_for_a_threshold();
    scene.open("go");
    scene.drained();
    assert_eq!(scene.effects().len(), 4);
}

fn two_supervisors_recover_a_job_once(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _first = scene.supervisor(0);
    let _second = scene.supervisor(0);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    worker.signal(Signal::KILL);
    worker.exit();
    until("the job is ready again", || {
        db.rows("ready_executions") == 1
    });
    assert_eq!(crash_count(db), 1);
    let _other = scene.worker();
    scene.open("a");
    scene.drained();
}

/// A job that ends its process with a code that looks like a graceful stop.
fn a_job_that_exits_is_counted_too(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    Work::new("bad", Do::Exit(0))
        .enqueue(&mut db.connection())
        .unwrap();
    until("the job is parked", || {
        db.execute("UPDATE solid_queue_scheduled_executions SET scheduled_at = created_at");
        db.rows("failed_executions") == 1
    });
    assert_eq!(scene.count("start", "bad"), 4);
}

/// A supervisor that never looks for a whole threshold without a gap.
fn gaps_do_not_hide_the_dead(db: &TestDb) {
    const THRESHOLD: Duration = Duration::from_secs(3);
    let scene = Scene::new(db);
    let supervisor = scene.worker_with(|role| {
        role.workers = Some(0);
        role.alive_threshold = THRESHOLD;
    });
    until("it is registered", || db.rows("processes") == 2);
    for number in 0..30 {
        db.execute(&format!(
            "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
             VALUES ('Worker', 'dead-{number}', 1, 3, '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')",
        ));
    }
    let left =
        || db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE name LIKE 'dead-%'");
    until("the dead processes are pruned", || {
        // Two readings or three, and then none for so long that it is a gap.
        std::thread::sleep(THRESHOLD * 3 / 5);
        supervisor.freeze(db);
        std::thread::sleep(THRESHOLD * 3 / 5);
        supervisor.signal(Signal::CONT);
        left() == 0
    });
}
