//! Operations on jobs from outside.

use super::{Bench, Scripted, Turn, enqueue, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{HEARTBEAT, THRESHOLD};
use crate::support::wait::until;
use diesel::connection::InstrumentationEvent;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::{Delivery, JobId, NewJob, Policy, Supervisor};

on_each_database!(
    failed_jobs_run_again_with_all_their_attempts,
    only_what_is_selected_is_touched,
    what_runs_at_most_once_is_not_retried_by_accident,
    two_who_retry_at_once_retry_once,
    retrying_while_a_dead_process_is_pruned,
    discarded_jobs_are_gone,
    only_what_was_named_is_discarded,
    what_runs_is_left_alone,
    jobs_are_moved_in_time,
    jobs_are_moved_in_rank,
    many_jobs_are_changed_in_batches,
    jobs_are_listed_and_counted,
    many_ids_are_sent_once,
);

crate::through_a_pooler_in_all!(
    failed_jobs_run_again_with_all_their_attempts,
    only_what_is_selected_is_touched,
    what_runs_at_most_once_is_not_retried_by_accident,
    two_who_retry_at_once_retry_once,
    retrying_while_a_dead_process_is_pruned,
    discarded_jobs_are_gone,
    only_what_was_named_is_discarded,
    what_runs_is_left_alone,
    jobs_are_moved_in_time,
    jobs_are_moved_in_rank,
    many_jobs_are_changed_in_batches,
    jobs_are_listed_and_counted,
    many_ids_are_sent_once,
);

const RETRY: Change = Change::Retry {
    even_at_most_once: false,
};

fn change(db: &TestDb, jobs: &Jobs, change: Change) -> windlass::jobs::Changed {
    jobs.change(&mut db.connection(), change).unwrap()
}

/// Enqueues so many jobs that nobody performs.
fn enqueue_many(db: &TestDb, count: usize) -> Vec<JobId> {
    let job = |_| NewJob::of_class("nobody", "{}");
    let jobs = windlass::enqueue_all(&mut db.connection(), (0..count).map(job)).unwrap();
    jobs.into_iter().map(|job| job.id).collect()
}

/// Makes jobs look as if they had failed.
fn fail(db: &TestDb, which: &str, message: &str) {
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, '{{\"exception_class\":\"Oops\",\"message\":\"{message}\"}}', created_at \
         FROM solid_queue_jobs WHERE {which} ORDER BY id"
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE {which})"
    ));
}

fn failed_jobs_run_again_with_all_their_attempts(db: &TestDb) {
    let bench = Bench::start(db);
    let turns = [
        Turn::Err("x".into()),
        Turn::Err("x".into()),
        Turn::Err("x".into()),
        Turn::Succeed,
    ];
    let job = enqueue(db, "a", turns, stubborn(2));
    until("it has failed", || executions(db, "failed") == 1);
    db.execute("UPDATE solid_queue_jobs SET crash_count = 3");
    let changed = change(db, &Jobs::failed().ids([job]), RETRY);
    assert_eq!((changed.changed, changed.passed_over), (1, 0));
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["a 1", "a 2", "a 1", "a 2"]);
    assert_eq!(executions(db, "failed"), 0);
    assert_eq!(
        crate::support::jobs::attempts(&mut db.connection(), job)
            .unwrap()
            .len(),
        3
    );
    assert_eq!(change(db, &Jobs::failed().ids([job]), RETRY).changed, 0);
}

