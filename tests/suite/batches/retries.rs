//! Jobs that wait for the success of a batch whose failed jobs may be retried: until no retry can bring it any more.

use super::*;
use crate::on_each_database;
use windlass::jobs::{Change, Jobs, Reason};
use windlass::{Dispatcher, JobId};

on_each_database!(
    a_cancelled_job_ends_the_wait,
    a_failed_job_that_is_discarded_ends_the_wait,
    a_failed_job_that_another_program_deletes_ends_the_wait,
    a_dispatcher_finds_that_no_retry_can_come,
    a_failure_of_a_batch_in_the_batch_ends_the_wait,
    a_job_after_a_batch_waits_for_its_retries_no_longer_than_they_can_come,
    one_failure_that_stays_is_enough,
    many_deletions_are_one_request,
    a_retry_by_another_program_counts,
    a_job_that_was_retried_before_the_wait_has_failed,
    a_retry_opens_no_batch_for_a_job_that_was_cancelled,
);

const RETRY: Change = Change::Retry {
    even_at_most_once: false,
};

/// Runs a batch of which a job fails until only the job is left that waits for retries, and returns that.
fn waiting(db: &TestDb, members: &[Member]) -> (BatchId, JobId) {
    let batch = Batch::new("test")
        .add(members.iter().map(NewJob::new))
        .on_success(&Note::new("success"))
        .wait_for_retries();
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    run_to_the_wait(db, batch);
    (batch, JobId(follower(db)))
}

fn run_to_the_wait(db: &TestDb, batch: BatchId) {
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("the batch is over, and one job is left", || {
        is_over(db, batch) && open_jobs(db) == 1 && db.rows_of("windlass_wanted_keys") == 0
    });
    worker.stop();
    assert_eq!(follow_ups(&log), [""; 0]);
}

fn follower(db: &TestDb) -> i64 {
    db.count("SELECT max(id) AS n FROM solid_queue_jobs WHERE class_name = 'note'")
}

/// Runs what is left, and requires that the waiting job is discarded, with the reason.
fn is_discarded(db: &TestDb, waiting: JobId) {
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("it waits no longer", || open_jobs(db) == 0);
    worker.stop();
    assert_eq!(follow_ups(&log), [""; 0]);
    let last = format!(
        "SELECT outcome || ': ' || message AS t FROM windlass_attempts WHERE job_id = {waiting}"
    );
    let said = db.texts(&last).join("");
    let reason = "the batch for which it waited has failed";
    assert!(
        said.starts_with("discarded: ") && said.contains(reason),
        "{said}"
    );
    let explained = windlass::jobs::explain(&mut db.connection(), waiting).unwrap();
    assert_eq!(explained.unwrap().reason, Reason::Ended);
}

fn a_cancelled_job_ends_the_wait(db: &TestDb) {
    let batch = Batch::new("test")
        .add([&Member::Finish, &Member::Finish])
        .on_success(&Note::new("success"))
        .wait_for_retries();
    let jobs = batch.enqueue(&mut db.connection()).unwrap().jobs;
    let first = Jobs::waiting().ids([jobs[0].id]);
    let cancelled = first.change(&mut db.connection(), Change::Cancel).unwrap();
    assert_eq!(cancelled.changed, 1);
    is_discarded(db, JobId(follower(db)));
}

fn a_failed_job_that_is_discarded_ends_the_wait(db: &TestDb) {
    let (_, job) = waiting(db, &[Member::Finish, Member::Fail]);
    let discarded = Jobs::failed().change(&mut db.connection(), Change::Discard);
    assert_eq!(discarded.unwrap().changed, 1);
    is_discarded(db, job);
}

fn a_failed_job_that_another_program_deletes_ends_the_wait(db: &TestDb) {
    let (_, job) = waiting(db, &[Member::Finish, Member::Fail]);
    // As Mission Control does.
    db.execute("DELETE FROM solid_queue_failed_executions");
    db.execute("DELETE FROM solid_queue_jobs WHERE class_name = 'member'");
    is_discarded(db, job);
}

fn a_dispatcher_finds_that_no_retry_can_come(db: &TestDb) {
    let (_, job) = waiting(db, &[Member::Fail]);
    // As if another program had replaced the table and its triggers.
    db.execute("DELETE FROM solid_queue_jobs WHERE class_name = 'member'");
    db.execute("DELETE FROM windlass_wanted_keys");
    let old = match db.is_postgres() {
        true => "timestamp '2026-01-01'",
        false => "'2026-01-01 00:00:00.000000'",
    };
    db.execute(&format!("UPDATE windlass_edges SET created_at = {old}"));
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it waits no longer", || open_jobs(db) == 0);
    dispatcher.stop();
    is_discarded(db, job);
}

