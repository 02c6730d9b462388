//! Batches of Windlass while Solid Queue's dispatcher sweeps the same tables, and batches of Ruby. Solid Queue's own
//! statements are said in SQL.

use super::*;
use crate::on_each_database;

on_each_database!(
    a_sweep_of_ruby_ends_nothing_too_early,
    a_batch_that_ruby_marks_as_over_is_followed,
    a_batch_of_ruby_is_left_to_ruby,
);

/// Looks for stalled batches as Solid Queue's dispatcher does: takes ended jobs out of them, and marks those without
/// jobs as finished.
fn sweep(db: &TestDb) {
    db.execute(
        "DELETE FROM solid_queue_batch_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE finished_at IS NOT NULL) \
         OR job_id IN (SELECT job_id FROM solid_queue_failed_executions)",
    );
    db.execute(
        "UPDATE solid_queue_batches SET finished_at = '2026-11-25 05:00:00.000000' WHERE finished_at IS NULL \
         AND enqueued_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions e WHERE e.batch_id = solid_queue_batches.id)",
    );
}

fn a_sweep_of_ruby_ends_nothing_too_early(db: &TestDb) {
    let batch = followed([Member::Finish, Member::Fail]);
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    sweep(db);
    assert!(!is_over(db, batch));
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("the batch is over", || {
        sweep(db);
        is_over(db, batch)
    });
    until("what follows has run", || follow_ups(&log).len() == 2);
    worker.stop();
    assert_eq!(follow_ups(&log), ["failure", "finish"]);
}

fn a_batch_that_ruby_marks_as_over_is_followed(db: &TestDb) {
    let mut conn = db.connect();
    let enqueued = followed([Member::Finish]).enqueue(&mut conn).unwrap();
    // Mission Control discards the job by deleting its row.
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {}",
        enqueued.jobs[0].id
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_jobs WHERE id = {}",
        enqueued.jobs[0].id
    ));
    sweep(db);
    assert_eq!(run_on(db, enqueued.id), ["finish", "success"]);
}

fn a_batch_of_ruby_is_left_to_ruby(db: &TestDb) {
    let mut conn = db.connect();
    db.execute(
        "INSERT INTO solid_queue_batches (active_job_batch_id, on_finish, total_jobs, enqueued_at, created_at, updated_at) \
         VALUES ('5d1cbd3c', '{}', 1, '2026-11-25 05:00:00.000000', '2026-11-25 05:00:00.000000', '2026-11-25 05:00:00.000000')",
    );
    let batch = db.count("SELECT id AS n FROM solid_queue_batches");
    let job = NewJob::new(&Member::Finish)
        .unwrap()
        .enqueue(&mut conn)
        .unwrap()
        .id;
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET batch_id = {batch} WHERE id = {job}"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) VALUES ({job}, {batch}, '2026-11-25 05:00:00.000000')"
    ));
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("the job has left", || {
        db.count("SELECT count(*) AS n FROM solid_queue_batch_executions") == 0
    });
    until("the request was handled", || {
        db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
    });
    worker.stop();
    let open = "SELECT count(*) AS n FROM solid_queue_batches WHERE finished_at IS NULL";
    assert_eq!(db.count(open), 1, "only Ruby can run its callbacks");
    let refused = BatchId(batch)
        .add(&mut conn, [&Member::Finish])
        .unwrap_err();
    assert!(
        matches!(refused, windlass::Error::NoSuchBatch { .. }),
        "{refused}"
    );
}
