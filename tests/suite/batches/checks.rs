//! The findings of `doctor` about batches.

use super::*;
use crate::on_each_database;
use windlass_console::{Finding, Verdict, doctor};

on_each_database!(
    batches_that_are_as_they_should_be_are_fine,
    a_batch_that_ended_unnoticed_is_found,
    a_job_that_does_not_wait_for_its_batch_is_found,
    a_job_that_waits_for_nothing_is_found,
    a_job_that_was_not_let_go_is_found,
);

const OLD: &str = "'2026-01-01 00:00:00.000000'";

/// Lets all batches and jobs be old, so that nothing is under way.
fn age(db: &TestDb) {
    db.execute(&format!(
        "UPDATE solid_queue_batches SET enqueued_at = {OLD}, created_at = {OLD}"
    ));
    db.execute(&format!("UPDATE solid_queue_jobs SET created_at = {OLD}"));
}

fn findings(db: &TestDb) -> Vec<Finding> {
    let mut found = doctor(&mut db.connection()).unwrap();
    found.retain(|finding| finding.check == "batches");
    found
}

#[track_caller]
fn one(db: &TestDb, verdict: Verdict, says: &str) -> Finding {
    let mut found = findings(db);
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.remove(0);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.says.contains(says), "{finding:?}");
    finding
}

fn enqueued(db: &TestDb) -> (BatchId, Vec<i64>) {
    let batch = followed([Member::Finish]).enqueue(&mut db.connection());
    let batch = batch.unwrap().id;
    let follows = format!(
        "SELECT cast(child_job_id AS text) AS t FROM windlass_edges WHERE parent_batch_id = {batch} ORDER BY id"
    );
    let follows = db.texts(&follows).into_iter();
    (batch, follows.map(|id| id.parse().unwrap()).collect())
}

fn batches_that_are_as_they_should_be_are_fine(db: &TestDb) {
    one(db, Verdict::Fine, "every batch without jobs is over");
    run(db, followed([Member::Finish, Member::Fail]));
    enqueued(db);
    // Its end is noticed by the next promotion.
    let waiting = followed([]).enqueue(&mut db.connection()).unwrap().id;
    age(db);
    one(db, Verdict::Fine, "every batch without jobs is over");
    run_on(db, waiting);
    let mut conn = db.connect();
    let batch = followed([Member::Fail]).wait_for_retries();
    let batch = batch.enqueue(&mut conn).unwrap().id;
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("what follows has run", || {
        is_over(db, batch) && follow_ups(&log).len() == 2
    });
    until("requests are done", || {
        db.rows_of("windlass_wanted_keys") == 0
    });
    worker.stop();
    age(db);
    one(db, Verdict::Fine, "every batch without jobs is over");
}

fn a_batch_that_ended_unnoticed_is_found(db: &TestDb) {
    let (batch, _) = enqueued(db);
    db.execute("DELETE FROM solid_queue_batch_executions");
    db.execute("DELETE FROM windlass_wanted_keys");
    one(db, Verdict::Fine, "every batch without jobs is over");
    age(db);
    let says = format!("1 batches have no job left, and are not marked as over: {batch}");
    one(db, Verdict::Problem, &says);
}

fn a_job_that_does_not_wait_for_its_batch_is_found(db: &TestDb) {
    let (_, follows) = enqueued(db);
    let first = follows[0];
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) VALUES ({first}, 'default', 0, {OLD})"
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_blocked_executions WHERE job_id = {first}"
    ));
    age(db);
    let finding = one(db, Verdict::Warning, "do not wait for its end");
    assert_eq!(finding.jobs, [first]);
}

fn a_job_that_waits_for_nothing_is_found(db: &TestDb) {
    let (_, follows) = enqueued(db);
    db.execute(&format!(
        "DELETE FROM windlass_edges WHERE child_job_id = {}",
        follows[1]
    ));
    age(db);
    let finding = one(db, Verdict::Problem, "it is not known for which");
    assert_eq!(finding.jobs, [follows[1]]);
}

fn a_job_that_was_not_let_go_is_found(db: &TestDb) {
    let (_, follows) = enqueued(db);
    db.execute("UPDATE windlass_edges SET outcome = 'succeeded'");
    age(db);
    let finding = one(db, Verdict::Problem, "wait for others that are over");
    assert_eq!(finding.jobs, follows);
    for job in &follows {
        db.execute(&format!(
            "INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('after', {job})"
        ));
    }
    one(db, Verdict::Fine, "every batch without jobs is over");
}
