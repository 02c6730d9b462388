//! Attempts, back-off, and what the body of a job may decide.

use super::{Bench, Call, Doing, Scripted, Turn, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::process::{Do, Once, Scene, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::jobs::AttemptOutcome;
use windlass::policies::JobFailed;
use windlass::{
    Backoff, Context, Delivery, Job, JobError, JobId, JobResult, NewJob, OnConflict, Policy,
};

on_each_database!(
    a_job_fails_at_its_first_error_by_default,
    a_job_is_tried_as_often_as_its_policy_says,
    the_last_attempt_is_the_last,
    the_program_decides_where_nobody_else_does,
    the_enqueue_wins_over_the_type,
    the_body_decides,
    a_snooze_is_no_attempt,
    back_off_is_waited_for,
    the_type_computes_the_delay,
    an_at_most_once_job_is_not_tried_again,
    attempts_are_kept_newest_first_and_bounded,
    attempts_are_bounded_where_a_job_is_replaced,
    crashes_are_among_the_attempts,
    a_failure_for_good_enqueues_the_hook,
    a_supervisor_enqueues_the_hook_too,
    policies_travel_in_batches,
);

crate::through_a_pooler_in_all!(
    a_job_fails_at_its_first_error_by_default,
    a_job_is_tried_as_often_as_its_policy_says,
    the_last_attempt_is_the_last,
    the_program_decides_where_nobody_else_does,
    the_enqueue_wins_over_the_type,
    the_body_decides,
    a_snooze_is_no_attempt,
    back_off_is_waited_for,
    the_type_computes_the_delay,
    an_at_most_once_job_is_not_tried_again,
    attempts_are_kept_newest_first_and_bounded,
    attempts_are_bounded_where_a_job_is_replaced,
    crashes_are_among_the_attempts,
    a_failure_for_good_enqueues_the_hook,
    a_supervisor_enqueues_the_hook_too,
    policies_travel_in_batches,
);

fn enqueue(db: &TestDb, turns: impl Into<Vec<Turn>>, policy: Policy) -> JobId {
    super::enqueue(db, "a", turns, policy)
}

fn error() -> Turn {
    Turn::Err("broken".to_owned())
}

fn attempts_column(db: &TestDb) -> i64 {
    db.count("SELECT CAST(max(attempts) AS bigint) AS n FROM solid_queue_jobs")
}

fn a_job_fails_at_its_first_error_by_default(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(db, [error()], Policy::new());
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.lines(), ["a 1"]);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, AttemptOutcome::Failed);
    assert_eq!(attempts[0].message, "broken");
    assert_eq!(
        attempts[0].pid,
        Some(i32::try_from(std::process::id()).unwrap())
    );
    assert!(
        attempts[0]
            .process_name
            .as_deref()
            .unwrap()
            .starts_with("worker-")
    );
    assert!(attempts[0].started_at.unwrap() <= attempts[0].ended_at);
}

fn a_job_is_tried_as_often_as_its_policy_says(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(
        db,
        [error(), Turn::Panic("oh".to_owned()), Turn::Succeed],
        stubborn(3),
    );
    until("the job has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["a 1", "a 2", "a 3"]);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    let told: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt.attempt, attempt.outcome, &*attempt.kind))
        .collect();
    assert_eq!(told[0], (2, AttemptOutcome::Retried, "panic"));
    assert_eq!((told[1].0, told[1].1), (1, AttemptOutcome::Retried));
    assert!(
        attempts[0]
            .place
            .as_deref()
            .unwrap()
            .contains("policies/mod.rs:")
    );
    assert_eq!(executions(db, "failed"), 0);
}

fn the_last_attempt_is_the_last(db: &TestDb) {
    let bench = Bench::start(db);
    enqueue(db, [error()], stubborn(3));
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.len(), 3);
    assert_eq!(attempts_column(db), 3);
    for table in ["ready", "scheduled", "claimed"] {
        assert_eq!(executions(db, table), 0, "{table}");
    }
}

fn the_program_decides_where_nobody_else_does(db: &TestDb) {
    let bench = Bench::with(db, |registry, _| registry.defaults(stubborn(4)));
    enqueue(db, [error()], Policy::new());
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.len(), 4);
    enqueue(db, [error()], Policy::new().max_attempts(2));
    until("the other has failed", || executions(db, "failed") == 2);
    assert_eq!(bench.log.len(), 6);
}

