//! A claim whose answer was lost is in the database, and in the memory of no
//! process: a stop in good order gives it back.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Delivery, Handle, JobId, NewJob, Policy, Registry, Worker};

on_each_database!(
    a_stop_gives_a_stray_claim_back,
    a_stray_claim_does_not_end_an_at_most_once_job,
);

const HOUR: Duration = Duration::from_secs(3600);

/// A worker whose heartbeat comes too seldom to find the claim.
fn worker(db: &TestDb, events: &Events) -> Handle {
    let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
    let worker = Worker::new(&db.database, registry)
        .queues(["default"])
        .unwrap()
        .heartbeat_interval(HOUR)
        .alive_threshold(3 * HOUR)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("it is registered", || db.rows("processes") == 1);
    worker
}

/// A job on a queue that the worker does not serve.
fn enqueue(db: &TestDb, delivery: Delivery) -> JobId {
    let job = NewJob::new(&Note::new("a")).unwrap().queue("elsewhere");
    job.policy(Policy::new().delivery(delivery))
        .enqueue(&mut db.connection())
        .unwrap()
        .id
}

/// Returns the statements that leave the rows of a claim behind: the job was noted as started.
fn claim(job: JobId) -> [String; 2] {
    [
        format!("DELETE FROM solid_queue_ready_executions WHERE job_id = {job}"),
        format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at) \
             SELECT {job}, id, created_at, created_at FROM solid_queue_processes"
        ),
    ]
}

fn is_given_back(db: &TestDb, events: &Events, mut worker: Handle) {
    assert!(worker.join(DEADLINE).unwrap().is_drained());
    let rows = |table: &str| db.rows(table);
    assert_eq!(
        (
            rows("ready_executions"),
            rows("claimed_executions"),
            rows("failed_executions"),
            rows("processes")
        ),
        (1, 0, 0, 0)
    );
    let released = events.of("Released");
    assert_eq!(released.len(), 1, "{released:?}");
    assert!(released[0].contains("the answer to their claim was lost"));
    let counts = "SELECT CAST(sum(attempts + crash_count) AS bigint) AS n FROM solid_queue_jobs";
    assert_eq!(db.count(counts), 0);
}

fn stray(db: &TestDb, delivery: Delivery) {
    let events = Events::default();
    let worker = worker(db, &events);
    let claim = claim(enqueue(db, delivery));
    db.in_transaction(&[&claim[0], &claim[1]]);
    worker.stop();
    is_given_back(db, &events, worker);
}

fn a_stop_gives_a_stray_claim_back(db: &TestDb) {
    stray(db, Delivery::AtLeastOnce);
}

fn a_stray_claim_does_not_end_an_at_most_once_job(db: &TestDb) {
    stray(db, Delivery::AtMostOnce);
}

/// The connection broke while the server was still at it: the claim is
/// committed when the worker has looked already.
#[cfg(feature = "postgres")]
#[test]
fn a_claim_that_is_still_under_way_is_waited_for() {
    use crate::support::db::{count, execute};
    let (db, events) = (TestDb::postgres(), Events::default());
    let worker = worker(&db, &events);
    let claim = claim(enqueue(&db, Delivery::AtMostOnce));
    let mut conn = db.connect();
    execute(&mut conn, "BEGIN");
    execute(
        &mut conn,
        "SELECT id FROM solid_queue_processes FOR KEY SHARE",
    );
    for text in &claim {
        execute(&mut conn, text);
    }
    let me = count(&mut conn, "SELECT pg_backend_pid()::bigint AS n");
    worker.stop();
    until("the worker waits for the claim", || {
        db.count(&format!(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE {me} = ANY (pg_blocking_pids(pid))"
        )) > 0
    });
    execute(&mut conn, "COMMIT");
    is_given_back(&db, &events, worker);
}