fn a_failure_of_a_batch_in_the_batch_ends_the_wait(db: &TestDb) {
    let inner = Batch::new("inner").add([&Member::Fail]);
    let batch = Batch::new("test")
        .add_batch(inner)
        .on_success(&Note::new("success"))
        .wait_for_retries();
    batch.enqueue(&mut db.connection()).unwrap();
    is_discarded(db, JobId(follower(db)));
}

fn a_job_after_a_batch_waits_for_its_retries_no_longer_than_they_can_come(db: &TestDb) {
    let mut conn = db.connect();
    let batch = Batch::new("test").add([&Member::Fail]).enqueue(&mut conn);
    let batch = batch.unwrap().id;
    let note = NewJob::new(&Note::new("success")).unwrap();
    let job = note.after(batch).wait_for_retries().enqueue(&mut conn);
    let job = job.unwrap().id;
    run_to_the_wait(db, batch);
    assert_eq!(Jobs::failed().change(&mut conn, RETRY).unwrap().changed, 1);
    run_to_the_wait(db, batch);
    let discarded = Jobs::failed().change(&mut conn, Change::Discard);
    assert_eq!(discarded.unwrap().changed, 1);
    is_discarded(db, job);
}

/// Another could still be retried.
fn one_failure_that_stays_is_enough(db: &TestDb) {
    let (batch, job) = waiting(db, &[Member::Fail; 2]);
    let first = Jobs::failed().limit(1);
    let discarded = first.change(&mut db.connection(), Change::Discard);
    assert_eq!(discarded.unwrap().changed, 1);
    is_discarded(db, job);
    let retried = Jobs::failed().change(&mut db.connection(), RETRY).unwrap();
    assert_eq!(retried.changed, 1);
    assert!(is_over(db, batch), "nothing waits for it any more");
}

fn a_retry_opens_no_batch_for_a_job_that_was_cancelled(db: &TestDb) {
    let (batch, job) = waiting(db, &[Member::Fail]);
    let mut conn = db.connect();
    let follower = Jobs::waiting().ids([job]);
    assert_eq!(
        follower.change(&mut conn, Change::Cancel).unwrap().changed,
        1
    );
    assert_eq!(Jobs::failed().change(&mut conn, RETRY).unwrap().changed, 1);
    assert!(is_over(db, batch));
}

fn many_deletions_are_one_request(db: &TestDb) {
    let (_, job) = waiting(db, &[Member::Fail; 5]);
    let delete = "DELETE FROM solid_queue_jobs WHERE class_name = 'member'";
    db.execute("DELETE FROM solid_queue_failed_executions");
    db.execute(delete);
    assert_eq!(db.rows_of("windlass_wanted_keys"), 1);
    is_discarded(db, job);
    // Nothing waits for this one.
    let batch = Batch::new("test").add([&Member::Fail; 5]);
    run(db, batch);
    let idle = || db.rows_of("windlass_wanted_keys") == 0;
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("requests are done", idle);
    worker.stop();
    db.execute("DELETE FROM solid_queue_failed_executions");
    db.execute(delete);
    assert!(idle());
}

/// Mission Control makes the job ready again, and knows nothing of our failures.
fn a_retry_by_another_program_counts(db: &TestDb) {
    let (batch, job) = waiting(db, &[Member::Finish, Member::Fail]);
    db.execute("UPDATE solid_queue_jobs SET arguments = '\"Finish\"' WHERE arguments = '\"Fail\"'");
    db.execute(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
         SELECT job_id, 'default', 0, created_at FROM solid_queue_failed_executions",
    );
    db.execute("DELETE FROM solid_queue_failed_executions");
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it has run", || follow_ups(&log) == ["success"]);
    dispatcher.stop();
    worker.stop();
    assert!(!batch.status(&mut db.connection()).unwrap().has_failed());
    until("it has ended", || {
        let explained = windlass::jobs::explain(&mut db.connection(), job).unwrap();
        explained.unwrap().reason == Reason::Ended
    });
}

fn a_job_that_was_retried_before_the_wait_has_failed(db: &TestDb) {
    let (batch, _) = run(db, Batch::new("test").add([&Member::Fail]));
    db.execute("UPDATE solid_queue_jobs SET arguments = '\"Finish\"' WHERE arguments = '\"Fail\"'");
    let mut conn = db.connect();
    assert_eq!(Jobs::failed().change(&mut conn, RETRY).unwrap().changed, 1);
    run_on(db, batch);
    let note = NewJob::new(&Note::new("success")).unwrap();
    let job = note.after(batch).wait_for_retries().enqueue(&mut conn);
    is_discarded(db, job.unwrap().id);
}