fn only_what_is_selected_is_touched(db: &TestDb) {
    let jobs = enqueue_many(db, 10);
    db.execute("UPDATE solid_queue_jobs SET queue_name = 'other' WHERE id % 2 = 0");
    fail(db, "id <= 5", "connection refused");
    fail(db, "id > 5", "100% broken");
    let mut conn = db.connect();
    let count = |jobs: Jobs, conn: &mut _| jobs.count(conn).unwrap();
    assert_eq!(count(Jobs::failed(), &mut conn), 10);
    assert_eq!(count(Jobs::failed().queue("other"), &mut conn), 5);
    assert_eq!(count(Jobs::failed().class("somebody"), &mut conn), 0);
    assert_eq!(
        count(Jobs::failed().error_contains("refused"), &mut conn),
        5
    );
    assert_eq!(count(Jobs::failed().error_contains("100%"), &mut conn), 5);
    assert_eq!(count(Jobs::failed().error_contains("%"), &mut conn), 5);
    assert_eq!(count(Jobs::waiting(), &mut conn), 0);
    let some = Jobs::failed().queue("other").error_contains("refused");
    assert_eq!(change(db, &some, RETRY).changed, 2);
    assert_eq!(change(db, &Jobs::failed().limit(3), RETRY).changed, 3);
    let named = Jobs::failed()
        .ids([jobs[8], jobs[9], JobId(4711)])
        .queue("other");
    assert_eq!(change(db, &named, RETRY).changed, 1);
    let left = db.texts(
        "SELECT CAST(job_id AS text) AS t FROM solid_queue_failed_executions ORDER BY job_id",
    );
    assert_eq!(left, ["6", "7", "8", "9"]);
}

fn what_runs_at_most_once_is_not_retried_by_accident(db: &TestDb) {
    let bench = Bench::start(db);
    let once = Policy::new().delivery(Delivery::AtMostOnce);
    enqueue(db, "once", [Turn::Fail, Turn::Succeed], once);
    enqueue(db, "again", [Turn::Fail, Turn::Succeed], Policy::new());
    until("both have failed", || executions(db, "failed") == 2);
    let changed = change(db, &Jobs::failed(), RETRY);
    assert_eq!((changed.changed, changed.at_most_once), (1, 1));
    until("one has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("once"), 1);
    let changed = change(
        db,
        &Jobs::failed(),
        Change::Retry {
            even_at_most_once: true,
        },
    );
    assert_eq!((changed.changed, changed.at_most_once), (1, 0));
    until("the other too", || finished(db) == 2);
}

fn two_who_retry_at_once_retry_once(db: &TestDb) {
    enqueue_many(db, 1200);
    fail(db, "true", "no");
    let changed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let done = change(db, &Jobs::failed(), RETRY);
                changed.fetch_add(done.changed, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(changed.load(Ordering::Relaxed), 1200);
    assert_eq!(executions(db, "ready"), 1200);
    assert_eq!(executions(db, "failed"), 0);
}

fn retrying_while_a_dead_process_is_pruned(db: &TestDb) {
    const JOBS: i64 = 300;
    enqueue_many(db, JOBS as usize);
    db.execute("UPDATE solid_queue_jobs SET at_most_once = true WHERE id % 2 = 0");
    db.execute("UPDATE solid_queue_jobs SET crash_count = 9, max_crashes = 2 WHERE id % 2 = 1");
    db.execute(
        "INSERT INTO solid_queue_processes (id, kind, name, pid, heartbeat_seq, last_heartbeat_at, created_at) \
         VALUES (77, 'Worker', 'worker-dead', 1, 3, '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')",
    );
    db.execute(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at) \
         SELECT job_id, 77, created_at, created_at FROM solid_queue_ready_executions ORDER BY job_id",
    );
    db.execute("DELETE FROM solid_queue_ready_executions");
    let _supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
        .start()
        .unwrap();
    let retry = Change::Retry {
        even_at_most_once: true,
    };
    let mut retried = 0;
    until("all were pruned and retried", || {
        retried += change(db, &Jobs::failed(), retry.clone()).changed;
        retried == JOBS as u64
    });
    assert_eq!(executions(db, "ready"), JOBS);
    assert_eq!(executions(db, "failed"), 0);
    assert_eq!(executions(db, "claimed"), 0);
    assert_eq!(
        db.count("SELECT CAST(sum(crash_count) AS bigint) AS n FROM solid_queue_jobs"),
        0
    );
}

fn discarded_jobs_are_gone(db: &TestDb) {
    let bench = Bench::start(db);
    enqueue(db, "a", [Turn::Fail], Policy::new());
    until("it has failed", || executions(db, "failed") == 1);
    drop(bench);
    enqueue_many(db, 2);
    NewJob::of_class("nobody", "{}")
        .after(Duration::from_secs(60))
        .enqueue(&mut db.connection())
        .unwrap();
    let changed = change(db, &Jobs::unfinished(), Change::Discard);
    assert_eq!(changed.changed, 4);
    for table in [
        "jobs",
        "ready_executions",
        "scheduled_executions",
        "failed_executions",
    ] {
        assert_eq!(db.rows(table), 0, "{table}");
    }
    assert_eq!(db.count("SELECT count(*) AS n FROM windlass_attempts"), 0);
}

/// Another program may have given a job two executions.
fn only_what_was_named_is_discarded(db: &TestDb) {
    let jobs = enqueue_many(db, 3);
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, created_at) VALUES ({}, CURRENT_TIMESTAMP)",
        jobs[0].0
    ));
    let changed = change(
        db,
        &Jobs::unfinished().ids([jobs[0], jobs[2]]),
        Change::Discard,
    );
    assert_eq!(changed.changed, 2);
    assert_eq!(db.rows("jobs"), 1);
    assert_eq!(db.rows("ready_executions"), 1);
}

