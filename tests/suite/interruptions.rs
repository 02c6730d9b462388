//! The state of a job after each interruption: at least and at most once, under a supervisor and without one, when the
//! job asks and when it does not.

use crate::on_each_database;
use crate::policies::stubborn;
use crate::support::TestDb;
use crate::support::db;
use crate::support::process::{Do, Process, Raised, Scene, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use std::time::Duration;
use windlass::jobs::AttemptOutcome;
use windlass::{DbConnection, Delivery, JobId, NewJob, Policy};

on_each_database!(
    a_stop_interrupts,
    a_stop_interrupts_under_a_supervisor,
    a_claim_is_lost_in_an_outage,
    a_claim_is_lost_in_an_outage_under_a_supervisor,
    a_cancellation_interrupts,
    a_cancellation_interrupts_under_a_supervisor,
    a_timeout_interrupts,
    a_timeout_interrupts_under_a_supervisor,
    what_was_not_raised_is_an_error,
    what_was_not_raised_is_an_error_under_a_supervisor,
    a_job_that_asks_in_a_pruned_process_is_fenced,
    a_job_may_end_before_the_timeout_of_the_stop,
);

crate::through_a_pooler!(
    a_stop_interrupts,
    a_stop_interrupts_under_a_supervisor,
    a_claim_is_lost_in_an_outage,
    a_claim_is_lost_in_an_outage_under_a_supervisor,
    a_cancellation_interrupts,
    a_cancellation_interrupts_under_a_supervisor,
    a_timeout_interrupts,
    a_timeout_interrupts_under_a_supervisor,
    what_was_not_raised_is_an_error,
    what_was_not_raised_is_an_error_under_a_supervisor,
    a_job_that_asks_in_a_pruned_process_is_fenced,
    a_job_may_end_before_the_timeout_of_the_stop,
);

const LONG: Duration = Duration::from_secs(3600);

/// One of four jobs that run at once until the gate `go` opens.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    asks: bool,
    once: bool,
}

const CASES: [Case; 4] = [
    Case::new("again-asks", true, false),
    Case::new("again-deaf", false, false),
    Case::new("once-asks", true, true),
    Case::new("once-deaf", false, true),
];

impl Case {
    const fn new(name: &'static str, asks: bool, once: bool) -> Self {
        Case { name, asks, once }
    }

    fn enqueue(self, scene: &Scene<'_>, policy: Policy) -> JobId {
        let gate = scene.gate("go");
        let what = if self.asks {
            Do::Ask(gate)
        } else {
            Do::WaitFor(gate)
        };
        enqueue(scene, &Work::new(self.name, what), self.once, policy)
    }
}

fn enqueue(scene: &Scene<'_>, work: &Work, once: bool, policy: Policy) -> JobId {
    let delivery = if once {
        Delivery::AtMostOnce
    } else {
        Delivery::AtLeastOnce
    };
    let job = NewJob::new(work).unwrap();
    job.policy(policy.delivery(delivery))
        .enqueue(&mut scene.db.connection())
        .unwrap()
        .id
}

/// A worker with a thread for each job, as a child of a supervisor or not.
fn start(scene: &Scene<'_>, supervised: bool, shutdown_ms: u64) -> Process {
    scene.worker_with(|role| {
        role.workers = supervised.then_some(1);
        role.threads = CASES.len();
        role.shutdown_ms = shutdown_ms;
    })
}

/// The four jobs, all of them running.
fn run(scene: &Scene<'_>, policy: &Policy) -> [(Case, JobId); 4] {
    let jobs = CASES.map(|case| (case, case.enqueue(scene, policy.clone())));
    for case in CASES {
        scene.started(case.name, 1);
    }
    jobs
}

/// Returns the state of a job: its place, `attempts/crashes`, and the outcomes and kinds of its attempts, the newest
/// first.
fn state(db: &TestDb, job: JobId) -> String {
    let executions = |table: &str| {
        let from = format!("FROM solid_queue_{table}_executions WHERE job_id = {job}");
        db.count(&format!("SELECT count(*) AS n {from}")) == 1
    };
    let of_job = |columns: &str| {
        let text =
            format!("SELECT CAST({columns} AS text) AS t FROM solid_queue_jobs WHERE id = {job}");
        db.texts(&text).remove(0)
    };
    let place = if of_job("CASE WHEN finished_at IS NULL THEN '' ELSE 'x' END") == "x" {
        "finished"
    } else if executions("failed") {
        "failed"
    } else if executions("claimed") {
        "claimed"
    } else if executions("ready") || executions("scheduled") {
        "waits"
    } else {
        "nowhere"
    };
    let counts = (of_job("attempts"), of_job("crash_count"));
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    let attempts: Vec<String> = attempts
        .iter()
        .map(|attempt| format!(" {:?} {}", attempt.outcome, attempt.kind))
        .collect();
    format!("{place} {}/{}{}", counts.0, counts.1, attempts.join(""))
}

