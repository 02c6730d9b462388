//! `windlass events`, and what `windlass explain` says of a job that waits for one.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;

on_each_database!(an_event_is_emitted, a_wait_is_explained);

fn an_event_is_emitted(db: &TestDb) {
    let said = windlass(&db.url, &["events", "emit", "paid/7", r#" {"cents": 990}"#]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(said.out, "Emitted paid/7.\n");
    let again = ["events", "emit", "paid/7", r#"{"cents":990}"#, "--json"];
    assert_eq!(windlass(&db.url, &again).json()["event"], "paid/7");
    let other = windlass(&db.url, &["events", "emit", "paid/7"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.contains("with another payload"), "{other:?}");
    let wrong = windlass(&db.url, &["events", "emit", "a", "{"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("the payload is not JSON"), "{wrong:?}");
    let payloads = db.texts("SELECT name || ' ' || payload AS t FROM windlass_events");
    assert_eq!(payloads, [r#"paid/7 {"cents": 990}"#]);
}

fn a_wait_is_explained(db: &TestDb) {
    db.execute("INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at) \
         VALUES ('default', 'order', 'null', '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')");
    db.execute(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, 'default', 0, '   ', '9999-12-31 23:59:59.000000', created_at FROM solid_queue_jobs",
    );
    db.execute(
        "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
         SELECT id, 1, 'paid', 'paid/7', '2030-01-02 03:04:05.000000', created_at FROM solid_queue_jobs",
    );
    let said = windlass(&db.url, &["explain", "1"]);
    assert!(said.is_done(), "{said:?}");
    let waits = "It waits for event paid/7 at its step paid until 2030-01-02";
    assert!(said.out.contains(waits), "{said:?}");
    let shown = windlass(&db.url, &["jobs", "show", "1"]);
    assert!(shown.is_done(), "{shown:?}");
}