fn what_runs_is_left_alone(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(db, "a", [Turn::UntilCancelled], Policy::new());
    until("it runs", || bench.log.len() == 1);
    let all = Jobs::unfinished().ids([job]);
    for what in [
        RETRY,
        Change::Discard,
        Change::RunIn(Duration::ZERO),
        Change::Priority(3),
    ] {
        let changed = change(db, &all, what.clone());
        assert_eq!((changed.changed, changed.running), (0, 1), "{what:?}");
    }
    assert_eq!(executions(db, "claimed"), 1);
    assert_eq!(
        db.count("SELECT CAST(max(priority) AS bigint) AS n FROM solid_queue_jobs"),
        0
    );
    let changed = change(db, &all, Change::Cancel);
    assert_eq!((changed.changed, changed.running), (0, 1));
    until("it has ended", || finished(db) == 1);
}

fn jobs_are_moved_in_time(db: &TestDb) {
    let jobs = enqueue_many(db, 2);
    let later = Change::RunIn(Duration::from_secs(3600));
    assert_eq!(
        change(db, &Jobs::waiting().ids([jobs[0]]), later.clone()).changed,
        1
    );
    assert_eq!(
        (executions(db, "ready"), executions(db, "scheduled")),
        (1, 1)
    );
    // Moved from the ready ones to the scheduled ones, and met once.
    assert_eq!(change(db, &Jobs::waiting(), later).changed, 2);
    assert_eq!(
        (executions(db, "ready"), executions(db, "scheduled")),
        (0, 2)
    );
    let year = "SELECT count(*) AS n FROM solid_queue_scheduled_executions s \
         JOIN solid_queue_jobs j ON j.id = s.job_id AND j.scheduled_at = s.scheduled_at \
         WHERE s.scheduled_at > '2100-01-01 00:00:00'";
    let time = "2101-02-03T04:05:06Z".parse().unwrap();
    assert_eq!(change(db, &Jobs::waiting(), Change::RunAt(time)).changed, 2);
    assert_eq!(db.count(year), 2);
    assert_eq!(
        change(db, &Jobs::waiting(), Change::RunIn(Duration::ZERO)).changed,
        2
    );
    assert_eq!(
        (executions(db, "ready"), executions(db, "scheduled")),
        (2, 0)
    );
    let never = Jobs::waiting().change(&mut db.connection(), Change::RunIn(Duration::MAX));
    assert!(never.unwrap_err().to_string().contains("1000 years"));
}

