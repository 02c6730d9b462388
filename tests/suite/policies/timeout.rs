//! Jobs that take longer than they may.

use super::{Bench, Call, Doing, Turn, call, enqueue, executions, finished, stubborn};
use crate::on_each_database;
use crate::policies::steps::Hoard;
use crate::support::TestDb;
use crate::support::process::{Do, Once, Process, Scene, Work, signal};
use crate::support::wait::{DEADLINE, until, within};
use rustix::process::{Pid, Signal, test_kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windlass::jobs::{Attempt, AttemptOutcome};
use windlass::policies::OnTimeout;
use windlass::{Interrupted, Job, JobId, NewJob, Policy};

on_each_database!(
    a_job_that_asks_ends_at_its_deadline,
    a_sleep_ends_at_the_deadline,
    a_sleep_ends_when_the_job_is_cancelled,
    a_job_in_time_is_left_alone,
    a_late_success_is_a_success,
    an_enqueue_can_do_without,
    a_blocked_job_ends_its_process_and_no_other_job_is_to_blame,
    a_spinning_job_ends_its_process,
    the_policy_decides_after_an_end_by_force,
    who_ends_in_time_is_not_given_back,
    an_at_most_once_job_has_an_unknown_outcome,
    without_a_supervisor_the_claim_stays_until_the_process_is_pruned,
    a_worker_that_is_killed_meanwhile_leaves_the_verdict,
    a_job_that_holds_the_lock_of_its_claim_ends_its_process_too,
    a_program_of_ones_own_is_not_ended,
    a_stop_of_a_program_of_ones_own_heeds_the_verdict,
);

crate::through_a_pooler_in_all!(
    a_job_that_asks_ends_at_its_deadline,
    a_sleep_ends_at_the_deadline,
    a_sleep_ends_when_the_job_is_cancelled,
    a_job_in_time_is_left_alone,
    a_late_success_is_a_success,
    an_enqueue_can_do_without,
    a_blocked_job_ends_its_process_and_no_other_job_is_to_blame,
    a_spinning_job_ends_its_process,
    the_policy_decides_after_an_end_by_force,
    who_ends_in_time_is_not_given_back,
    an_at_most_once_job_has_an_unknown_outcome,
    without_a_supervisor_the_claim_stays_until_the_process_is_pruned,
    a_worker_that_is_killed_meanwhile_leaves_the_verdict,
    a_job_that_holds_the_lock_of_its_claim_ends_its_process_too,
    a_program_of_ones_own_is_not_ended,
    a_stop_of_a_program_of_ones_own_heeds_the_verdict,
);

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3600);

fn attempts(db: &TestDb, job: JobId) -> Vec<Attempt> {
    crate::support::jobs::attempts(&mut db.connection(), job).unwrap()
}

/// The outcomes of a job's attempts, the newest first, all for this reason.
fn outcomes(db: &TestDb, job: JobId, kind: &str) -> Vec<AttemptOutcome> {
    let attempts = attempts(db, job);
    assert!(attempts.iter().all(|a| a.kind == kind), "{attempts:?}");
    attempts.iter().map(|attempt| attempt.outcome).collect()
}

fn crash_count(db: &TestDb) -> i64 {
    db.count("SELECT CAST(sum(crash_count) AS bigint) AS n FROM solid_queue_jobs")
}

fn a_job_that_asks_ends_at_its_deadline(db: &TestDb) {
    let _bench = Bench::start(db);
    let policy = || stubborn(2).timeout(SHORT).timeout_grace(LONG);
    let run = |policy| enqueue(db, "a", [Turn::UntilCancelled], policy);
    let retry = run(policy());
    until("it has failed twice", || executions(db, "failed") == 1);
    let [second, first] = [AttemptOutcome::Failed, AttemptOutcome::Retried];
    assert_eq!(outcomes(db, retry, "timeout"), [second, first]);
    let fail = run(policy().on_timeout(OnTimeout::Fail));
    until("it has failed", || executions(db, "failed") == 2);
    assert_eq!(outcomes(db, fail, "timeout"), [AttemptOutcome::Failed]);
    let discard = run(policy().on_timeout(OnTimeout::Discard));
    until("it has ended", || finished(db) == 1);
    let discarded = [AttemptOutcome::Discarded];
    assert_eq!(outcomes(db, discard, "timeout"), discarded);
}