/// Always fails, twice by its type.
#[derive(Serialize, Deserialize)]
struct Twice;

impl Job for Twice {
    const NAME: &'static str = "twice";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        stubborn(2)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("twice");
        Err("no".into())
    }
}

fn the_enqueue_wins_over_the_type(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        registry
            .defaults(stubborn(9))
            .register::<Twice>(log.clone())
    });
    Twice.enqueue(&mut db.connection()).unwrap();
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.len(), 2, "the type wins over the program");
    NewJob::new(&Twice)
        .unwrap()
        .policy(Policy::new().max_attempts(3))
        .enqueue(&mut db.connection())
        .unwrap();
    until("the other has failed", || executions(db, "failed") == 2);
    assert_eq!(bench.log.len(), 5, "and the enqueue over the type");
    // A job of another program has no policy, so that of the type counts.
    NewJob::of_class("twice", "null")
        .enqueue(&mut db.connection())
        .unwrap();
    until("the third has failed", || executions(db, "failed") == 3);
    assert_eq!(bench.log.len(), 7);
}

fn the_body_decides(db: &TestDb) {
    let bench = Bench::start(db);
    let failed = enqueue(db, [Turn::Fail], stubborn(5));
    until("it has failed for good", || executions(db, "failed") == 1);
    let discarded = enqueue(db, [Turn::Discard], stubborn(5));
    until("it was discarded", || finished(db) == 1);
    assert_eq!(bench.log.len(), 2);
    let outcome =
        |job| crate::support::jobs::attempts(&mut db.connection(), job).unwrap()[0].outcome;
    assert_eq!(outcome(failed), AttemptOutcome::Failed);
    assert_eq!(outcome(discarded), AttemptOutcome::Discarded);
    let policy = stubborn(2).backoff(Backoff::Fixed(Duration::from_secs(3600)));
    enqueue(db, [Turn::RetryAfter(20), Turn::Succeed], policy);
    until("it came back before its back-off", || finished(db) == 2);
}

fn a_snooze_is_no_attempt(db: &TestDb) {
    let bench = Bench::start(db);
    let turns = [
        Turn::Snooze(20),
        Turn::Snooze(0),
        error(),
        Turn::Snooze(20),
        Turn::Succeed,
    ];
    let job = enqueue(db, turns, stubborn(2));
    until("the job has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["a 1", "a 1", "a 1", "a 2", "a 2"]);
    assert_eq!(
        crate::support::jobs::attempts(&mut db.connection(), job)
            .unwrap()
            .len(),
        1
    );
}

fn back_off_is_waited_for(db: &TestDb) {
    let bench = Bench::start(db);
    let backoff = |delay| stubborn(2).backoff(Backoff::Fixed(delay));
    enqueue(db, [error()], backoff(Duration::from_secs(3600)));
    until("the next attempt is scheduled", || {
        executions(db, "scheduled") == 1
    });
    let start = Instant::now();
    let turns = [error(), error(), Turn::Succeed];
    enqueue(db, turns, backoff(Duration::from_millis(400)));
    until("the job has finished", || finished(db) == 1);
    assert!(start.elapsed() >= Duration::from_millis(400));
    let retried = bench.events.of("Retried");
    assert!(retried[1].contains("delay: 400ms"), "{retried:?}");
    assert_eq!(executions(db, "scheduled"), 1, "the other one still waits");
}

/// Knows itself how long to wait.
#[derive(Serialize, Deserialize)]
struct Knowing;

impl Job for Knowing {
    const NAME: &'static str = "knowing";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(3)
            .backoff(Backoff::Fixed(Duration::from_secs(3600)))
    }

    fn retry_in(attempt: u32, error: &JobError) -> Option<Duration> {
        let io = error.downcast_ref::<std::io::Error>()?;
        assert_eq!(io.kind(), std::io::ErrorKind::TimedOut);
        Some(Duration::from_millis(u64::from(attempt)))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("knowing");
        if cx.attempt() < 3 {
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        }
        Ok(())
    }
}

fn the_type_computes_the_delay(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        registry.register::<Knowing>(log.clone())
    });
    Knowing.enqueue(&mut db.connection()).unwrap();
    until("the job has finished", || finished(db) == 1);
    assert_eq!(bench.log.len(), 3);
}