fn jobs_are_moved_in_rank(db: &TestDb) {
    for name in ["a", "b", "c"] {
        enqueue(db, name, [Turn::Succeed], Policy::new());
    }
    NewJob::new(&Scripted::new("later", [Turn::Succeed]))
        .unwrap()
        .after(Duration::from_secs(3600))
        .enqueue(&mut db.connection())
        .unwrap();
    let third = Jobs::waiting().ids([JobId(3)]);
    assert_eq!(change(db, &third, Change::Priority(-1)).changed, 1);
    let later = Jobs::in_state(JobState::Scheduled);
    assert_eq!(change(db, &later, Change::Priority(7)).changed, 1);
    let ranks = "SELECT job_id || ' ' || priority AS t FROM solid_queue_ready_executions \
         UNION ALL SELECT job_id || ' ' || priority FROM solid_queue_scheduled_executions ORDER BY t";
    let all = ["1 0", "2 0", "3 -1", "4 7"];
    assert_eq!(db.texts(ranks), all);
    assert_eq!(
        db.texts("SELECT id || ' ' || priority AS t FROM solid_queue_jobs ORDER BY id"),
        all
    );
}

fn many_jobs_are_changed_in_batches(db: &TestDb) {
    enqueue_many(db, 1_100);
    let mut told = Vec::new();
    let done = Jobs::waiting()
        .change_with_progress(&mut db.connection(), Change::Discard, |done| {
            told.push(done.changed)
        })
        .unwrap();
    assert_eq!(done.changed, 1_100);
    assert_eq!(told, [500, 1_000, 1_100]);
    assert_eq!(db.rows("jobs"), 0);
}

fn jobs_are_listed_and_counted(db: &TestDb) {
    enqueue_many(db, 3);
    fail(db, "id = 2", "oh no");
    let mut conn = db.connect();
    let failed = Jobs::failed().list(&mut conn).unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].error.as_deref(), Some("Oops: oh no"));
    assert_eq!((failed[0].job_id, failed[0].state), (2, JobState::Failed));
    let all = Jobs::unfinished().list(&mut conn).unwrap();
    let ids: Vec<i64> = all.iter().map(|job| job.job_id).collect();
    assert_eq!(ids, [1, 3, 2]);
    assert_eq!(
        Jobs::unfinished().limit(2).list(&mut conn).unwrap().len(),
        2
    );
    let counts = Jobs::unfinished().counts(&mut conn).unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|(state, count)| (*state, count.count))
        .collect();
    assert_eq!(counts, [(JobState::Ready, 2), (JobState::Failed, 1)]);
    db.execute("UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = 1");
    let finished = Jobs::in_state(JobState::Finished);
    assert_eq!(finished.list(&mut conn).unwrap()[0].job_id, 1);
    assert_eq!(finished.count(&mut conn).unwrap(), 1);
}

/// And not once more with every batch.
fn many_ids_are_sent_once(db: &TestDb) {
    let jobs = enqueue_many(db, 4_000);
    let mut twice = jobs.clone();
    twice.extend(&jobs[..100]);
    let all = Jobs::in_state(JobState::Ready).ids(twice);
    let sent = Arc::new(AtomicUsize::new(0));
    let changed = crate::with_own_connection!(db, |conn| {
        let sent = Arc::clone(&sent);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                let query = query.to_string();
                if query.starts_with("SELECT e.id AS execution_id") {
                    sent.fetch_add(query.len(), Ordering::SeqCst);
                }
            }
        });
        all.change(&mut conn, Change::Priority(7)).unwrap()
    });
    assert_eq!(changed.changed, 4_000);
    let ids: usize = jobs.iter().map(|job| job.0.to_string().len() + 1).sum();
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 3 * ids + 20_000, "{sent} bytes for ids of {ids}");
}
