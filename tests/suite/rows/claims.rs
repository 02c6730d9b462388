//! Claims that a worker cannot do with as it wants to.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work};
use crate::support::wait::until;
use std::time::Duration;
use windlass::{Job, NewJob, Policy};

on_each_database!(a_verdict_that_cannot_be_written_ends_no_claiming);

crate::through_a_pooler_in_all!(a_verdict_that_cannot_be_written_ends_no_claiming,);

/// Refuses verdicts, each after some seconds.
fn refuse_verdicts(db: &TestDb) {
    if db.is_postgres() {
        db.execute(
            "CREATE FUNCTION refuse_verdict() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_sleep(3); RAISE EXCEPTION 'refused by the test'; END $$",
        );
        db.execute(
            "CREATE TRIGGER refuse_verdict BEFORE UPDATE ON solid_queue_claimed_executions FOR EACH ROW \
             WHEN (NEW.verdict IS NOT NULL) EXECUTE FUNCTION refuse_verdict()",
        );
    } else {
        db.execute(
            "CREATE TRIGGER refuse_verdict BEFORE UPDATE ON solid_queue_claimed_executions \
             WHEN NEW.verdict IS NOT NULL BEGIN \
             SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
               WHERE i < 4000000) SELECT i FROM n); \
             SELECT RAISE(ABORT, 'refused by the test'); END",
        );
    }
}

/// The job ends by itself before its verdict is written: the process is not to
/// end, so it claims again.
fn a_verdict_that_cannot_be_written_ends_no_claiming(db: &TestDb) {
    let scene = Scene::new(db);
    refuse_verdicts(db);
    let worker = scene.worker();
    let slow = Work::new("slow", Do::WaitFor(scene.gate("slow")));
    let (timeout, grace) = (Duration::from_millis(300), Duration::from_millis(100));
    NewJob::new(&slow)
        .unwrap()
        .policy(Policy::new().timeout(timeout).timeout_grace(grace))
        .enqueue(&mut db.connection())
        .unwrap();
    let first = scene.started("slow", 1);
    worker.logs("cannot write down that a job timed out");
    scene.open("slow");
    scene.ended("slow", 1);
    // A refusal under way may hold SQLite's lock for longer than an enqueue waits for it.
    until("the next job is enqueued", || {
        let next = Work::new("next", Do::Nothing);
        next.enqueue(&mut db.connection()).is_ok()
    });
    assert_eq!(scene.started("next", 1).pid, first.pid);
    scene.drained();
    assert!(!worker.log().contains("timed out: job"));
}