fn a_sleep_ends_at_the_deadline(db: &TestDb) {
    let _bench = Bench::with(db, |registry, _| {
        registry.register::<Call>(Doing::new(|cx| Ok(cx.sleep(LONG)?)))
    });
    let job = call(db, Policy::new().timeout(SHORT).timeout_grace(LONG));
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, job, "timeout"), [AttemptOutcome::Failed]);
}

fn a_sleep_ends_when_the_job_is_cancelled(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<Call>(Doing::new(move |cx| {
            log.add("sleeps");
            Ok(cx.sleep(LONG)?)
        }))
    });
    let job = call(db, Policy::new());
    until("it sleeps", || bench.log.len() == 1);
    windlass::jobs::cancel(&mut db.connection(), job).unwrap();
    until("it has ended", || finished(db) == 1);
    assert_eq!(outcomes(db, job, "cancelled"), [AttemptOutcome::Cancelled]);
}

fn a_job_in_time_is_left_alone(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<Call>(Doing::new(move |cx| {
            match (cx.remaining(), cx.deadline()) {
                (None, None) => log.add("unlimited"),
                (Some(left), Some(at)) => {
                    assert!(left <= LONG && left > LONG / 2 && at > Instant::now());
                    log.add("limited");
                }
                other => panic!("{other:?}"),
            }
            cx.sleep(Duration::from_millis(1))?;
            Ok(cx.check()?)
        }))
    });
    call(db, Policy::new());
    call(db, Policy::new().timeout(LONG));
    until("both have finished", || finished(db) == 2);
    assert_eq!(bench.log.count("limited"), 1);
    assert_eq!(bench.log.count("unlimited"), 1);
}

fn a_late_success_is_a_success(db: &TestDb) {
    let _bench = Bench::with(db, |registry, _| {
        registry.register::<Call>(Doing::new(|cx| {
            assert_eq!(cx.sleep(LONG), Err(Interrupted::TimedOut));
            assert_eq!(cx.remaining(), Some(Duration::ZERO));
            Ok(())
        }))
    });
    let job = call(db, Policy::new().timeout(SHORT).timeout_grace(LONG));
    until("it has finished", || finished(db) == 1);
    assert!(attempts(db, job).is_empty());
}

fn an_enqueue_can_do_without(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        let registry = registry.defaults(Policy::new().timeout(SHORT));
        registry.register::<Call>(Doing::new(move |cx| {
            log.add(format!("{:?}", cx.remaining().is_some()));
            Ok(())
        }))
    });
    call(db, Policy::new().timeout(Duration::MAX));
    until("it has finished", || finished(db) == 1);
    call(db, Policy::new());
    until("both have finished", || finished(db) == 2);
    assert_eq!(bench.log.lines(), ["false", "true"]);
}

/// Enqueues work that is ended by force after two seconds.
fn limited(db: &TestDb, work: &impl Job, policy: Policy) -> JobId {
    let grace = Duration::from_millis(1500);
    limited_with(db, work, policy, grace)
}

/// The same, after half a second and `grace`.
fn limited_with(db: &TestDb, work: &impl Job, policy: Policy, grace: Duration) -> JobId {
    let timeout = Duration::from_millis(500);
    let job = NewJob::new(work).unwrap();
    job.policy(policy.timeout(timeout).timeout_grace(grace))
        .enqueue(&mut db.connection())
        .unwrap()
        .id
}

fn supervisor(scene: &Scene<'_>, shutdown_ms: u64) -> Process {
    scene.worker_with(|role| {
        role.workers = Some(1);
        role.shutdown_ms = shutdown_ms;
    })
}

fn is_gone(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_err()
}

