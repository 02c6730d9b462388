//! Solid Queue 1.7 has batches, which 1.5 had not: whichever of Rails and Windlass makes their tables first, the
//! other accepts them.

use crate::on_each_empty_database;
use crate::schema_life::{rails_inserts_into_every_table, works};
use crate::support::TestDb;
use crate::support::solid_queue;

/// The tables are complete, whichever program made them; both sides can work.
fn is_complete(db: &TestDb) {
    let again = db.database.migrate().unwrap();
    assert!(again.is_empty(), "{again:?}");
    let all = db.unique_indexes();
    for (table, columns) in solid_queue::unique_indexes() {
        let name = format!("solid_queue_{table}: {}", columns.join(","));
        assert!(all.contains(&name), "{name} is not in {all:?}");
    }
    works(db);
    a_deleted_job_leaves_its_batch(db);
    rails_inserts_into_every_table(db);
}

fn a_deleted_job_leaves_its_batch(db: &TestDb) {
    let now = "'2026-11-25 03:36:27.384057'";
    solid_queue::enqueue(db, "ReportJob", "[1]");
    let executions = "SELECT count(*) AS n FROM solid_queue_batch_executions";
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_batches (id, created_at, updated_at) VALUES (7, {now}, {now})"
        ),
        "UPDATE solid_queue_jobs SET batch_id = 7 WHERE class_name = 'ReportJob'",
        &format!(
            "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) \
             SELECT id, 7, {now} FROM solid_queue_jobs WHERE batch_id = 7"
        ),
    ]);
    assert_eq!(db.count(executions), 1);
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute("DELETE FROM solid_queue_jobs WHERE batch_id = 7");
    assert_eq!(db.count(executions), 0);
    db.execute("DELETE FROM solid_queue_batches");
}

fn windlass_after_the_update_of_rails(db: &TestDb) {
    solid_queue::create_before_batches(db);
    solid_queue::add_batches(db);
    db.database.migrate().unwrap();
    is_complete(db);
}

fn windlass_before_the_update_of_rails(db: &TestDb) {
    solid_queue::create_before_batches(db);
    db.database.migrate().unwrap();
    solid_queue::add_batches(db);
    is_complete(db);
}

fn windlass_alone_and_then_the_update_of_rails(db: &TestDb) {
    db.database.migrate().unwrap();
    solid_queue::add_batches(db);
    is_complete(db);
}

on_each_empty_database!(
    windlass_after_the_update_of_rails,
    windlass_before_the_update_of_rails,
    windlass_alone_and_then_the_update_of_rails,
);
