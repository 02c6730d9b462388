//! The findings of `doctor` about waits.

use crate::on_each_database;
use crate::policies::call;
use crate::support::TestDb;
use windlass::Policy;
use windlass_console::{Finding, Verdict, doctor};

on_each_database!(
    a_job_that_waits_for_no_event_is_found,
    a_wait_without_an_execution_is_found,
    a_wait_past_its_time_out_is_found,
);

const OLD: &str = "'2026-01-01 00:00:00.000000'";

/// A job that waits for an event.
fn waiting(db: &TestDb) -> i64 {
    call(db, Policy::new());
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute(&format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, '   ', '9999-12-31 23:59:59.000000', {OLD} FROM solid_queue_jobs"
    ));
    db.execute(&format!(
        "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
         SELECT id, 1, 'paid', 'paid/7', '9999-01-01 00:00:00.000000', {OLD} FROM solid_queue_jobs"
    ));
    one(db, Verdict::Fine, "is woken by it");
    db.count("SELECT id AS n FROM solid_queue_jobs")
}

#[track_caller]
fn one(db: &TestDb, verdict: Verdict, says: &str) -> Finding {
    let mut found = doctor(&mut db.connection()).unwrap();
    found.retain(|finding| finding.check == "waits");
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.remove(0);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.says.contains(says), "{finding:?}");
    finding
}

fn a_job_that_waits_for_no_event_is_found(db: &TestDb) {
    let job = waiting(db);
    db.execute("DELETE FROM windlass_waits");
    let finding = one(
        db,
        Verdict::Problem,
        "1 jobs wait for an event, and it is not known for which",
    );
    assert_eq!(finding.jobs, [job]);
}

fn a_wait_without_an_execution_is_found(db: &TestDb) {
    let job = waiting(db);
    db.execute("DELETE FROM solid_queue_blocked_executions");
    let finding = one(
        db,
        Verdict::Warning,
        "1 jobs have a wait for an event and are not blocked",
    );
    assert_eq!(finding.jobs, [job]);
}

fn a_wait_past_its_time_out_is_found(db: &TestDb) {
    let job = waiting(db);
    db.execute(&format!("UPDATE windlass_waits SET timeout_at = {OLD}"));
    let finding = one(db, Verdict::Problem, "time-out has passed");
    assert_eq!(finding.jobs, [job]);
}