fn a_blocked_job_ends_its_process_and_no_other_job_is_to_blame(db: &TestDb) {
    let scene = Scene::new(db);
    let supervisor = supervisor(&scene, 400);
    let innocent = Work::new("innocent", Do::WaitFor(scene.gate("go")));
    let innocent = innocent.enqueue(&mut db.connection()).unwrap().id;
    scene.started("innocent", 1);
    let slow = Work::new("slow", Do::StickOnce(scene.gate("stuck")));
    // Its second run must end in time, on a busy machine too.
    let slow = limited_with(db, &slow, stubborn(2), Duration::from_secs(6));
    let first = scene.started("slow", 1);
    let second = scene.started("slow", 2);
    assert!(is_gone(first.pid), "it ran beside itself");
    scene.open("go");
    scene.drained();
    assert_eq!(outcomes(db, slow, "timeout"), [AttemptOutcome::Retried]);
    assert!(second.claim > first.claim);
    assert_eq!(scene.count("start", "innocent"), 2);
    let released = [AttemptOutcome::Released];
    assert_eq!(outcomes(db, innocent, "cut_short"), released);
    let attempts = db.count("SELECT CAST(sum(attempts) AS bigint) AS n FROM solid_queue_jobs");
    assert_eq!((attempts, crash_count(db)), (1, 0));
    let log = supervisor.log();
    assert!(log.contains("timed out: job"), "{log}");
    assert!(log.contains("which exited with code 124"), "{log}");
    assert!(!log.contains("stalled"), "{log}");
    assert!(!log.contains("lost the registration"), "{log}");
}

fn a_spinning_job_ends_its_process(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = supervisor(&scene, 400);
    let job = limited(
        db,
        &Work::new("a", Do::SpinUntil(scene.gate("never"))),
        stubborn(1),
    );
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, job, "timeout"), [AttemptOutcome::Failed]);
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("b", 1);
    assert!(is_gone(scene.started("a", 1).pid));
    assert_eq!((scene.count("start", "a"), scene.count("end", "a")), (1, 0));
}

fn the_policy_decides_after_an_end_by_force(db: &TestDb) {
    let scene = Scene::new(db);
    let watching = supervisor(&scene, 400);
    let work = Work::new("a", Do::WaitFor(scene.gate("never")));
    let fail = limited(db, &work, stubborn(9).on_timeout(OnTimeout::Fail));
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, fail, "timeout"), [AttemptOutcome::Failed]);
    let discard = limited(db, &work, stubborn(9).on_timeout(OnTimeout::Discard));
    until("it has ended", || finished(db) == 1);
    let discarded = [AttemptOutcome::Discarded];
    assert_eq!(outcomes(db, discard, "timeout"), discarded);
    assert_eq!(scene.count("start", "a"), 2);
    until("it is said", || {
        watching.log().contains("discarded job 2 (work): timeout")
    });
}