/// Waits until a job is like this, which it stays.
fn becomes(db: &TestDb, (case, job): (Case, JobId), expected: &str) {
    // It is nowhere if it moves from one table to another while these are asked one by one.
    let settled = || {
        let state = state(db, job);
        state.starts_with("finished") || state.starts_with("failed")
    };
    if expected.starts_with("waits") {
        assert_eq!(state(db, job), expected, "{case:?}");
    } else {
        until(&format!("{case:?} has ended"), settled);
        assert_eq!(state(db, job), expected, "{case:?}");
    }
}

fn message(db: &TestDb, job: JobId) -> String {
    let mut attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    attempts.remove(0).message
}

const UNHARMED: &str = "finished 0/0";
/// Another run had been cut short before.
const UNHARMED_THEN: &str = "finished 0/0 Released cut_short";
const UNKNOWN: &str = "failed 1/0 Failed outcome_unknown";

/// A run that a stop has cut short is explained, and is part of the timeline.
fn is_told(db: &TestDb, job: JobId) {
    let details = windlass::jobs::reveal(&mut db.connection(), job).unwrap();
    let details = details.unwrap();
    let error = details.explanation.task.error.unwrap();
    assert!(error.starts_with("cut_short: "), "{error}");
    let cut = details.timeline.iter().map(|moment| &*moment.what);
    assert_eq!(cut.filter(|what| *what == "released: cut_short").count(), 1);
}

fn stop(db: &TestDb, supervised: bool) {
    let scene = Scene::new(db);
    let mut process = start(&scene, supervised, 300);
    let jobs = run(&scene, &Policy::new());
    process.signal(Signal::TERM);
    assert_eq!(process.exit().code(), Some(75), "{}", process.log());
    for (case, job) in jobs {
        let waits = "waits 0/0 Released cut_short";
        becomes(db, (case, job), if case.once { UNKNOWN } else { waits });
        if case.once {
            let says =
                "its process stopped while it ran; an at-most-once job is not run again by itself";
            assert_eq!(message(db, job), says, "{case:?}");
        } else {
            is_told(db, job);
        }
        if case.asks {
            assert_eq!(scene.count("stopping", case.name), 1, "{case:?}");
        }
    }
    assert_eq!(
        (db.rows("claimed_executions"), db.rows("processes")),
        (0, 0)
    );
    assert!(
        !process.log().contains("ERROR failed job 1 "),
        "{}",
        process.log()
    );
    scene.open("go");
    let _next = start(&scene, true, 20_000);
    for (case, job) in jobs.into_iter().filter(|(case, _)| !case.once) {
        becomes(db, (case, job), UNHARMED_THEN);
    }
    for case in CASES {
        let runs = if case.once { 1 } else { 2 };
        assert_eq!(scene.count("start", case.name), runs, "{case:?}");
    }
}

fn a_stop_interrupts(db: &TestDb) {
    stop(db, false);
}

fn a_stop_interrupts_under_a_supervisor(db: &TestDb) {
    stop(db, true);
}

/// A database that answers no process, for as long as this exists.
struct Outage(DbConnection);

impl Outage {
    fn new(db: &TestDb) -> Self {
        let mut conn = db.connect();
        if db.is_postgres() {
            db::execute(&mut conn, "BEGIN");
            db::execute(
                &mut conn,
                "SET LOCAL idle_in_transaction_session_timeout = 0",
            );
            db::execute(
                &mut conn,
                "LOCK TABLE solid_queue_processes IN ACCESS EXCLUSIVE MODE",
            );
        } else {
            db::execute(&mut conn, "BEGIN IMMEDIATE");
        }
        Outage(conn)
    }

    fn end(mut self) {
        db::execute(&mut self.0, "ROLLBACK");
    }
}

