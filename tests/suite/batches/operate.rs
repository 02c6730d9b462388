//! Listing, cancelling and retrying batches.

use super::*;
use crate::on_each_database;
use windlass::Error;
use windlass::batches::{self, BatchFilter, BatchState, FollowerState};
use windlass::jobs::{Change, Jobs, TaskStatus};
use windlass::operations::{self, OperationState};

on_each_database!(
    a_cancel_reaches_batches_in_the_batch,
    jobs_added_during_a_cancel_are_cancelled,
    a_cancel_in_the_background_ends_the_batch,
    a_cancel_again_finds_what_is_left,
    a_retry_reaches_batches_in_the_batch,
    a_retry_lets_run_what_waits_for_success,
    a_batch_of_ruby_is_not_changed,
    the_jobs_of_a_whole_batch_are_not_selected_further,
    batches_are_listed_page_by_page,
    details_say_what_became_of_what_follows,
);

/// A batch of 3 jobs, with batches in it that have 2 more.
fn nested(member: Member) -> Batch {
    let inner = Batch::new("inner").add([&member]);
    let innermost = Batch::new("innermost").add([&member]);
    followed([member; 3]).add_batch(inner.add_batch(innermost))
}

fn a_cancel_reaches_batches_in_the_batch(db: &TestDb) {
    let mut conn = db.connect();
    let batch = nested(Member::Finish).enqueue(&mut conn).unwrap().id;
    let other = followed([Member::Finish]).enqueue(&mut conn).unwrap().id;
    assert_eq!(batch.open_jobs().count(&mut conn).unwrap(), 5);
    let counts = batch.open_jobs().counts(&mut conn).unwrap();
    assert_eq!(counts.iter().map(|(_, count)| count.count).sum::<i64>(), 5);
    let done = batch.cancel(&mut conn).unwrap();
    assert_eq!((done.changed, done.passed_over), (5, 0), "{done:?}");
    let audited =
        "SELECT coalesce(filter, '') AS t FROM windlass_audit WHERE action = 'jobs.cancel'";
    let audited = db.texts(audited).join(" ");
    assert!(audited.contains("\"whole_batch\""), "{audited}");
    let follow_ups = run_on(db, batch);
    assert_eq!(follow_ups, ["failure", "finish", "finish", "success"]);
    until("the other is over", || is_over(db, other));
    assert!(!other.status(&mut conn).unwrap().has_failed());
    let status = batch.status(&mut conn).unwrap();
    assert!(status.is_over() && status.has_failed());
    assert_eq!(batch.cancel(&mut conn).unwrap().changed, 0);
}

fn jobs_added_during_a_cancel_are_cancelled(db: &TestDb) {
    let mut conn = db.connect();
    let members = (0..600).map(|_| NewJob::new(&Member::Finish));
    let batch = followed([]).add(members).enqueue(&mut conn).unwrap().id;
    let mut adding = db.connect();
    let mut is_added = false;
    let done = batch
        .open_jobs()
        .change_with_progress(&mut conn, Change::Cancel, |_| {
            if !is_added {
                batch.add(&mut adding, [&Member::Finish]).unwrap();
            }
            is_added = true;
        })
        .unwrap();
    assert_eq!(done.changed, 601);
}

fn a_cancel_in_the_background_ends_the_batch(db: &TestDb) {
    let mut conn = db.connect();
    let members = (0..600).map(|_| NewJob::new(&Member::Finish));
    let batch = nested(Member::Finish).add(members);
    let batch = batch.enqueue(&mut conn).unwrap().id;
    let jobs = batch.open_jobs().by("ada").reason("wrong file");
    let preview = jobs.preview(&mut conn).unwrap();
    assert_eq!((preview.count, preview.is_exact), (605, true));
    let operation = jobs.in_background(Change::Cancel).preview(preview);
    let operation = operation.start(&mut conn).unwrap();
    // Before the operation runs, and after its preview.
    batch.add(&mut conn, [&Member::Finish]).unwrap();
    operations::run(&mut conn, Duration::from_secs(60)).unwrap();
    let operation = operations::find(&mut conn, operation.id).unwrap().unwrap();
    assert_eq!(operation.state, OperationState::Done, "{operation:?}");
    assert_eq!(operation.changed, 606);
    assert_eq!(run_on(db, batch), ["failure", "finish"]);
    assert_eq!(operation.actor, "ada");
}

