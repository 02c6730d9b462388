//! `windlass batches`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use windlass::{Batch, BatchId, NewJob};

on_each_database!(
    batches_are_listed_and_shown,
    a_batch_is_cancelled,
    failed_jobs_of_a_batch_are_retried,
    a_person_is_asked_before_a_batch_is_cancelled,
);

fn enqueued(db: &TestDb) -> BatchId {
    let job = || NewJob::of_class("import", "{}");
    let inner = Batch::new("inner").add([job()]);
    let batch = Batch::new("night-import").add([job(), job()]);
    let batch = batch.add_batch(inner).on_success(job()).metadata(&7);
    batch.enqueue(&mut db.connection()).unwrap().id
}

fn batches_are_listed_and_shown(db: &TestDb) {
    let said = windlass(&db.url, &["batches", "list"]);
    assert_eq!(said.out, "No such batch.\n");
    let batch = enqueued(db);
    let said = windlass(&db.url, &["batches", "list"]);
    assert_eq!(said.out.lines().count(), 3, "{}", said.out);
    assert!(said.out.contains("night-import"), "{}", said.out);
    let said = windlass(&db.url, &["batches", "list", "--state", "failed"]);
    assert_eq!(said.out, "No such batch.\n");
    let said = windlass(&db.url, &["batches", "list", "--limit", "1", "--json"]).json();
    let last = said["batches"][0]["id"].to_string();
    assert_eq!(said["batches"][0]["name"], "inner");
    let said = windlass(&db.url, &["batches", "list", "--before", &last, "--json"]).json();
    assert_eq!(said["batches"][0]["open"]["count"], 3);
    let said = windlass(&db.url, &["batches", "show", &batch.to_string()]);
    for part in [
        "night-import, open: 3 of 3 jobs are open",
        "waits for the batch",
    ] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let said = windlass(&db.url, &["batches", "show", &batch.to_string(), "--json"]).json();
    assert_eq!(said["metadata"], "7");
    assert_eq!(said["inner"].as_array().unwrap().len(), 1);
    let said = windlass(&db.url, &["batches", "show", "99"]);
    assert!(
        !said.is_done() && said.err.contains("no batch 99"),
        "{said:?}"
    );
}

fn a_batch_is_cancelled(db: &TestDb) {
    let batch = enqueued(db).to_string();
    let said = windlass(&db.url, &["batches", "cancel", &batch, "--dry-run"]);
    assert!(
        said.out.contains("Selected to be cancelled: 3 jobs"),
        "{said:?}"
    );
    let command = ["batches", "cancel", &batch, "--background", "--json"];
    let said = windlass(&db.url, &command).json();
    assert_eq!(said["operation_id"], 1);
    let stop = ["operations", "stop", "1"];
    assert!(windlass(&db.url, &stop).is_done());
    let reason = ["--by", "ada", "--reason", "wrong file"];
    let command = [&["batches", "cancel", &batch][..], &reason].concat();
    let said = windlass(&db.url, &command);
    assert_eq!(said.out, "3 jobs were cancelled.\n", "{said:?}");
    let audit = windlass(&db.url, &["audit", "list", "--actor", "ada", "--json"]).json();
    assert!(audit.to_string().contains("wrong file"), "{audit}");
    let said = windlass(&db.url, &["batches", "cancel", &batch]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(said.out, "No job was cancelled.\n");
}

fn failed_jobs_of_a_batch_are_retried(db: &TestDb) {
    let batch = enqueued(db).to_string();
    db.in_transaction(&[
        "INSERT INTO windlass_batch_failures (job_id, batch_id, created_at) SELECT job_id, batch_id, created_at \
         FROM solid_queue_batch_executions WHERE job_id IN (SELECT job_id FROM solid_queue_ready_executions)",
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) SELECT job_id, '{}', created_at \
         FROM solid_queue_ready_executions ORDER BY id",
        "DELETE FROM solid_queue_batch_executions WHERE job_id IN (SELECT job_id FROM solid_queue_ready_executions)",
        "DELETE FROM solid_queue_ready_executions",
    ]);
    let said = windlass(&db.url, &["batches", "retry", &batch]);
    assert_eq!(said.out, "3 jobs were retried.\n", "{said:?}");
    let said = windlass(&db.url, &["batches", "show", &batch, "--json"]).json();
    assert_eq!(
        (&said["open"]["count"], &said["failures"]["count"]),
        (&3.into(), &0.into())
    );
}

fn a_person_is_asked_before_a_batch_is_cancelled(db: &TestDb) {
    let batch = enqueued(db).to_string();
    let cancel = Windlass::new(&["batches", "cancel", &batch]).env("DATABASE_URL", &db.url);
    let (code, said) = cancel.on_a_terminal("n\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("3 jobs will be cancelled"), "{said}");
    assert!(said.contains("No job was cancelled."), "{said}");
}