/// No heartbeat gets through for longer than a process trusts its claims, and
/// no supervisor can judge.
fn outage(db: &TestDb, supervised: bool) {
    let scene = Scene::with_deaths(db);
    let process = start(&scene, supervised, 20_000);
    let jobs = run(&scene, &Policy::new());
    let outage = Outage::new(db);
    for case in CASES.into_iter().filter(|case| case.asks) {
        until("the job is told that its claim is lost", || {
            scene.count("lost", case.name) == 1
        });
    }
    outage.end();
    scene.started("again-asks", 2);
    scene.open("go");
    for (case, job) in jobs {
        let unknown = case.once && case.asks;
        // A run for each claim that was lost, in the end another.
        let lost = if case.asks && !case.once {
            scene.count("lost", case.name)
        } else {
            0
        };
        let unharmed = format!("{UNHARMED}{}", " Released cut_short".repeat(lost));
        becomes(db, (case, job), if unknown { UNKNOWN } else { &unharmed });
        if unknown {
            let says = "its process could not rely on its claim any more while it ran; \
                        an at-most-once job is not run again by itself";
            assert_eq!(message(db, job), says);
        }
        // On a busy machine, heartbeats may be late once more. Each further run needs a lost claim.
        let runs = match case.asks && !case.once {
            true => 1 + scene.count("lost", case.name),
            false => 1,
        };
        assert_eq!(scene.count("start", case.name), runs, "{case:?}");
    }
    assert!(!process.log().contains("pruned"), "{}", process.log());
}

fn a_claim_is_lost_in_an_outage(db: &TestDb) {
    outage(db, false);
}

fn a_claim_is_lost_in_an_outage_under_a_supervisor(db: &TestDb) {
    outage(db, true);
}

fn cancellation(db: &TestDb, supervised: bool) {
    let scene = Scene::new(db);
    let _process = start(&scene, supervised, 20_000);
    let jobs = run(&scene, &Policy::new());
    let mut conn = db.connect();
    for (_, job) in jobs {
        windlass::jobs::cancel(&mut conn, job).unwrap();
    }
    for (case, job) in jobs.into_iter().filter(|(case, _)| case.asks) {
        becomes(db, (case, job), "finished 1/0 Cancelled cancelled");
    }
    scene.open("go");
    for (case, job) in jobs.into_iter().filter(|(case, _)| !case.asks) {
        becomes(db, (case, job), UNHARMED);
    }
    assert!(
        CASES
            .iter()
            .all(|case| scene.count("start", case.name) == 1)
    );
}

fn a_cancellation_interrupts(db: &TestDb) {
    cancellation(db, false);
}

fn a_cancellation_interrupts_under_a_supervisor(db: &TestDb) {
    cancellation(db, true);
}

fn timeout(db: &TestDb, supervised: bool) {
    let scene = Scene::new(db);
    let _process = start(&scene, supervised, 20_000);
    let policy = Policy::new()
        .timeout(Duration::from_millis(100))
        .timeout_grace(LONG);
    let jobs = run(&scene, &policy);
    for (case, job) in jobs.into_iter().filter(|(case, _)| case.asks) {
        becomes(db, (case, job), "failed 1/0 Failed timeout");
    }
    scene.open("go");
    for (case, job) in jobs.into_iter().filter(|(case, _)| !case.asks) {
        becomes(db, (case, job), UNHARMED);
    }
    assert!(
        CASES
            .iter()
            .all(|case| scene.count("start", case.name) == 1)
    );
}

fn a_timeout_interrupts(db: &TestDb) {
    timeout(db, false);
}

fn a_timeout_interrupts_under_a_supervisor(db: &TestDb) {
    timeout(db, true);
}

fn not_raised(db: &TestDb, supervised: bool) {
    let scene = Scene::new(db);
    let _process = start(&scene, supervised, 20_000);
    for raised in [
        Raised::Lost,
        Raised::Cancelled,
        Raised::TimedOut,
        Raised::Stopping,
    ] {
        let work = Work::new("a", Do::Return(raised));
        let ends = |once, attempts: u32| {
            let policy = stubborn(attempts).timeout(LONG);
            let job = enqueue(&scene, &work, once, policy);
            until("it has failed", || state(db, job).starts_with("failed"));
            let tried = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
            for attempt in &tried {
                assert_eq!(attempt.kind, "windlass::Interrupted");
                let says = "the job returned an interruption that was not raised for it: ";
                assert!(attempt.message.starts_with(says), "{attempt:?}");
            }
            tried
                .iter()
                .map(|attempt| attempt.outcome)
                .collect::<Vec<_>>()
        };
        let [failed, retried] = [AttemptOutcome::Failed, AttemptOutcome::Retried];
        assert_eq!(ends(false, 2), [failed, retried], "{raised:?}");
        assert_eq!(ends(true, 1), [failed], "{raised:?}");
    }
}