fn a_cancel_again_finds_what_is_left(db: &TestDb) {
    let mut conn = db.connect();
    let batch = nested(Member::Finish).enqueue(&mut conn).unwrap().id;
    // As after the death of the process.
    let some = batch.open_jobs().limit(4);
    assert_eq!(some.change(&mut conn, Change::Cancel).unwrap().changed, 4);
    assert_eq!(batch.cancel(&mut conn).unwrap().changed, 1);
}

fn a_retry_reaches_batches_in_the_batch(db: &TestDb) {
    let (batch, _) = run(db, nested(Member::Fail));
    let mut conn = db.connect();
    assert_eq!(batch.failed_jobs().count(&mut conn).unwrap(), 5);
    let jobs = batch.failed_jobs().in_background(Change::Retry {
        even_at_most_once: false,
    });
    let operation = jobs.start(&mut conn).unwrap();
    operations::run(&mut conn, Duration::from_secs(60)).unwrap();
    let operation = operations::find(&mut conn, operation.id).unwrap().unwrap();
    assert_eq!(operation.changed, 5, "{operation:?}");
    assert_eq!(batch.retry(&mut conn).unwrap().changed, 0, "none is failed");
    let refused = batch.open_jobs().in_background(Change::Retry {
        even_at_most_once: false,
    });
    assert!(
        refused.start(&mut conn).is_err(),
        "open jobs have not failed"
    );
}

fn a_retry_lets_run_what_waits_for_success(db: &TestDb) {
    let mut conn = db.connect();
    let batch = followed([Member::Fail; 2]).wait_for_retries();
    let batch = batch.enqueue(&mut conn).unwrap().id;
    let log = Arc::new(Log::default());
    let first = worker(db, &log, &Events::default());
    until("what follows has run", || {
        is_over(db, batch) && follow_ups(&log) == ["failure", "finish"] && open_jobs(db) == 1
    });
    first.stop();
    let details = batch.details(&mut conn).unwrap();
    assert_eq!(details.follows[0].state, FollowerState::WaitsForRetries);
    db.execute("UPDATE solid_queue_jobs SET arguments = '\"Finish\"' WHERE class_name = 'member'");
    assert_eq!(batch.retry(&mut conn).unwrap().changed, 2);
    assert_eq!(run_on(db, batch), ["success"]);
    assert!(!batch.status(&mut conn).unwrap().has_failed());
}

/// A batch as a Rails app has it, with a job.
fn of_ruby(db: &TestDb) -> BatchId {
    db.execute(
        "INSERT INTO solid_queue_batches (active_job_batch_id, description, on_finish, total_jobs, enqueued_at, created_at, updated_at) \
         VALUES ('5d1cbd3c', 'of ruby', '{}', 1, '2026-11-25 05:00:00.000000', '2026-11-25 05:00:00.000000', '2026-11-25 05:00:00.000000')",
    );
    let batch = db.count("SELECT max(id) AS n FROM solid_queue_batches");
    let job = NewJob::new(&Member::Finish).unwrap();
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET batch_id = {batch} WHERE id = {job}"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) VALUES ({job}, {batch}, '2026-11-25 05:00:00.000000')"
    ));
    BatchId(batch)
}

fn a_batch_of_ruby_is_not_changed(db: &TestDb) {
    let batch = of_ruby(db);
    let mut conn = db.connect();
    let refused = [batch.cancel(&mut conn), batch.retry(&mut conn)];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::BatchOfRuby { .. }), "{error}");
    }
    let background = batch.open_jobs().in_background(Change::Cancel);
    assert!(background.start(&mut conn).is_err());
    let unknown = BatchId(batch.0 + 1).cancel(&mut conn).unwrap_err();
    assert!(matches!(unknown, Error::NoSuchBatch { .. }), "{unknown}");
    assert_eq!(open_jobs(db), 1);
    // Its jobs can be changed one by one.
    let jobs = Jobs::waiting_or_running().batch(batch);
    assert_eq!(jobs.change(&mut conn, Change::Cancel).unwrap().changed, 1);
}