fn an_at_most_once_job_is_not_tried_again(db: &TestDb) {
    let bench = Bench::with(db, |registry, _| registry.defaults(stubborn(5)));
    let once = Policy::new().delivery(Delivery::AtMostOnce);
    for turn in [error(), Turn::RetryAfter(0), Turn::Snooze(0)] {
        enqueue(db, [turn], once.clone());
    }
    until("all have failed", || executions(db, "failed") == 3);
    assert_eq!(bench.log.len(), 3, "each has started once");
    let refused = NewJob::new(&Scripted::new("a", [error()]))
        .unwrap()
        .policy(once.max_attempts(2))
        .enqueue(&mut db.connection());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("at-most-once"), "{message}");
}

fn attempts_are_kept_newest_first_and_bounded(db: &TestDb) {
    let _bench = Bench::start(db);
    let job = enqueue(db, [error()], stubborn(25));
    until("the job has failed", || executions(db, "failed") == 1);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, (6..=25).rev().collect::<Vec<_>>());
}

fn attempts_are_bounded_where_a_job_is_replaced(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<Call>(Doing::new(move |_| {
            log.add("run");
            Err("broken".into())
        }))
    });
    let policy = stubborn(2)
        .backoff(Backoff::Fixed(Duration::from_secs(3_600)))
        .on_conflict(OnConflict::Replace);
    for round in 1..=25 {
        let job = NewJob::new(&Call).unwrap().policy(policy.clone());
        job.unique_id("one").enqueue(&mut db.connection()).unwrap();
        until("it waits for its second attempt", || {
            bench.log.count("run") == round && db.rows("scheduled_executions") == 1
        });
    }
    let rows = db.count("SELECT count(*) AS n FROM windlass_attempts");
    assert!((20..25).contains(&rows), "{rows}");
    let job = JobId(db.count("SELECT id AS n FROM solid_queue_jobs"));
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts.len(), 20);
}

fn crashes_are_among_the_attempts(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let job = Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap()
        .id;
    let first = scene.started("a", 1);
    crate::support::process::signal(first.pid, Signal::KILL);
    scene.started("a", 2);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].outcome, AttemptOutcome::Crashed);
    assert_eq!(attempts[0].attempt, 1);
    assert_eq!(attempts[0].pid, Some(first.pid));
    assert!(attempts[0].message.contains("signal 9"), "{attempts:?}");
    assert!(attempts[0].started_at.is_some());
    scene.open("a");
    scene.drained();
}

/// Notes which job has failed, and why.
#[derive(Serialize, Deserialize)]
struct Hear(JobFailed);

impl Job for Hear {
    const NAME: &'static str = "hear";
    const QUEUE: &'static str = "urgent";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let failed = self.0;
        cx.add(format!(
            "{} {} {} {} {}: {}",
            failed.job_id,
            failed.class_name,
            failed.arguments["name"],
            failed.attempts,
            cx.queue_name(),
            failed.message
        ));
        Ok(())
    }
}

fn a_failure_for_good_enqueues_the_hook(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| registry.register::<Hear>(log.clone()));
    let job = enqueue(db, [error()], stubborn(2).on_failure::<Hear>());
    until("the hook has run", || finished(db) == 1);
    assert_eq!(
        bench.log.lines(),
        [
            "a 1".to_owned(),
            "a 2".to_owned(),
            format!("{job} scripted \"a\" 2 urgent: broken")
        ]
    );
}

fn a_supervisor_enqueues_the_hook_too(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let once = Once(Work::new("a", Do::Abort));
    NewJob::new(&once)
        .unwrap()
        .policy(Policy::new().on_failure::<Hear>())
        .enqueue(&mut db.connection())
        .unwrap();
    until("the hook is enqueued", || {
        db.count("SELECT count(*) AS n FROM solid_queue_ready_executions WHERE class_name = 'hear'")
            == 1
    });
    assert_eq!(executions(db, "failed"), 1);
    assert_eq!(scene.count("start", "a"), 1);
}

fn policies_travel_in_batches(db: &TestDb) {
    let bench = Bench::start(db);
    let job = |n: u32| {
        NewJob::new(&Scripted::new(&n.to_string(), [error()]))
            .unwrap()
            .policy(stubborn(n))
    };
    windlass::enqueue_all(&mut db.connection(), (1..=3).map(job)).unwrap();
    until("all have failed", || executions(db, "failed") == 3);
    assert_eq!(bench.log.len(), 1 + 2 + 3);
}
