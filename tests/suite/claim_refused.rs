//! Jobs that cannot be claimed, and processes that may not claim.

use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use crate::{on_each_database, on_each_durable_database};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Job, Registry, Worker};

const HOUR: Duration = Duration::from_secs(3600);

fn worker(db: &TestDb, log: &Arc<Log>, events: &Events) -> Worker {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry).subscriber(events.subscriber())
}

/// A ready execution without a job: somebody deleted the job by hand.
fn orphan(db: &TestDb, job_id: u32, class: &str) {
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, created_at) \
         VALUES ({job_id}, 'default', -1, {class}, '2026-11-21 00:00:00')"
    ));
}

fn a_ready_execution_without_a_job_disappears(db: &TestDb) {
    orphan(db, 1_000_001, "'note'");
    orphan(db, 1_000_002, "NULL");
    orphan(db, 1_000_003, "'unknown'");
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events).start().unwrap();
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    until("the job is done", || log.len() == 1);
    until("the orphans it could claim are gone", || {
        db.texts(
            "SELECT class_name AS t FROM solid_queue_ready_executions WHERE class_name IS NOT NULL",
        ) == ["unknown"]
            && db.rows("ready_executions") == 1
            && db.rows("claimed_executions") == 0
    });
    for kind in ["Failed", "Fenced", "Unreachable", "Lost"] {
        assert_eq!(events.count(kind), 0, "{kind}");
    }
}

/// They are taken for a full claim, not for the end of the work.
fn many_of_them_do_not_hold_up_the_jobs_behind(db: &TestDb) {
    for id in 0..20 {
        orphan(db, 1_000_000 + id, "'note'");
    }
    Note::new("behind them")
        .enqueue(&mut db.connection())
        .unwrap();
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events)
        .threads(1)
        .polling_interval(HOUR)
        .start()
        .unwrap();
    until("the job is done", || log.len() == 1);
}

/// Beats so rarely that it cannot be registered anew within the test.
fn a_process_that_may_not_claim_does_not(db: &TestDb, forbid: &str) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events)
        .heartbeat_interval(HOUR)
        .alive_threshold(3 * HOUR)
        .polling_interval(Duration::from_millis(10))
        .start()
        .unwrap();
    let mut conn = db.connect();
    Note::new("before").enqueue(&mut conn).unwrap();
    until("it works", || log.len() == 1);
    until("nothing is under way", || {
        db.rows("claimed_executions") == 0
    });
    db.execute(forbid);
    Note::new("after").enqueue(&mut conn).unwrap();
    until("the worker has noticed", || events.count("Lost") == 1);
    assert_eq!(db.rows("claimed_executions"), 0);
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(log.lines(), ["before"]);
}

fn a_draining_process_claims_nothing(db: &TestDb) {
    a_process_that_may_not_claim_does_not(db, "UPDATE solid_queue_processes SET draining = true");
}

fn a_pruned_process_claims_nothing(db: &TestDb) {
    a_process_that_may_not_claim_does_not(db, "DELETE FROM solid_queue_processes");
}

/// Not even when it finds nothing to claim: what it holds may be elsewhere.
fn an_idle_process_notices_that_it_was_pruned(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events)
        .heartbeat_interval(HOUR)
        .alive_threshold(3 * HOUR)
        .polling_interval(Duration::from_millis(10))
        .start()
        .unwrap();
    until("it is registered", || db.rows("processes") == 1);
    db.execute("DELETE FROM solid_queue_processes");
    until("it has noticed", || events.count("Lost") == 1);
}

fn a_pruned_process_goes_on_under_another_name(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(HOUR)
        .start()
        .unwrap();
    until("it is registered", || db.rows("processes") == 1);
    let name = "SELECT name AS t FROM solid_queue_processes";
    let first = db.texts(name);
    db.execute("DELETE FROM solid_queue_processes");
    until("it is registered anew", || db.rows("processes") == 1);
    assert_ne!(db.texts(name), first);
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    until("it works", || log.len() == 1);
}

on_each_durable_database!(
    a_ready_execution_without_a_job_disappears,
    a_draining_process_claims_nothing,
    a_pruned_process_claims_nothing,
    an_idle_process_notices_that_it_was_pruned,
    a_pruned_process_goes_on_under_another_name,
);

fn a_job_that_is_claimed_already_holds_up_no_other(db: &TestDb) {
    let mut conn = db.connect();
    let id = Note::new("held elsewhere").enqueue(&mut conn).unwrap().id;
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) VALUES ({id}, 1000000, '2026-01-01 00:00:00')"
    ));
    Note::new("behind it").enqueue(&mut conn).unwrap();
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events).start().unwrap();
    until("the other is done", || log.len() == 1);
    assert_eq!(log.lines(), ["behind it"]);
}

on_each_durable_database!(a_job_that_is_claimed_already_holds_up_no_other);

on_each_database!(many_of_them_do_not_hold_up_the_jobs_behind);

crate::through_a_pooler_in_all!(
    a_ready_execution_without_a_job_disappears,
    a_draining_process_claims_nothing,
    a_pruned_process_claims_nothing,
    an_idle_process_notices_that_it_was_pruned,
    a_pruned_process_goes_on_under_another_name,
    a_job_that_is_claimed_already_holds_up_no_other,
    many_of_them_do_not_hold_up_the_jobs_behind,
);
