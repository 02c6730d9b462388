//! The end of a batch: the ways in which jobs leave it, and the jobs that follow.

use super::*;
use crate::on_each_database;
use crate::support::process::{Do, Scene, Work};
use windlass::DbConnection;
use windlass::jobs::{Change, Jobs};
use windlass::limits::LimitConflict;
use windlass::{Concurrency, Error};

on_each_database!(
    when_all_have_succeeded_what_follows_success_runs_once,
    when_one_has_failed_what_follows_failure_runs,
    retries_and_snoozes_keep_a_job_in_its_batch,
    a_job_that_discards_itself_was_not_needed,
    finished_jobs_that_are_deleted_leave_too,
    a_job_that_finishes_in_its_own_transaction_leaves,
    a_cancelled_job_makes_the_batch_fail,
    a_job_that_is_deleted_leaves_without_a_trace,
    a_limit_that_discards_a_job_is_no_failure,
    a_parked_job_makes_the_batch_fail,
    an_empty_batch_is_over_after_the_commit,
);

crate::through_a_pooler_in_all!(
    when_all_have_succeeded_what_follows_success_runs_once,
    when_one_has_failed_what_follows_failure_runs,
    a_job_that_finishes_in_its_own_transaction_leaves,
);

fn when_all_have_succeeded_what_follows_success_runs_once(db: &TestDb) {
    let (batch, follow_ups) = run(db, followed([Member::Finish; 40]));
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts(db, batch), "40 40 0");
    let status = batch.status(&mut db.connection()).unwrap();
    assert!(!status.has_failed() && status.total == 40 && status.open == 0);
    let notes = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'note'";
    assert_eq!(db.count(notes), 2, "what follows failure was deleted");
}

fn when_one_has_failed_what_follows_failure_runs(db: &TestDb) {
    let members = [Member::Finish, Member::Fail, Member::Finish, Member::Fail];
    let (batch, follow_ups) = run(db, followed(members));
    assert_eq!(follow_ups, ["failure", "finish"]);
    assert_eq!(counts(db, batch), "4 2 2");
    let status = batch.status(&mut db.connection()).unwrap();
    assert!(status.has_failed() && status.is_over());
    assert_eq!(status.failures, 2);
}

fn retries_and_snoozes_keep_a_job_in_its_batch(db: &TestDb) {
    let (batch, follow_ups) = run(db, followed([Member::Snooze, Member::RetryOnce]));
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts(db, batch), "2 2 0");
}

fn a_job_that_discards_itself_was_not_needed(db: &TestDb) {
    let (_, follow_ups) = run(db, followed([Member::Discard, Member::Finish]));
    assert_eq!(follow_ups, ["finish", "success"]);
}

fn finished_jobs_that_are_deleted_leave_too(db: &TestDb) {
    let members = [Member::Finish, Member::Discard, Member::FinishIn];
    let batch = followed(members).enqueue(&mut db.connection()).unwrap().id;
    let log = Arc::new(Log::default());
    let worker = Worker::new(&db.database, registry(&log))
        .keep_finished(false)
        .start()
        .unwrap();
    until("the batch is over", || is_over(db, batch));
    until("no job is left", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs") == 0
    });
    worker.stop();
    assert_eq!(follow_ups(&log), ["finish", "success"]);
}

fn a_job_that_finishes_in_its_own_transaction_leaves(db: &TestDb) {
    let (batch, follow_ups) = run(db, followed([Member::FinishIn; 3]));
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts(db, batch), "3 3 0");
}

fn a_cancelled_job_makes_the_batch_fail(db: &TestDb) {
    let mut conn = db.connect();
    let enqueued = followed([Member::Finish, Member::Finish])
        .enqueue(&mut conn)
        .unwrap();
    windlass::jobs::cancel(&mut conn, enqueued.jobs[1].id).unwrap();
    assert_eq!(run_on(db, enqueued.id), ["failure", "finish"]);
    assert_eq!(counts(db, enqueued.id), "2 1 1");
}

fn a_job_that_is_deleted_leaves_without_a_trace(db: &TestDb) {
    let mut conn = db.connect();
    let enqueued = followed([Member::Finish, Member::Finish])
        .enqueue(&mut conn)
        .unwrap();
    let one = Jobs::waiting().ids([enqueued.jobs[0].id]);
    assert_eq!(one.change(&mut conn, Change::Discard).unwrap().changed, 1);
    assert_eq!(run_on(db, enqueued.id), ["finish", "success"]);
}

fn a_limit_that_discards_a_job_is_no_failure(db: &TestDb) {
    let one = || {
        let limit = Concurrency::new("k").on_conflict(LimitConflict::Discard);
        NewJob::new(&Note::new("member"))
            .unwrap()
            .concurrency(limit)
    };
    let batch = followed([Member::Finish]).add([one(), one(), one()]);
    let (batch, follow_ups) = run(db, batch);
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts(db, batch), "4 4 0");
}

fn a_parked_job_makes_the_batch_fail(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let bad = NewJob::new(&Work::new("bad", Do::Abort)).unwrap();
    let batch = Batch::new("test")
        .add([bad.policy(Policy::new().max_crashes(0))])
        .on_failure(&Work::new("failure", Do::Nothing))
        .enqueue(&mut db.connection())
        .unwrap()
        .id;
    scene.ended("failure", 1);
    assert!(is_over(db, batch));
    assert_eq!(counts(db, batch), "1 0 1");
    assert_eq!(scene.count("start", "bad"), 1);
}

fn an_empty_batch_is_over_after_the_commit(db: &TestDb) {
    let mut conn = db.connect();
    let batch = conn
        .transaction(|conn: &mut DbConnection| {
            let batch = followed([]).enqueue(conn)?.id;
            assert!(!batch.status(conn)?.is_over());
            Ok::<_, Error>(batch)
        })
        .unwrap();
    assert_eq!(run_on(db, batch), ["finish", "success"]);
    assert_eq!(counts(db, batch), "0 0 0");
}
