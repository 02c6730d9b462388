//! The time for which ended jobs are kept.

use super::{Bench, Scripted, Turn, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::processes::Retention;
use windlass::{Event, Handle, NewJob, Policy, Supervisor};

on_each_database!(
    finished_jobs_go_when_they_are_old,
    only_the_newest_stay,
    failed_jobs_stay_unless_told_otherwise,
    nothing_goes_from_a_supervisor_that_keeps_everything,
    two_supervisors_clear_each_job_once,
    a_job_may_ask_not_to_be_kept,
    what_was_left_beside_a_deleted_job_goes,
    finished_jobs_of_ruby_are_left_to_ruby,
);

const DAY: Duration = Duration::from_secs(24 * 3600);

fn supervisor(db: &TestDb, retention: Retention, cleared: &Arc<AtomicUsize>) -> Handle {
    let cleared = Arc::clone(cleared);
    Supervisor::new(&db.database)
        .retention(retention.every(Duration::from_millis(50)))
        .subscriber(Subscriber::new(move |event| {
            if let Event::Cleared {
                finished, failed, ..
            } = event
            {
                cleared.fetch_add(finished + failed, Ordering::Relaxed);
            }
        }))
        .start()
        .unwrap()
}

/// Enqueues so many jobs that nobody performs.
fn enqueue(db: &TestDb, count: usize) {
    let job = |_| NewJob::of_class("nobody", "{}");
    windlass::enqueue_all(&mut db.connection(), (0..count).map(job)).unwrap();
}

/// Makes jobs look as if they had finished in the year 2020.
fn finish_long_ago(db: &TestDb, which: &str) {
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE {which})"
    ));
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET created_at = '2020-01-01 00:00:00.000000', \
         finished_at = '2020-01-02 00:00:00.000000' WHERE {which}"
    ));
}

fn jobs(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs")
}

fn finished_jobs_go_when_they_are_old(db: &TestDb) {
    enqueue(db, 2_500);
    // Old ones that are not finished stand in the way of a simple walk.
    db.execute("UPDATE solid_queue_jobs SET created_at = '2020-01-01 00:00:00.000000'");
    finish_long_ago(db, "id % 3 = 0");
    db.execute(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT id, 1, 1, 'retried', 'x', 'x', created_at FROM solid_queue_jobs WHERE id <= 6",
    );
    // Enqueued long ago, finished just now.
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id = 1");
    let now = if db.is_postgres() {
        "statement_timestamp() AT TIME ZONE 'UTC'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    };
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET finished_at = {now} WHERE id = 1"
    ));
    let cleared = Arc::default();
    let _supervisor = supervisor(db, Retention::new().finished_for(DAY), &cleared);
    until("a third is cleared", || {
        cleared.load(Ordering::Relaxed) == 833
    });
    assert_eq!(jobs(db), 2_500 - 833);
    assert_eq!(finished(db), 1);
    assert_eq!(executions(db, "ready"), 2_500 - 834);
    let left = "SELECT count(*) AS n FROM windlass_attempts";
    assert_eq!(db.count(left), 4, "the attempts of 3 and 6 are gone");
}

fn only_the_newest_stay(db: &TestDb) {
    enqueue(db, 30);
    finish_long_ago(db, "id % 2 = 0");
    let retention = Retention::forever().finished_at_most(4);
    let cleared = Arc::default();
    let _supervisor = supervisor(db, retention, &cleared);
    until("all but four are cleared", || finished(db) == 4);
    assert_eq!(jobs(db), 15 + 4);
    let oldest = "SELECT min(id) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    assert_eq!(db.count(oldest), 24);
}

fn failed_jobs_stay_unless_told_otherwise(db: &TestDb) {
    let bench = Bench::start(db);
    for name in ["a", "b"] {
        NewJob::new(&Scripted::new(name, [Turn::Fail]))
            .unwrap()
            .enqueue(&mut db.connection())
            .unwrap();
    }
    until("both have failed", || executions(db, "failed") == 2);
    drop(bench);
    db.execute(
        "UPDATE solid_queue_failed_executions SET created_at = '2020-01-02 00:00:00.000000' \
         WHERE id = (SELECT min(id) FROM solid_queue_failed_executions)",
    );
    enqueue(db, 1);
    finish_long_ago(db, "class_name = 'nobody'");
    let cleared = Arc::default();
    let first = supervisor(db, Retention::new(), &cleared);
    until("the finished one goes", || finished(db) == 0);
    assert_eq!(executions(db, "failed"), 2);
    drop(first);
    let _second = supervisor(db, Retention::new().failed_for(DAY), &cleared);
    until("the old failed one goes", || executions(db, "failed") == 1);
    until("its job too", || jobs(db) == 1);
    assert_eq!(db.count("SELECT count(*) AS n FROM windlass_attempts"), 1);
}