fn the_jobs_of_a_whole_batch_are_not_selected_further(db: &TestDb) {
    let mut conn = db.connect();
    let batch = followed([Member::Finish; 3]).enqueue(&mut conn).unwrap().id;
    let narrowed = batch.open_jobs().class("other");
    assert!(narrowed.change(&mut conn, Change::Cancel).is_err());
    assert!(narrowed.count(&mut conn).is_err());
    let background = narrowed.in_background(Change::Cancel);
    assert!(background.start(&mut conn).is_err());
    assert_eq!(open_jobs(db), 6, "nothing has changed");
    assert_eq!(batch.open_jobs().list(&mut conn).unwrap().len(), 3);
    let jobs = batch.open_jobs();
    assert_eq!(Jobs::from_pairs(jobs.to_pairs()).unwrap(), jobs);
}

fn batches_are_listed_page_by_page(db: &TestDb) {
    let mut conn = db.connect();
    let (failed, _) = run(db, followed([Member::Fail, Member::Finish]));
    let (succeeded, _) = run(db, followed([Member::Finish]));
    let open = followed([Member::Finish; 2]).enqueue(&mut conn).unwrap().id;
    let ruby = of_ruby(db);
    let mut ids = |filter, before, limit| -> Vec<BatchId> {
        let found = batches::list(&mut conn, filter, before, limit).unwrap();
        found.into_iter().map(|batch| batch.id).collect()
    };
    assert_eq!(ids(BatchFilter::All, None, 2), [ruby, open]);
    assert_eq!(ids(BatchFilter::All, Some(open), 9), [succeeded, failed]);
    assert_eq!(ids(BatchFilter::Open, None, 9), [ruby, open]);
    assert_eq!(ids(BatchFilter::Over, None, 9), [succeeded, failed]);
    assert_eq!(ids(BatchFilter::Failed, None, 9), [failed]);
    let all = batches::list(&mut conn, BatchFilter::All, None, 9).unwrap();
    let figures = |batch: &batches::BatchSummary| {
        let (open, failures) = (batch.open.count, batch.failures.count);
        (batch.state, batch.is_of_ruby, batch.total, open, failures)
    };
    let figures: Vec<_> = all.iter().map(figures).collect();
    assert_eq!(
        figures,
        [
            (BatchState::Open, true, 1, 1, 0),
            (BatchState::Open, false, 2, 2, 0),
            (BatchState::Succeeded, false, 1, 0, 0),
            (BatchState::Failed, false, 2, 0, 1),
        ]
    );
}

fn details_say_what_became_of_what_follows(db: &TestDb) {
    let mut conn = db.connect();
    let batch = nested(Member::Fail).metadata(&"night");
    let batch = batch.enqueue(&mut conn).unwrap().id;
    let states = |details: &batches::BatchDetails| -> Vec<_> {
        let follows = details.follows.iter();
        let states = follows.map(|job| (job.runs_on.clone(), job.state));
        states.collect()
    };
    let named = |on: &str, state| (on.to_owned(), state);
    let before = batch.details(&mut conn).unwrap();
    use FollowerState::{Follows, NotWanted, Waits};
    assert_eq!(
        states(&before),
        [
            named("success", Waits),
            named("failure", Waits),
            named("finish", Waits)
        ]
    );
    assert_eq!(before.metadata.as_deref(), Some("\"night\""));
    let inner = before.inner[0].details(&mut conn).unwrap();
    assert_eq!((inner.outer, inner.follows.len()), (Some(batch), 0));
    assert_eq!(inner.inner.len(), 1);
    run_on(db, batch);
    let after = batch.details(&mut conn).unwrap();
    assert_eq!(
        states(&after),
        [
            named("success", NotWanted),
            named("failure", Follows),
            named("finish", Follows)
        ]
    );
    assert_eq!(after.failed.len(), 4);
    let error = after.failed[0].error.as_deref().unwrap_or_default();
    assert!(error.contains("as told"), "{error}");
    assert_eq!(after.failed[0].status, Some(TaskStatus::Failed));
    assert_eq!(after.failed[3].inner, Some(before.inner[0]));
}
