//! Rows and claims that dead processes held.

use crate::batch::{accept, refuse};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Once, Process, Scene, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use windlass::Job;

on_each_database!(
    claims_without_a_process_are_recovered,
    a_process_whose_row_is_gone_registers_anew,
    a_claim_that_cannot_be_recovered_holds_up_no_other,
    counts_at_their_end_hold_up_nothing,
);

crate::through_a_pooler_in_all!(
    claims_without_a_process_are_recovered,
    a_process_whose_row_is_gone_registers_anew,
    a_claim_that_cannot_be_recovered_holds_up_no_other,
    counts_at_their_end_hold_up_nothing,
);

const OURS: &str = "heartbeat_seq IS NOT NULL AND kind = 'Worker'";

fn crash_counts(db: &TestDb) -> Vec<i64> {
    (1..=2)
        .map(|job| {
            db.count(&format!(
                "SELECT CAST(crash_count AS bigint) AS n FROM solid_queue_jobs WHERE id = {job}"
            ))
        })
        .collect()
}

fn kill(mut worker: Process) {
    worker.signal(Signal::KILL);
    worker.exit();
}

/// As a crash. Those of Rails are left to Rails.
fn claims_without_a_process_are_recovered(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let worker = scene.worker();
    let work = Work::new("a", Do::WaitFor(scene.gate("a")));
    work.enqueue(&mut db.connection()).unwrap();
    let once = Work::new("once", Do::WaitFor(scene.gate("never")));
    Once(once).enqueue(&mut db.connection()).unwrap();
    let first = scene.started("a", 1);
    scene.started("once", 1);
    kill(worker);
    db.execute(&format!("DELETE FROM solid_queue_processes WHERE {OURS}"));
    let time = "'2026-11-21 03:36:27.384057'";
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, active_job_id, created_at, updated_at) \
             VALUES ('ruby', 'RubyJob', 'x', {time}, {time})"
        ),
        &format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) VALUES (3, 999999, {time})"
        ),
    ]);
    let supervisor = scene.supervisor(1);
    let second = scene.started("a", 2);
    assert!(second.claim > first.claim);
    until("the other has failed", || db.rows("failed_executions") == 1);
    assert_eq!(crash_counts(db), [1, 1]);
    let error = &db.texts("SELECT error AS t FROM solid_queue_failed_executions")[0];
    assert!(error.contains("outcome_unknown"), "{error}");
    scene.open("a");
    scene.ended("a", 1);
    assert_eq!(scene.count("start", "once"), 1);
    until("only that of Rails is left", || {
        db.texts("SELECT CAST(job_id AS text) AS t FROM solid_queue_claimed_executions") == ["3"]
    });
    supervisor.logs("stalled: job 1 was running when its process died");
}

/// It trusts its claims no longer, and works on under a new name.
fn a_process_whose_row_is_gone_registers_anew(db: &TestDb) {
    let scene = Scene::new(db);
    let worker = scene.worker();
    let work = Work::new("a", Do::WaitForOrLost(scene.gate("never")));
    work.enqueue(&mut db.connection()).unwrap();
    let first = scene.started("a", 1);
    db.execute(&format!("DELETE FROM solid_queue_processes WHERE {OURS}"));
    scene.ended("a", 1);
    worker.logs("lost the registration");
    let work = Work::new("b", Do::Nothing);
    work.enqueue(&mut db.connection()).unwrap();
    scene.ended("b", 1);
    assert_eq!(scene.started("b", 1).pid, first.pid);
    // No other process has it, so its late end counts.
    scene.drained();
}

fn a_claim_that_cannot_be_recovered_holds_up_no_other(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    for names in [["a", "b"], ["c", "d"]] {
        let worker = scene.worker();
        for name in names {
            let work = Work::new(name, Do::WaitFor(scene.gate("go")));
            work.enqueue(&mut db.connection()).unwrap();
            scene.started(name, 1);
        }
        kill(worker);
    }
    refuse(
        db,
        "solid_queue_claimed_executions",
        "DELETE",
        "OLD.job_id = 1",
    );
    let supervisor = scene.worker_with(|role| {
        role.workers = Some(1);
        role.threads = 8;
    });
    for name in ["b", "c", "d"] {
        scene.started(name, 2);
    }
    assert_eq!(scene.count("start", "a"), 1);
    supervisor.logs("refused by the test");
    accept(db, "solid_queue_claimed_executions");
    scene.started("a", 2);
    scene.open("go");
    scene.drained();
    assert_eq!(
        db.count("SELECT CAST(max(attempts) AS bigint) AS n FROM solid_queue_jobs"),
        0
    );
    until("the dead processes are gone", || {
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_processes WHERE {OURS}"
        )) == 1
    });
}

/// Counters that can grow no more.
fn counts_at_their_end_hold_up_nothing(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = scene.supervisor(1);
    for name in ["a", "b"] {
        let work = Work::new(name, Do::WaitFor(scene.gate("go")));
        work.enqueue(&mut db.connection()).unwrap();
    }
    let first = scene.started("a", 1);
    scene.started("b", 1);
    db.execute("UPDATE solid_queue_jobs SET crash_count = 2147483647 WHERE id = 1");
    crate::support::process::signal(first.pid, Signal::KILL);
    until("the first has crashed too often", || {
        db.rows("failed_executions") == 1
    });
    scene.started("b", 2);
    scene.open("go");
    scene.ended("b", 1);
    let work = Work::new("c", Do::WaitFor(scene.gate("fail")));
    work.enqueue(&mut db.connection()).unwrap();
    scene.started("c", 1);
    db.execute("UPDATE solid_queue_jobs SET attempts = 2147483647 WHERE id = 3");
    let bad = windlass::NewJob::of_class("work", "[1]");
    bad.enqueue(&mut db.connection()).unwrap();
    db.execute("UPDATE solid_queue_jobs SET attempts = 2147483647 WHERE id = 4");
    scene.open("fail");
    until("it has failed", || db.rows("failed_executions") == 2);
    until("no claim is left", || db.rows("claimed_executions") == 0);
}
