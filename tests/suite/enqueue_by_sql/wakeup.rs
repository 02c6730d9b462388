//! Jobs that are enqueued by SQL start at once.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::run;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Registry, Worker};

on_each_database!(an_idle_worker_wakes_for_each_way, a_rollback_leaves_nothing,);

/// A worker that looks for jobs only when it is woken.
fn idle(db: &TestDb, log: &Arc<Log>) -> windlass::Handle {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    let worker = Worker::new(&db.database, registry).threads(1);
    let worker = worker.polling_interval(Duration::from_secs(3600));
    let worker = worker.start().unwrap();
    if db.is_postgres() {
        until("it listens", || {
            db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE listening") == 1
        });
    }
    worker
}

fn an_idle_worker_wakes_for_each_way(db: &TestDb) {
    let log = Arc::new(Log::default());
    let _worker = idle(db, &log);
    let mut ways = vec![
        "INSERT INTO windlass_enqueue (class, arguments) VALUES ('note', '{\"text\":\"view\"}')",
        "INSERT INTO windlass_enqueue_v2 (class, arguments, unique_id) VALUES ('note', '{\"text\":\"unique\"}', 'a')",
        "INSERT INTO windlass_enqueue (class, arguments, concurrency_key) VALUES ('note', '{\"text\":\"limited\"}', 'a')",
    ];
    match db.is_postgres() {
        true => ways.extend([
            "SELECT windlass_enqueue('note', '{\"text\":\"call\"}')",
            "SELECT windlass_enqueue_many('note', '[{\"arguments\":{\"text\":\"list\"}}]')",
        ]),
        false => ways.push(
            "INSERT INTO windlass_enqueue_many VALUES ('note', '[{\"arguments\":{\"text\":\"list\"}}]')",
        ),
    }
    for (done, way) in ways.iter().enumerate() {
        run(db, way).unwrap();
        until(way, || log.len() == done + 1);
    }
}

fn a_rollback_leaves_nothing(db: &TestDb) {
    db.in_transaction(&["INSERT INTO windlass_enqueue (class, unique_id, idempotency_key) VALUES ('note', 'a', 'a')"]);
    let mut conn = db.connect();
    for statement in [
        "BEGIN",
        "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('note', 'b')",
        "INSERT INTO windlass_enqueue (class, unique_id, on_conflict, priority) VALUES ('note', 'a', 'replace', 7)",
        "ROLLBACK",
    ] {
        crate::support::db::execute(&mut conn, statement);
    }
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (1, 1));
    assert_eq!(
        db.count("SELECT CAST(max(priority) AS bigint) AS n FROM solid_queue_jobs"),
        0
    );
}
