//! Limits in time for retries.

use super::{Bench, Scripted, Turn, enqueue, executions, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::process::{Do, Scene, Work};
use crate::support::wait::until;
use chrono::{TimeDelta, Utc};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{AttemptOutcome, NotRetried};
use windlass::{Backoff, NewJob, Policy, Registry, testing};

on_each_database!(
    after_the_limit_the_last_error_is_final,
    before_the_limit_it_is_tried_again,
    an_attempt_that_would_be_due_later_is_not_waited_for,
    it_counts_from_when_the_job_is_due,
    the_program_may_set_it,
    an_overrun_is_limited_too,
    a_snooze_is_not_limited,
    tests_of_applications_are_limited_too,
);

const HOUR: Duration = Duration::from_secs(3600);

fn error() -> Turn {
    Turn::Err("broken".to_owned())
}

fn after_the_limit_the_last_error_is_final(db: &TestDb) {
    let past = Utc::now() - TimeDelta::days(1);
    let job = enqueue(db, "a", [error()], stubborn(9).retry_until(past));
    let bench = Bench::start(db);
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.lines(), ["a 1"]);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts[0].outcome, AttemptOutcome::Failed);
    assert_eq!(attempts[0].message, "broken");
    until("it is reported", || bench.events.count("Failed") == 1);
    assert_eq!(bench.events.count("Retried"), 0);
    let why = windlass::jobs::explain(&mut db.connection(), job)
        .unwrap()
        .unwrap();
    assert_eq!(why.max_attempts, Some(9));
    assert_eq!(why.not_retried, Some(NotRetried::TooLate));
}

fn before_the_limit_it_is_tried_again(db: &TestDb) {
    let bench = Bench::start(db);
    enqueue(db, "a", [error()], stubborn(3).retry_for(HOUR));
    enqueue(db, "b", [error()], stubborn(3).retry_for(Duration::MAX));
    until("both have failed", || executions(db, "failed") == 2);
    assert_eq!((bench.log.count("a"), bench.log.count("b")), (3, 3));
}

fn an_attempt_that_would_be_due_later_is_not_waited_for(db: &TestDb) {
    let bench = Bench::start(db);
    let policy = Policy::new().max_attempts(9).retry_for(HOUR);
    let policy = policy.backoff(Backoff::Fixed(2 * HOUR));
    enqueue(db, "a", [error()], policy.clone());
    enqueue(db, "b", [Turn::RetryAfter(7_200_000)], policy);
    until("both have failed", || executions(db, "failed") == 2);
    assert_eq!(bench.log.len(), 2);
}

fn it_counts_from_when_the_job_is_due(db: &TestDb) {
    let policy = stubborn(2).retry_for(HOUR);
    enqueue(db, "old", [error()], policy.clone());
    let job = Scripted::new("late", [error()]);
    let job = NewJob::new(&job).unwrap().policy(policy).after(3 * HOUR);
    job.enqueue(&mut db.connection()).unwrap();
    testing::travel(&mut db.connection(), 3 * HOUR).unwrap();
    let bench = Bench::start(db);
    until("both have failed", || executions(db, "failed") == 2);
    assert_eq!((bench.log.count("old"), bench.log.count("late")), (1, 2));
}

fn the_program_may_set_it(db: &TestDb) {
    enqueue(db, "a", [error()], Policy::new());
    testing::travel(&mut db.connection(), 2 * HOUR).unwrap();
    let limit = stubborn(9).retry_for(HOUR);
    let bench = Bench::with(db, |registry, _| registry.defaults(limit));
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.len(), 1);
}

fn an_overrun_is_limited_too(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 100);
    let policy = stubborn(5)
        .timeout(Duration::from_millis(50))
        .timeout_grace(Duration::from_millis(50))
        .retry_until(Utc::now() - TimeDelta::days(1));
    let work = Work::new("a", Do::WaitFor(scene.gate("never")));
    let job = NewJob::new(&work).unwrap().policy(policy);
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    assert_eq!(worker.exit().code(), Some(124), "{}", worker.log());
    let _watching = scene.supervisor(0);
    until("the job has failed", || executions(db, "failed") == 1);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts[0].kind, "timeout");
}

fn a_snooze_is_not_limited(db: &TestDb) {
    let past = Utc::now() - TimeDelta::days(1);
    let policy = Policy::new().retry_until(past);
    let bench = Bench::start(db);
    enqueue(db, "a", [Turn::Snooze(0), Turn::Succeed], policy);
    until("it has finished", || super::finished(db) == 1);
    assert_eq!(bench.log.len(), 2);
}

fn tests_of_applications_are_limited_too(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Scripted>(Arc::clone(&log));
    let past = Utc::now() - TimeDelta::days(1);
    enqueue(db, "a", [error()], stubborn(9).retry_until(past));
    let _ = testing::drain(&mut db.connection(), &registry).unwrap();
    assert_eq!(log.len(), 1);
    assert_eq!(executions(db, "failed"), 1);
}
