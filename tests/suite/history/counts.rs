//! Each end is counted once, in the right series.

use super::{counts, sum};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::history;
use windlass::jobs::{Change, Jobs};
use windlass::limits::LimitConflict;
use windlass::{
    Backoff, Concurrency, Context, Dispatcher, Function, Handle, JobError, JobId, JobResult,
    Policy, Registry, Worker, testing,
};

on_each_database!(
    a_drain_counts_what_its_rows_say,
    a_drain_costs_two_statements_at_most,
    waits_and_runs_are_measured,
    ends_by_operators_are_counted,
    ends_by_a_dispatcher_are_counted,
    ends_during_a_stop_are_counted,
    a_job_that_finishes_itself_is_counted,
    what_is_given_back_is_not_counted,
);

crate::through_a_pooler_in_all!(
    a_drain_counts_what_its_rows_say,
    a_drain_costs_two_statements_at_most,
    waits_and_runs_are_measured,
    ends_by_operators_are_counted,
    ends_by_a_dispatcher_are_counted,
    ends_during_a_stop_are_counted,
    a_job_that_finishes_itself_is_counted,
    what_is_given_back_is_not_counted,
);

/// Not heard of before the end of a test.
const SELDOM: Duration = Duration::from_secs(600);

const DO: Function<String> = Function::new("do");
const ANOTHER: Function<String> = Function::new("another");

/// A job of the default queue, and what performs it.
pub fn note() -> Note {
    Note::new("a")
}

pub fn notes() -> Registry {
    Registry::new().register::<Note>(Arc::new(Log::default()))
}

