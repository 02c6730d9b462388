//! Cancelling jobs, wherever they stand.

use super::{Bench, Scripted, Turn, enqueue, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::jobs::{AttemptOutcome, Cancelled};
use windlass::{Job, JobId, NewJob, Policy};

on_each_database!(
    a_waiting_job_is_cancelled_at_once,
    a_running_job_hears_of_it,
    what_a_cancelled_job_says_does_not_bring_it_back,
    a_job_that_succeeds_has_succeeded,
    a_cancelled_job_is_not_recovered,
    a_cancelled_job_is_not_given_back,
    cancelling_and_running_at_once,
    cancelling_and_retrying_at_once,
);

crate::through_a_pooler_in_all!(
    a_waiting_job_is_cancelled_at_once,
    a_running_job_hears_of_it,
    what_a_cancelled_job_says_does_not_bring_it_back,
    a_job_that_succeeds_has_succeeded,
    a_cancelled_job_is_not_recovered,
    a_cancelled_job_is_not_given_back,
    cancelling_and_running_at_once,
    cancelling_and_retrying_at_once,
);

fn cancel(db: &TestDb, job: JobId) -> Cancelled {
    windlass::jobs::cancel(&mut db.connection(), job).unwrap()
}

fn outcome(db: &TestDb, job: JobId) -> AttemptOutcome {
    crate::support::jobs::attempts(&mut db.connection(), job).unwrap()[0].outcome
}

fn nothing_is_left(db: &TestDb) {
    for table in ["ready", "scheduled", "claimed", "failed"] {
        assert_eq!(executions(db, table), 0, "{table}");
    }
}

fn a_waiting_job_is_cancelled_at_once(db: &TestDb) {
    let ready = enqueue(db, "a", [Turn::Succeed], Policy::new());
    let scheduled = NewJob::new(&Scripted::new("b", [Turn::Succeed]))
        .unwrap()
        .after(Duration::from_secs(3600))
        .enqueue(&mut db.connection())
        .unwrap()
        .id;
    for job in [ready, scheduled] {
        assert_eq!(cancel(db, job), Cancelled::Ended);
        assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
        assert_eq!(cancel(db, job), Cancelled::NotThere, "twice");
    }
    assert_eq!(cancel(db, JobId(4711)), Cancelled::NotThere);
    assert_eq!(finished(db), 2);
    nothing_is_left(db);
}

fn a_running_job_hears_of_it(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(db, "a", [Turn::UntilCancelled], stubborn(5));
    until("the job runs", || bench.log.len() == 1);
    assert_eq!(cancel(db, job), Cancelled::Asked);
    // Asking twice is asking once, unless the job has heard of it and ended in between.
    let again = cancel(db, job);
    assert!(
        again == Cancelled::Asked || finished(db) == 1,
        "{again:?} though it runs"
    );
    until("the job has ended", || finished(db) == 1);
    assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
    nothing_is_left(db);
}

fn what_a_cancelled_job_says_does_not_bring_it_back(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(db, "a", [Turn::ErrWhenCancelled], stubborn(5));
    until("the job runs", || bench.log.len() == 1);
    cancel(db, job);
    until("the job has ended", || finished(db) == 1);
    assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
    assert_eq!(bench.log.len(), 1);
    nothing_is_left(db);
}

fn a_job_that_succeeds_has_succeeded(db: &TestDb) {
    let bench = Bench::start(db);
    let job = enqueue(db, "a", [Turn::SucceedWhenCancelled], stubborn(5));
    until("the job runs", || bench.log.len() == 1);
    cancel(db, job);
    until("the job has ended", || finished(db) == 1);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert!(attempts.is_empty(), "{attempts:?}");
}

fn a_cancelled_job_is_not_recovered(db: &TestDb) {
    let scene = Scene::new(db);
    let supervisor = scene.supervisor(1);
    let work = Work::new("a", Do::WaitFor(scene.gate("never")));
    let job = work.enqueue(&mut db.connection()).unwrap().id;
    let first = scene.started("a", 1);
    assert_eq!(cancel(db, job), Cancelled::Asked);
    signal(first.pid, Signal::KILL);
    until("the job has ended", || finished(db) == 1);
    assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
    nothing_is_left(db);
    assert_eq!(scene.count("start", "a"), 1);
    until("the supervisor says so", || {
        supervisor.log().contains("cancelled job")
    });
}

fn a_cancelled_job_is_not_given_back(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 100);
    let work = Work::new("a", Do::WaitFor(scene.gate("never")));
    let job = work.enqueue(&mut db.connection()).unwrap().id;
    scene.started("a", 1);
    cancel(db, job);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(75));
    assert_eq!(finished(db), 1);
    assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
    nothing_is_left(db);
}

/// Whatever comes first, each job runs to its end or never, and none is lost.
fn cancelling_and_running_at_once(db: &TestDb) {
    const ROUND: usize = 100;
    let bench = Bench::start(db);
    let told = "SELECT count(*) AS n FROM windlass_attempts WHERE outcome = 'cancelled'";
    let (mut jobs, mut ended) = (0, 0);
    // A round may be over before the other side has begun, whichever is
    // faster on this machine: there are rounds until both have won jobs.
    until("both win jobs", || {
        ended += cancelled_while_they_run(db, ROUND);
        jobs += ROUND;
        until("every job has ended", || finished(db) == jobs as i64);
        nothing_is_left(db);
        // A job that was claimed, but not begun, is asked to end, and ends without having run.
        let cancelled = db.count(told);
        assert_eq!(cancelled + bench.log.len() as i64, jobs as i64);
        assert!(ended as i64 <= cancelled);
        jobs >= 3 * ROUND && ended > 0 && ended < jobs
    });
}

/// Returns the number of jobs that ended because two threads cancelled them, from the last to the
/// first. Half of the jobs are soon due.
fn cancelled_while_they_run(db: &TestDb, jobs: usize) -> usize {
    let job = |n| {
        let delay = Duration::from_millis(if n % 2 == 0 { 0 } else { 40 });
        NewJob::new(&Scripted::new("a", [Turn::Succeed]))
            .unwrap()
            .after(delay)
    };
    let jobs = windlass::enqueue_all(&mut db.connection(), (0..jobs).map(job)).unwrap();
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (jobs, ended) = (&jobs, &ended);
            scope.spawn(move || {
                for enqueued in jobs.iter().rev().skip(half).step_by(2) {
                    if cancel(db, enqueued.id) == Cancelled::Ended {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    ended.into_inner()
}

/// Whatever comes first, the end of an attempt or the request: it is never
/// forgotten over a further attempt, wherever the job stands at that moment.
fn cancelling_and_retrying_at_once(db: &TestDb) {
    const JOBS: usize = 60;
    let bench = Bench::start(db);
    let jobs: Vec<JobId> = (0..JOBS)
        .map(|_| enqueue(db, "a", [Turn::Err("no".to_owned())], stubborn(u32::MAX)))
        .collect();
    until("they run and fail", || bench.log.len() >= JOBS);
    for job in &jobs {
        assert_ne!(cancel(db, *job), Cancelled::NotThere);
    }
    until("every job has ended", || finished(db) == JOBS as i64);
    nothing_is_left(db);
    for job in jobs {
        assert_eq!(outcome(db, job), AttemptOutcome::Cancelled);
    }
}