fn who_ends_in_time_is_not_given_back(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = supervisor(&scene, 20_000);
    Work::new("b", Do::WaitFor(scene.gate("b")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("b", 1);
    limited(
        db,
        &Work::new("a", Do::SpinUntil(scene.gate("never"))),
        stubborn(1),
    );
    until("the process is to end", || verdicts(db) == 1);
    Work::new("c", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.open("b");
    until("it has failed", || executions(db, "failed") == 1);
    scene.ended("c", 1);
    assert_eq!((scene.count("start", "b"), scene.count("end", "b")), (1, 1));
    assert_ne!(scene.started("c", 1).pid, scene.started("b", 1).pid);
}

fn verdicts(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE verdict IS NOT NULL")
}

fn an_at_most_once_job_has_an_unknown_outcome(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = supervisor(&scene, 400);
    let once = Once(Work::new("a", Do::WaitFor(scene.gate("never"))));
    let job = limited(db, &once, Policy::new());
    until("it has failed", || executions(db, "failed") == 1);
    let failed = [AttemptOutcome::Failed];
    assert_eq!(outcomes(db, job, "outcome_unknown"), failed);
    assert!(attempts(db, job)[0].message.contains("timeout"));
    Work::new("b", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("b", 1);
    assert_eq!(scene.count("start", "a"), 1);
}

fn without_a_supervisor_the_claim_stays_until_the_process_is_pruned(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut worker = scene.worker();
    let job = limited(
        db,
        &Work::new("a", Do::SpinUntil(scene.gate("never"))),
        stubborn(2),
    );
    assert_eq!(worker.exit().code(), Some(124));
    assert_eq!((verdicts(db), db.rows("processes")), (1, 1));
    let _watching = scene.supervisor(0);
    until("the process is pruned", || verdicts(db) == 0);
    assert_eq!(outcomes(db, job, "timeout"), [AttemptOutcome::Retried]);
    assert_eq!((executions(db, "ready"), crash_count(db)), (1, 0));
}

fn a_worker_that_is_killed_meanwhile_leaves_the_verdict(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = supervisor(&scene, 20_000);
    Work::new("b", Do::WaitFor(scene.gate("b")))
        .enqueue(&mut db.connection())
        .unwrap();
    let neighbour = scene.started("b", 1);
    let work = Work::new("a", Do::WaitFor(scene.gate("never")));
    let job = limited(db, &work, stubborn(1));
    until("the process is to end", || verdicts(db) == 1);
    signal(neighbour.pid, Signal::KILL);
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(outcomes(db, job, "timeout"), [AttemptOutcome::Failed]);
    scene.started("b", 2);
    scene.open("b");
    scene.ended("b", 1);
}

/// The verdict cannot be written: it is a crash then, after three lock timeouts
/// at most.
fn a_job_that_holds_the_lock_of_its_claim_ends_its_process_too(db: &TestDb) {
    let scene = Scene::new(db);
    let supervisor = supervisor(&scene, 400);
    let gate = scene.gate("go");
    let policy = stubborn(9).timeout(Duration::from_secs(2));
    let job = NewJob::new(&Hoard { gate }).unwrap();
    let job = job.policy(policy.timeout_grace(Duration::from_secs(1)));
    job.enqueue(&mut db.connection()).unwrap();
    let first = scene.started("hoard", 1);
    let minutes = Duration::from_secs(120);
    within(minutes, "its process has ended", || is_gone(first.pid));
    scene.open("go");
    within(minutes, "it has finished", || {
        db.execute("UPDATE solid_queue_scheduled_executions SET scheduled_at = created_at");
        finished(db) == 1
    });
    let log = supervisor.log();
    assert!(
        log.contains("exited with code 70") || log.contains("code 124"),
        "{log}"
    );
}

/// A bench whose job does not end before `end` is set.
fn endless(db: &TestDb, end: &Arc<AtomicBool>) -> Bench {
    let end = Arc::clone(end);
    Bench::with(db, |registry, _| {
        registry.register::<Call>(Doing::new(move |_| {
            until("it may end", || end.load(Ordering::SeqCst));
            Ok(())
        }))
    })
}

fn a_program_of_ones_own_is_not_ended(db: &TestDb) {
    let end = Arc::new(AtomicBool::new(false));
    let bench = endless(db, &end);
    call(db, stubborn(9).timeout(SHORT).timeout_grace(SHORT));
    until("it is said", || bench.events.count("TimedOut") == 1);
    assert!(bench.events.of("TimedOut")[0].contains("ends_process: false"));
    assert_eq!(verdicts(db), 1);
    // The other thread goes on.
    enqueue(db, "b", [Turn::Succeed], Policy::new());
    until("another one has finished", || finished(db) == 1);
    assert_eq!(db.rows("claimed_executions"), 1);
    end.store(true, Ordering::SeqCst);
    until("it has finished", || finished(db) == 2);
    assert_eq!(bench.events.count("TimedOut"), 1);
}

fn a_stop_of_a_program_of_ones_own_heeds_the_verdict(db: &TestDb) {
    let end = Arc::new(AtomicBool::new(false));
    let mut bench = endless(db, &end);
    let job = call(db, stubborn(2).timeout(SHORT).timeout_grace(SHORT));
    until("it is said", || bench.events.count("TimedOut") == 1);
    bench.worker.stop();
    let stopped = bench.worker.join(DEADLINE).unwrap();
    assert_eq!(stopped.unfinished, [job]);
    assert_eq!(outcomes(db, job, "timeout"), [AttemptOutcome::Retried]);
    assert_eq!(db.rows("claimed_executions"), 0);
    end.store(true, Ordering::SeqCst);
    until("its late end is fenced", || {
        bench.events.count("Fenced") == 1
    });
    assert_eq!(finished(db), 0);
}