fn what_was_not_raised_is_an_error(db: &TestDb) {
    not_raised(db, false);
}

fn what_was_not_raised_is_an_error_under_a_supervisor(db: &TestDb) {
    not_raised(db, true);
}

/// The job runs elsewhere by then, under another claim.
fn a_job_that_asks_in_a_pruned_process_is_fenced(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let frozen = scene.worker();
    let job = CASES[0].enqueue(&scene, Policy::new());
    scene.started("again-asks", 1);
    frozen.freeze(db);
    let _others = scene.supervisor(1);
    scene.started("again-asks", 2);
    frozen.signal(Signal::CONT);
    frozen.logs("fenced: job");
    assert_eq!(scene.count("lost", "again-asks"), 1);
    assert_eq!(state(db, job), "claimed 0/1 Crashed crashed");
    scene.open("go");
    becomes(db, (CASES[0], job), "finished 0/0 Crashed crashed");
    assert_eq!(scene.count("start", "again-asks"), 2);
}

/// One that sees that its process stops may say so by itself.
fn a_job_may_end_before_the_timeout_of_the_stop(db: &TestDb) {
    let scene = Scene::new(db);
    let mut process = start(&scene, false, 600_000);
    let work = |name| Work::new(name, Do::ReturnOnceStopping);
    let again = enqueue(&scene, &work("again"), false, Policy::new());
    let once = enqueue(&scene, &work("once"), true, Policy::new());
    scene.started("again", 1);
    scene.started("once", 1);
    process.signal(Signal::TERM);
    assert_eq!(process.exit().code(), Some(75));
    assert_eq!(state(db, again), "waits 0/0 Released cut_short");
    assert_eq!(db.rows("ready_executions"), 1, "at once, not in a while");
    assert_eq!(state(db, once), UNKNOWN);
}

/// The supervisor has given up before the database is there again.
#[cfg(feature = "postgres")]
#[test]
fn what_a_stop_in_an_outage_leaves_behind_is_said() {
    use crate::support::proxy::Proxy;
    let db = TestDb::postgres();
    let mut proxy = Proxy::opened(&db.url);
    let scene = Scene::new(&db);
    let mut supervisor = scene.worker_with(|role| {
        role.url = proxy.url(&db.url);
        role.workers = Some(1);
        role.shutdown_ms = 1_000;
    });
    CASES[1].enqueue(&scene, Policy::new());
    let child = scene.started("again-deaf", 1).pid;
    proxy.close();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(75));
    let log = supervisor.log();
    let said = format!("the child {child}, which ");
    assert!(
        log.contains(&said) && log.contains("may have left jobs behind"),
        "{log}"
    );
    assert_eq!(db.rows("claimed_executions"), 1);
}

/// Neither the child can say that it drains, nor its supervisor give back what
/// it held, before the database is there again.
#[cfg(feature = "postgres")]
#[test]
fn a_stop_in_an_outage_blames_no_job() {
    use crate::support::process::signal_if_there;
    use crate::support::proxy::Proxy;
    let db = TestDb::postgres();
    let mut proxy = Proxy::opened(&db.url);
    let scene = Scene::new(&db);
    let mut supervisor = scene.worker_with(|role| {
        role.url = proxy.url(&db.url);
        role.workers = Some(1);
    });
    let job = CASES[1].enqueue(&scene, Policy::new());
    let child = scene.started("again-deaf", 1).pid;
    proxy.close();
    supervisor.signal(Signal::TERM);
    // The second counts from two seconds on: repeat it until it does.
    until("the child exits", || {
        let has_exited = supervisor.log().contains("exited with code 75");
        signal_if_there(child, Signal::TERM);
        has_exited
    });
    proxy.open();
    assert_eq!(supervisor.exit().code(), Some(75));
    assert_eq!(state(&db, job), "waits 0/0 Released cut_short");
    // The row of the dispatcher, which ended while the database was away, is pruned by the next supervisor.
    let workers = "SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Worker'";
    assert_eq!((db.rows("claimed_executions"), db.count(workers)), (0, 0));
}