fn nothing_goes_from_a_supervisor_that_keeps_everything(db: &TestDb) {
    enqueue(db, 3);
    finish_long_ago(db, "true");
    db.execute(
        "INSERT INTO windlass_waiters (job_id, expires_at) VALUES (1, '2020-01-01 00:00:00.000000')",
    );
    let cleared = Arc::default();
    let _supervisor = supervisor(db, Retention::forever(), &cleared);
    until("a pass is over", || {
        db.count("SELECT count(*) AS n FROM windlass_waiters") == 0
    });
    assert_eq!(jobs(db), 3);
}

fn two_supervisors_clear_each_job_once(db: &TestDb) {
    enqueue(db, 3_000);
    finish_long_ago(db, "true");
    let cleared = Arc::default();
    let _first = supervisor(db, Retention::new(), &cleared);
    let _second = supervisor(db, Retention::new(), &cleared);
    until("all are cleared", || jobs(db) == 0);
    until("and each counted once", || {
        cleared.load(Ordering::Relaxed) == 3_000
    });
}

/// Counts in one statement: between two, a job would move from one table to the other.
fn waiting_or_running(db: &TestDb) -> i64 {
    db.count(
        "SELECT (SELECT count(*) FROM solid_queue_ready_executions) \
         + (SELECT count(*) FROM solid_queue_claimed_executions) AS n",
    )
}

fn a_job_may_ask_not_to_be_kept(db: &TestDb) {
    let _bench = Bench::start(db);
    let job = |n: u32| {
        NewJob::new(&Scripted::new("a", [Turn::Succeed]))
            .unwrap()
            .policy(stubborn(1).keep_finished(n.is_multiple_of(2)))
    };
    windlass::enqueue_all(&mut db.connection(), (0..20).map(job)).unwrap();
    until("all are done", || waiting_or_running(db) == 0);
    assert_eq!((finished(db), jobs(db)), (10, 10));
    NewJob::new(&Scripted::new("b", [Turn::Discard]))
        .unwrap()
        .policy(Policy::new().keep_finished(false))
        .enqueue(&mut db.connection())
        .unwrap();
    until("a discarded one goes too", || {
        waiting_or_running(db) == 0 && jobs(db) == 10
    });
    assert_eq!(db.count("SELECT count(*) AS n FROM windlass_attempts"), 0);
}

fn what_was_left_beside_a_deleted_job_goes(db: &TestDb) {
    enqueue(db, 2);
    db.execute(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT id, 1, 1, 'retried', 'x', 'x', created_at FROM solid_queue_jobs",
    );
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id = 1");
    db.execute("DELETE FROM solid_queue_jobs WHERE id = 1");
    let cleared = Arc::default();
    let _supervisor = supervisor(db, Retention::new(), &cleared);
    until("the orphan is gone", || {
        db.count("SELECT count(*) AS n FROM windlass_attempts") == 1
    });
    assert_eq!(
        db.count("SELECT max(job_id) AS n FROM windlass_attempts"),
        2
    );
}

fn finished_jobs_of_ruby_are_left_to_ruby(db: &TestDb) {
    // Of each two, the first is Active Job's, and of these each second was claimed by a worker of ours.
    enqueue(db, 8);
    db.execute("UPDATE solid_queue_jobs SET active_job_id = 'a' WHERE id % 2 = 0");
    db.execute("UPDATE solid_queue_jobs SET last_claim_id = 7 WHERE id % 4 = 0");
    finish_long_ago(db, "id > 0");
    let cleared = Arc::default();
    let supervising = supervisor(db, Retention::new().finished_for(DAY), &cleared);
    until("ours are gone", || jobs(db) == 2);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE last_claim_id IS NULL AND active_job_id = 'a'"),
        2
    );
    supervising.stop();
    let all = Retention::new().finished_for(DAY).jobs_of_ruby(true);
    let _supervising = supervisor(db, all, &cleared);
    until("Ruby's are gone too", || jobs(db) == 0);
}