fn body(what: String, cx: &Context<'_, ()>) -> JobResult {
    match (&*what, cx.attempt()) {
        ("fail", _) => Err(JobError::from("as told").fail()),
        ("retry", 1 | 2) => Err("once more".into()),
        ("discard", _) => Err(JobError::from("as told").discard()),
        ("snooze", 1) if !cx.is_stopping() => Err(JobError::snooze(Duration::from_secs(3_600))),
        ("panic", 1) => panic!("as told"),
        ("slow", _) => {
            std::thread::sleep(Duration::from_millis(30));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn registry() -> Registry {
    Registry::new().function(DO, body).function(ANOTHER, body)
}

fn worker(db: &TestDb, registry: Registry) -> Worker {
    Worker::new(&db.database, registry)
        .threads(3)
        .polling_interval(Duration::from_millis(20))
        .heartbeat_interval(SELDOM)
        .alive_threshold(3 * SELDOM)
}

fn drain(db: &TestDb) {
    let worker = worker(db, registry()).until_idle();
    let mut worker = worker.start().unwrap();
    assert!(worker.join(DEADLINE).is_some(), "the worker does not end");
}

fn enqueue(db: &TestDb, function: Function<String>, what: &str, policy: Policy) -> JobId {
    let policy = policy.backoff(Backoff::Fixed(Duration::ZERO));
    let job = function.job(&what.to_owned()).unwrap().policy(policy);
    let job = job.queue(format!("q-{what}"));
    job.enqueue(&mut db.connection()).unwrap().id
}

fn enqueue_many(db: &TestDb, function: Function<String>, what: &str, times: usize) {
    for _ in 0..times {
        enqueue(db, function, what, Policy::new().max_attempts(3));
    }
}

/// Returns the number of ends in the tables, by queue, class and outcome.
fn ends_in_rows(db: &TestDb) -> BTreeMap<(String, String, String), u64> {
    let text = "SELECT j.queue_name || ',' || j.class_name || ',finished' AS t FROM solid_queue_jobs j \
         WHERE j.finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_attempts a \
           WHERE a.job_id = j.id AND a.outcome IN ('discarded', 'cancelled')) \
         UNION ALL SELECT j.queue_name || ',' || j.class_name || ',' || a.outcome FROM windlass_attempts a \
         JOIN solid_queue_jobs j ON j.id = a.job_id";
    let mut ends = BTreeMap::new();
    for row in db.texts(text) {
        let parts: Vec<String> = row.split(',').map(str::to_owned).collect();
        let key = (parts[0].clone(), parts[1].clone(), parts[2].clone());
        *ends.entry(key).or_default() += 1;
    }
    ends
}

/// The same, as the history says.
fn ends_in_history(db: &TestDb) -> BTreeMap<(String, String, String), u64> {
    let mut ends = BTreeMap::new();
    for one in history::totals(&mut db.connection()).unwrap().series {
        let tally = &one.tally;
        for (outcome, count) in [
            ("finished", tally.finished),
            ("failed", tally.failed),
            ("retried", tally.retried),
            ("discarded", tally.discarded),
            ("cancelled", tally.cancelled),
            ("crashed", tally.crashed),
        ] {
            if count > 0 {
                let key = (one.queue.clone(), one.class.clone(), outcome.to_owned());
                ends.insert(key, count);
            }
        }
    }
    ends
}

fn a_drain_counts_what_its_rows_say(db: &TestDb) {
    for (what, times) in [
        ("finish", 40),
        ("fail", 3),
        ("retry", 5),
        ("discard", 2),
        ("panic", 4),
        ("snooze", 1),
    ] {
        enqueue_many(db, DO, what, times);
        enqueue_many(db, ANOTHER, what, 1);
    }
    drain(db);
    assert_eq!(counts(&sum(db)), [52, 4, 17, 3, 0, 0]);
    assert_eq!(ends_in_history(db), ends_in_rows(db));
    history::fold(&mut db.connection()).unwrap();
    assert_eq!(ends_in_history(db), ends_in_rows(db));
}

/// However many jobs end between two heartbeats. What is counted after a process has stored its counts,
/// and before its row is deleted, is a second one.
fn a_drain_costs_two_statements_at_most(db: &TestDb) {
    enqueue_many(db, DO, "finish", 1_000);
    enqueue_many(db, ANOTHER, "fail", 10);
    drain(db);
    assert_eq!(counts(&sum(db)), [1_000, 10, 0, 0, 0, 0]);
    // Ids are not given twice, so the greatest one counts the inserts.
    let inserts = db.count("SELECT coalesce(max(id), 0) AS n FROM windlass_stats_deltas");
    assert!((1..=2).contains(&inserts), "{inserts}");
    drain(db);
    let more = db.count("SELECT coalesce(max(id), 0) AS n FROM windlass_stats_deltas");
    assert_eq!(more, inserts, "where nothing ended, nothing is inserted");
}

fn waits_and_runs_are_measured(db: &TestDb) {
    enqueue(db, DO, "slow", Policy::new());
    testing::travel(&mut db.connection(), Duration::from_secs(30)).unwrap();
    enqueue(db, DO, "finish", Policy::new());
    drain(db);
    let totals = history::totals(&mut db.connection()).unwrap();
    let of = |queue: &str| {
        let found = totals.series.iter().find(|one| one.queue == queue);
        found.unwrap().tally.clone()
    };
    let slow = of("q-slow");
    assert_eq!((slow.wait.count(), slow.run.count()), (1, 1));
    assert!(slow.wait.sum() >= Duration::from_secs(30), "{slow:?}");
    assert!(slow.wait.sum() < Duration::from_secs(120), "{slow:?}");
    assert!(slow.run.sum() >= Duration::from_millis(30), "{slow:?}");
    assert!(of("q-finish").wait.sum() < Duration::from_secs(30));
}

fn ends_by_operators_are_counted(db: &TestDb) {
    let first = enqueue(db, DO, "finish", Policy::new());
    enqueue_many(db, DO, "finish", 3);
    enqueue_many(db, DO, "fail", 2);
    windlass::jobs::cancel(&mut db.connection(), first).unwrap();
    let queue = |name: &str| Jobs::unfinished().queue(name);
    let discarded = queue("q-finish").change(&mut db.connection(), Change::Discard);
    assert_eq!(discarded.unwrap().changed, 3);
    assert_eq!(counts(&sum(db)), [0, 0, 0, 3, 1, 0]);
    drain(db);
    // They were counted when they failed.
    let discarded = queue("q-fail").change(&mut db.connection(), Change::Discard);
    assert_eq!(discarded.unwrap().changed, 2);
    assert_eq!(counts(&sum(db)), [0, 2, 0, 3, 1, 0]);
    let sum = sum(db);
    assert_eq!((sum.wait.count(), sum.run.count()), (2, 2));
}

fn ends_by_a_dispatcher_are_counted(db: &TestDb) {
    let policy = Policy::new().expires_in(Duration::from_secs(60));
    enqueue(db, DO, "late", policy);
    testing::travel(&mut db.connection(), Duration::from_secs(120)).unwrap();
    let alone = Concurrency::new("k").on_conflict(LimitConflict::Discard);
    for _ in 0..3 {
        let job = DO.job(&"finish".to_owned()).unwrap().queue("limited");
        let job = job.concurrency(alone.clone());
        job.enqueue(&mut db.connection()).unwrap();
    }
    let dispatcher = Dispatcher::new(&db.database)
        .heartbeat_interval(SELDOM)
        .alive_threshold(3 * SELDOM)
        .start()
        .unwrap();
    until("three are discarded", || {
        db.count("SELECT count(*) AS n FROM windlass_attempts WHERE outcome = 'discarded'") == 3
    });
    drop(dispatcher);
    assert_eq!(counts(&sum(db)), [0, 0, 0, 3, 0, 0]);
    assert_eq!(ends_in_history(db), ends_in_rows(db));
}

/// A job that ends only when its process stops.
const LAST: Function<()> = Function::new("last");

fn ends_during_a_stop_are_counted(db: &TestDb) {
    let begun = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&begun);
    let registry = Registry::new().function(LAST, move |(), cx| {
        runs.store(true, Ordering::SeqCst);
        until("the process stops", || cx.is_stopping());
        Ok(())
    });
    LAST.enqueue(&mut db.connection(), &()).unwrap();
    let worker: Handle = worker(db, registry).start().unwrap();
    until("it runs", || begun.load(Ordering::SeqCst));
    drop(worker);
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
}

fn a_job_that_finishes_itself_is_counted(db: &TestDb) {
    let registry = Registry::new().function(LAST, |(), cx| {
        let mut conn = cx.connection()?;
        conn.transaction(|conn| cx.finish_in(conn))?;
        let end: JobResult = Err("its end is written already".into());
        end
    });
    LAST.enqueue(&mut db.connection(), &()).unwrap();
    let mut worker = worker(db, registry).until_idle().start().unwrap();
    assert!(worker.join(DEADLINE).is_some());
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
}

fn what_is_given_back_is_not_counted(db: &TestDb) {
    let begun = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&begun);
    let registry = Registry::new().function(LAST, move |(), cx| {
        runs.store(true, Ordering::SeqCst);
        until("the process stops", || cx.is_stopping());
        let end: JobResult = Err(windlass::Interrupted::Stopping.into());
        end
    });
    LAST.enqueue(&mut db.connection(), &()).unwrap();
    let worker = worker(db, registry).start().unwrap();
    until("it runs", || begun.load(Ordering::SeqCst));
    drop(worker);
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(counts(&sum(db)), [0; 6]);
    assert_eq!(db.rows_of("windlass_stats_deltas"), 0);
}
