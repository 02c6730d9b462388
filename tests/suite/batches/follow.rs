//! The jobs that follow: what they wait for, and what becomes of them.

use super::*;
use crate::on_each_database;
use windlass::jobs::{Change, Jobs, Reason};
use windlass::{Concurrency, Dispatcher, Supervisor};

on_each_database!(
    a_job_that_follows_says_what_it_waits_for,
    what_follows_success_can_wait_for_retries,
    a_retry_in_an_open_batch_is_awaited,
    a_retry_after_the_end_reopens_nothing,
    what_follows_may_have_a_limit_or_a_time,
    what_follows_can_be_cancelled,
    the_jobs_of_a_batch_can_be_selected,
    a_drain_follows_batches,
    a_dispatcher_finds_a_batch_that_ended_unnoticed,
    batches_that_are_over_are_cleared,
);

fn a_job_that_follows_says_what_it_waits_for(db: &TestDb) {
    let mut conn = db.connect();
    let members = followed([Member::Finish; 3]).enqueue(&mut conn).unwrap();
    let job = windlass::JobId(db.count("SELECT min(child_job_id) AS n FROM windlass_edges"));
    let said = windlass::jobs::explain(&mut conn, job).unwrap().unwrap();
    let oldest = members.jobs[0].id;
    assert!(
        matches!(&said.reason, Reason::Batch { open: 3, total: 3, oldest: Some(id), .. } if *id == oldest),
        "{said:?}"
    );
    let text = windlass_explains(db, job);
    let words = format!("waits for 3 of 3 jobs of batch test; the oldest is {oldest}");
    assert!(text.contains(&words), "{text}");
    assert!(said.is_on_its_way());
}

/// Returns the output of `windlass explain`.
fn windlass_explains(db: &TestDb, job: windlass::JobId) -> String {
    let said = crate::support::program::windlass(&db.url, &["explain", &job.to_string()]);
    assert!(said.is_done(), "{said:?}");
    said.out
}

fn what_follows_success_can_wait_for_retries(db: &TestDb) {
    let batch = followed([Member::Finish, Member::Fail]).wait_for_retries();
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    let log = Arc::new(Log::default());
    let first = worker(db, &log, &Events::default());
    until("the batch is over", || is_over(db, batch));
    until("what follows has run", || {
        follow_ups(&log) == ["failure", "finish"]
    });
    until("only one is left, which waits for retries", || {
        open_jobs(db) == 1
    });
    // A retry that fails again ends the batch once more, and nothing runs twice.
    let mut conn = db.connect();
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let retried = Jobs::failed()
        .class("member")
        .change(&mut conn, retry.clone());
    assert_eq!(retried.unwrap().changed, 1);
    until("it has failed again", || {
        db.count("SELECT count(*) AS n FROM solid_queue_failed_executions") == 1
            && is_over(db, batch)
    });
    first.stop();
    assert_eq!(follow_ups(&log), ["failure", "finish"]);
    db.execute("UPDATE solid_queue_jobs SET arguments = '\"Finish\"' WHERE arguments = '\"Fail\"'");
    let retried = Jobs::failed().class("member").change(&mut conn, retry);
    assert_eq!(retried.unwrap().changed, 1);
    let status = batch.status(&mut conn).unwrap();
    assert!(
        !status.is_over() && status.open == 1 && status.failures == 0,
        "{status:?}"
    );
    assert_eq!(run_on(db, batch), ["success"]);
    assert_eq!(counts(db, batch), "2 2 0");
}

/// Lets the one job that fails do so, and makes it one that will succeed.
fn retry_as_finishing(db: &TestDb) {
    db.execute("UPDATE solid_queue_jobs SET arguments = '\"Finish\"' WHERE arguments = '\"Fail\"'");
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let retried = Jobs::failed().change(&mut db.connection(), retry).unwrap();
    assert_eq!(retried.changed, 1);
}

fn a_retry_in_an_open_batch_is_awaited(db: &TestDb) {
    let later = NewJob::new(&Member::Finish).unwrap();
    let batch = followed([Member::Fail]).add([later.after(Duration::from_secs(3600))]);
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    let log = Arc::new(Log::default());
    let first = worker(db, &log, &Events::default());
    until("one has failed", || {
        db.count("SELECT count(*) AS n FROM windlass_batch_failures") == 1
    });
    first.stop();
    retry_as_finishing(db);
    assert_eq!(batch.status(&mut db.connection()).unwrap().open, 2);
    let now = Change::RunIn(Duration::ZERO);
    Jobs::waiting().change(&mut db.connection(), now).unwrap();
    assert_eq!(run_on(db, batch), ["finish", "success"]);
    assert_eq!(counts(db, batch), "2 2 0");
}

