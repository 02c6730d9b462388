//! The third delivery: what is returned may be tried again, what is cut off may not.

use super::{Bench, Turn, enqueue, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use std::time::Duration;
use windlass::jobs::{AttemptOutcome, Change, Jobs, NotRetried, Reason};
use windlass::{Delivery, Job, JobId, NewJob, Policy, Registry, testing};

on_each_database!(
    what_the_job_returns_is_tried_again,
    the_last_attempt_is_the_last,
    a_timeout_that_the_job_notices_is_an_error,
    a_death_is_an_unknown_outcome,
    a_stop_that_cuts_it_off_is_an_unknown_outcome,
    a_stop_that_the_job_notices_gives_it_back,
    an_overrun_is_an_unknown_outcome,
    a_program_of_the_version_before_reads_at_most_once,
    only_unknown_outcomes_are_not_retried_by_accident,
    tests_of_applications_treat_it_alike,
    it_is_explained,
);

fn known(attempts: u32) -> Policy {
    stubborn(attempts).delivery(Delivery::AfterKnownOutcome)
}

fn outcomes(db: &TestDb, job: JobId) -> Vec<(AttemptOutcome, String)> {
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    let attempts = attempts.into_iter();
    attempts.map(|one| (one.outcome, one.kind)).collect()
}

fn unknown() -> Vec<(AttemptOutcome, String)> {
    vec![(AttemptOutcome::Failed, "outcome_unknown".to_owned())]
}

fn what_the_job_returns_is_tried_again(db: &TestDb) {
    let bench = Bench::start(db);
    let turns = [
        Turn::Err("no".to_owned()),
        Turn::Panic("oh".to_owned()),
        Turn::RetryAfter(0),
        Turn::Snooze(0),
        Turn::Succeed,
    ];
    enqueue(db, "a", turns, known(4));
    until("the job has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["a 1", "a 2", "a 3", "a 4", "a 4"]);
}

fn the_last_attempt_is_the_last(db: &TestDb) {
    let bench = Bench::start(db);
    enqueue(db, "a", [Turn::Err("no".to_owned())], known(2));
    enqueue(db, "b", [Turn::Err("no".to_owned())], known(1));
    until("both have failed", || executions(db, "failed") == 2);
    assert_eq!((bench.log.count("a"), bench.log.count("b")), (2, 1));
}

fn a_timeout_that_the_job_notices_is_an_error(db: &TestDb) {
    let _bench = Bench::start(db);
    let policy = known(2)
        .timeout(Duration::from_millis(50))
        .timeout_grace(Duration::from_secs(3600));
    let job = enqueue(db, "a", [Turn::UntilCancelled], policy);
    until("it has failed", || executions(db, "failed") == 1);
    let timeout = |outcome| (outcome, "timeout".to_owned());
    assert_eq!(
        outcomes(db, job),
        [
            timeout(AttemptOutcome::Failed),
            timeout(AttemptOutcome::Retried)
        ]
    );
}

fn work(db: &TestDb, what: Do, policy: Policy) -> JobId {
    let job = NewJob::new(&Work::new("a", what)).unwrap().policy(policy);
    job.enqueue(&mut db.connection()).unwrap().id
}

fn a_death_is_an_unknown_outcome(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let job = work(db, Do::WaitFor(scene.gate("never")), known(5));
    signal(scene.started("a", 1).pid, Signal::KILL);
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, job), unknown());
    let why = windlass::jobs::explain(&mut db.connection(), job)
        .unwrap()
        .unwrap();
    assert_eq!(why.not_retried, Some(NotRetried::OutcomeUnknown));
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("b", 1);
    assert_eq!(scene.count("start", "a"), 1);
}

fn a_stop_that_cuts_it_off_is_an_unknown_outcome(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 100);
    let job = work(db, Do::WaitFor(scene.gate("never")), known(5));
    scene.started("a", 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(75), "{}", worker.log());
    assert_eq!(outcomes(db, job), unknown());
    assert_eq!(executions(db, "failed"), 1);
}

fn a_stop_that_the_job_notices_gives_it_back(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 60_000);
    let job = work(db, Do::ReturnOnceStopping, known(5));
    scene.started("a", 1);
    worker.signal(Signal::TERM);
    worker.exit();
    let released = (AttemptOutcome::Released, "cut_short".to_owned());
    assert_eq!(outcomes(db, job), [released]);
    assert_eq!((executions(db, "ready"), executions(db, "failed")), (1, 0));
}

fn an_overrun_is_an_unknown_outcome(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 100);
    let policy = known(5)
        .timeout(Duration::from_millis(50))
        .timeout_grace(Duration::from_millis(50));
    let job = work(db, Do::WaitFor(scene.gate("never")), policy);
    assert_eq!(worker.exit().code(), Some(124), "{}", worker.log());
    let _watching = scene.supervisor(0);
    until("the job has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, job), unknown());
}

fn a_program_of_the_version_before_reads_at_most_once(db: &TestDb) {
    enqueue(db, "a", [Turn::Succeed], known(3));
    let once = "SELECT count(*) AS n FROM solid_queue_jobs WHERE at_most_once";
    assert_eq!(db.count(once), 1);
    let policy = db.texts("SELECT policy AS t FROM solid_queue_jobs");
    assert!(
        policy[0].contains(r#""delivery":"after_known_outcome""#),
        "{policy:?}"
    );
}

fn only_unknown_outcomes_are_not_retried_by_accident(db: &TestDb) {
    let bench = Bench::start(db);
    enqueue(db, "a", [Turn::Fail, Turn::Succeed], known(1));
    until("it has failed", || executions(db, "failed") == 1);
    let retry = |even_at_most_once| {
        let change = Change::Retry { even_at_most_once };
        let changed = Jobs::failed().change(&mut db.connection(), change).unwrap();
        (changed.changed, changed.at_most_once)
    };
    assert_eq!(retry(false), (1, 0));
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("a"), 2);
    enqueue(db, "b", [Turn::Fail, Turn::Succeed], known(1));
    until("it has failed", || executions(db, "failed") == 1);
    db.execute(
        "UPDATE solid_queue_failed_executions \
         SET error = '{\"exception_class\":\"outcome_unknown\",\"message\":\"who knows\"}'",
    );
    assert_eq!(retry(false), (0, 1));
    assert_eq!(retry(true), (1, 0));
    until("both have finished", || finished(db) == 2);
}

fn tests_of_applications_treat_it_alike(db: &TestDb) {
    let log = std::sync::Arc::new(crate::support::jobs::Log::default());
    let registry = Registry::new().register::<super::Scripted>(std::sync::Arc::clone(&log));
    let turns = [Turn::Err("no".to_owned()), Turn::Succeed];
    enqueue(db, "a", turns, known(2));
    let _ = testing::drain(&mut db.connection(), &registry).unwrap();
    assert_eq!(log.lines(), ["a 1", "a 2"]);
}

fn it_is_explained(db: &TestDb) {
    let job = enqueue(db, "a", [Turn::Succeed], known(3));
    let explanation = windlass::jobs::explain(&mut db.connection(), job)
        .unwrap()
        .unwrap();
    assert_eq!(explanation.delivery, Some(Delivery::AfterKnownOutcome));
    assert!(matches!(explanation.reason, Reason::Ready { .. }));
}