fn a_retry_after_the_end_reopens_nothing(db: &TestDb) {
    let (batch, follow_ups) = run(db, followed([Member::Fail]));
    assert_eq!(follow_ups, ["failure", "finish"]);
    retry_as_finishing(db);
    assert!(is_over(db, batch));
    assert_eq!(run_on(db, batch), [""; 0]);
    assert_eq!(counts(db, batch), "1 0 1");
}

fn what_follows_may_have_a_limit_or_a_time(db: &TestDb) {
    let note = |text: &str| NewJob::new(&Note::new(text)).unwrap();
    let limited = note("limited").concurrency(Concurrency::new("k").limit(1));
    let later = note("later").after(Duration::from_secs(3600));
    let batch = Batch::new("n").add([&Member::Finish]);
    let batch = batch.on_success(limited).on_success(later);
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("the limited one has run", || {
        follow_ups(&log) == ["limited"]
    });
    until("the other one is scheduled", || {
        db.count("SELECT count(*) AS n FROM solid_queue_scheduled_executions") == 1
    });
    worker.stop();
    assert!(is_over(db, batch));
}

fn what_follows_can_be_cancelled(db: &TestDb) {
    let mut conn = db.connect();
    let batch = followed([Member::Finish]).enqueue(&mut conn).unwrap().id;
    let cancelled = Jobs::waiting()
        .class("note")
        .change(&mut conn, Change::Cancel);
    assert_eq!(cancelled.unwrap().changed, 3);
    assert_eq!(run_on(db, batch), [""; 0]);
}

fn the_jobs_of_a_batch_can_be_selected(db: &TestDb) {
    let mut conn = db.connect();
    let batch = followed([Member::Finish; 3]).enqueue(&mut conn).unwrap().id;
    let other = followed([Member::Finish]).enqueue(&mut conn).unwrap().id;
    let jobs = Jobs::waiting_or_running().batch(batch);
    assert_eq!(jobs.count(&mut conn).unwrap(), 3);
    assert_eq!(Jobs::from_pairs(jobs.to_pairs()).unwrap(), jobs);
    let cancelled = ["jobs", "cancel", "--batch", &batch.to_string()];
    let said = crate::support::program::windlass(&db.url, &cancelled);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(
        run_on(db, batch),
        ["failure", "finish", "finish", "success"]
    );
    assert!(is_over(db, other));
    assert_eq!(counts(db, batch), "3 0 3");
}

fn a_drain_follows_batches(db: &TestDb) {
    let mut conn = db.connect();
    let log = Arc::new(Log::default());
    let batch = followed([Member::Finish, Member::RetryOnce])
        .enqueue(&mut conn)
        .unwrap()
        .id;
    let _ = windlass::testing::drain(&mut conn, &registry(&log)).unwrap();
    assert_eq!(follow_ups(&log), ["finish", "success"]);
    assert!(is_over(db, batch));
}

fn a_dispatcher_finds_a_batch_that_ended_unnoticed(db: &TestDb) {
    let batch = followed([Member::Finish])
        .enqueue(&mut db.connection())
        .unwrap()
        .id;
    // As if another program had replaced the table and its trigger.
    db.execute("DELETE FROM solid_queue_jobs WHERE class_name = 'member'");
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute("DELETE FROM windlass_wanted_keys");
    db.execute("UPDATE solid_queue_batches SET enqueued_at = '2026-01-01 00:00:00.000000'");
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the batch is over", || is_over(db, batch));
    dispatcher.stop();
    assert_eq!(run_on(db, batch), ["finish", "success"]);
}

fn batches_that_are_over_are_cleared(db: &TestDb) {
    let (over, _) = run(db, followed([Member::Finish]));
    let open = followed([Member::Finish])
        .enqueue(&mut db.connection())
        .unwrap()
        .id;
    let old = "2026-01-01 00:00:00.000000";
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET created_at = '{old}', finished_at = CASE WHEN finished_at IS NOT NULL THEN '{old}' END"
    ).replace("THEN '2026", if db.is_postgres() { "THEN timestamp '2026" } else { "THEN '2026" }));
    db.execute(&format!(
        "UPDATE solid_queue_batches SET finished_at = '{old}' WHERE id = {over}"
    ));
    let supervisor = Supervisor::new(&db.database).start().unwrap();
    until("it is cleared", || {
        db.count("SELECT count(*) AS n FROM solid_queue_batches") == 1
    });
    assert!(!is_over(db, open));
    let edges = format!("SELECT count(*) AS n FROM windlass_edges WHERE parent_batch_id = {over}");
    until("its edges are cleared", || db.count(&edges) == 0);
    supervisor.stop();
    assert_eq!(db.rows_of("windlass_edges"), 3);
}
