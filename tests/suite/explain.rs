//! Why a job is not running, or what it does.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{self, Explanation, JobKey, Obstacle, Reason, TaskStatus};
use windlass::{Dispatcher, JobId, NewJob, OnConflict, Policy, Registry, Worker};

fn note() -> NewJob {
    NewJob::new(&Note::new("x")).unwrap().queue("mail")
}

fn enqueue(db: &TestDb, job: NewJob) -> JobId {
    job.enqueue(&mut db.connection()).unwrap().id
}

fn why(db: &TestDb, job: impl Into<JobKey>) -> Explanation {
    jobs::explain(&mut db.connection(), job).unwrap().unwrap()
}

fn ready(db: &TestDb, job: JobId) -> (u32, Vec<Obstacle>) {
    match why(db, job).reason {
        Reason::Ready { ahead, obstacles } => (ahead, obstacles),
        other => panic!("{other:?}"),
    }
}

/// A worker with one thread, whose jobs wait at a gate.
fn worker(db: &TestDb, queue: &str) -> (Worker, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry)
        .queues([queue])
        .unwrap()
        .threads(1)
        .heartbeat_interval(Duration::from_millis(50));
    (worker, gate)
}

fn others_come_first(db: &TestDb) {
    let first = enqueue(db, note());
    let second = enqueue(db, note());
    let important = enqueue(db, note().priority(-1));
    let elsewhere = enqueue(db, note().queue("sms").priority(-2));
    for (job, before) in [(first, 1), (second, 2), (important, 0), (elsewhere, 0)] {
        assert_eq!(ready(db, job), (before, vec![Obstacle::NoWorkerForQueue]));
    }
    let explanation = why(db, second);
    assert_eq!(explanation.queue_name.as_deref(), Some("mail"));
    assert_eq!(explanation.priority, Some(0));
    assert!(!explanation.is_on_its_way());
}

fn a_queue_may_be_paused_and_a_class_unknown(db: &TestDb) {
    let note = enqueue(db, note());
    db.execute(
        "INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('mail', '2026-01-02 03:04:05.000000')",
    );
    let (worker, _gate) = worker(db, "mai*");
    let _worker = worker.start().unwrap();
    until("the worker is there", || db.rows("processes") == 1);
    let (_, obstacles) = ready(db, note);
    let [Obstacle::QueuePaused { since }, Obstacle::NoWorkerForClass] = obstacles.as_slice() else {
        panic!("{obstacles:?}");
    };
    assert_eq!(since.to_rfc3339(), "2026-01-02T03:04:05+00:00");
}

fn a_running_job_is_where_it_runs(db: &TestDb) {
    let (worker, gate) = worker(db, "mail");
    let _worker = worker.start().unwrap();
    let wait = || NewJob::new(&Wait).unwrap().queue("mail").unique_id("w");
    let job = enqueue(db, wait());
    until("it runs", || gate.begun() == 1);
    let Reason::Claimed {
        process_name,
        pid,
        since,
        heartbeat_seconds,
        cancel_requested_at,
        ..
    } = why(db, "w").reason
    else {
        panic!("it runs");
    };
    assert!(process_name.unwrap().starts_with("worker-"));
    assert_eq!(pid, i32::try_from(std::process::id()).ok());
    assert!(since.is_some() && heartbeat_seconds.is_some());
    assert_eq!(cancel_requested_at, None);
    // The one thread has work, and the next of its unique id waits for it.
    let busy = enqueue(db, NewJob::new(&Wait).unwrap().queue("mail"));
    assert_eq!(
        ready(db, busy),
        (0, vec![Obstacle::ThreadsBusy { threads: 1 }])
    );
    assert!(why(db, busy).is_on_its_way());
    let again = wait().policy(Policy::new().on_conflict(OnConflict::RunAgain));
    let again = enqueue(db, again);
    let blocked = why(db, again);
    assert_eq!(
        blocked.reason,
        Reason::Blocked {
            by: Some(job),
            key: "w".to_owned()
        }
    );
    gate.open();
    until("it has ended", || why(db, job).reason == Reason::Ended);
    assert_eq!(why(db, job).task.status, TaskStatus::Succeeded);
}

fn a_scheduled_job_waits_for_its_time(db: &TestDb) {
    let job = enqueue(db, note().after(Duration::from_secs(3600)));
    let scheduled = |db: &TestDb| match why(db, job).reason {
        Reason::Scheduled {
            overdue_seconds,
            obstacles,
            ..
        } => (overdue_seconds, obstacles),
        other => panic!("{other:?}"),
    };
    let (overdue, obstacles) = scheduled(db);
    assert!((-3600.0..-3000.0).contains(&overdue), "{overdue}");
    assert_eq!(
        obstacles,
        [Obstacle::NoDispatcher, Obstacle::NoWorkerForQueue]
    );
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the dispatcher is there", || {
        scheduled(db).1 == [Obstacle::NoWorkerForQueue]
    });
}

fn what_has_ended_says_how(db: &TestDb) {
    let cancelled = enqueue(db, note());
    jobs::cancel(&mut db.connection(), cancelled).unwrap();
    let explanation = why(db, cancelled);
    assert_eq!(explanation.reason, Reason::Ended);
    assert_eq!(explanation.task.status, TaskStatus::Cancelled);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(log);
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let kept = Policy::new().keep_result(Duration::from_secs(60));
    let bad = NewJob::of_class("note", "\"nonsense\"").policy(kept);
    let failed = enqueue(db, bad);
    until("it has failed", || db.rows("failed_executions") == 1);
    let explanation = why(db, failed);
    assert_eq!(explanation.task.status, TaskStatus::Failed);
    assert!(
        explanation
            .task
            .error
            .unwrap()
            .starts_with("undecodable_arguments: ")
    );
    // All that is left of it is how it ended.
    db.execute("DELETE FROM solid_queue_jobs");
    let explanation = why(db, failed);
    assert_eq!(
        (explanation.reason, explanation.queue_name),
        (Reason::Ended, None)
    );
    assert!(
        jobs::explain(&mut db.connection(), JobId(4711))
            .unwrap()
            .is_none()
    );
    assert!(
        jobs::explain(&mut db.connection(), "nobody")
            .unwrap()
            .is_none()
    );
}

fn an_execution_that_is_gone_is_noticed(db: &TestDb) {
    let job = enqueue(db, note());
    db.execute("DELETE FROM solid_queue_ready_executions");
    assert_eq!(why(db, job).reason, Reason::Adrift);
}

on_each_database!(
    others_come_first,
    a_queue_may_be_paused_and_a_class_unknown,
    a_running_job_is_where_it_runs,
    a_scheduled_job_waits_for_its_time,
    what_has_ended_says_how,
    an_execution_that_is_gone_is_noticed,
    the_last_day_of_the_calendar_is_a_time,
);

crate::through_a_pooler_in_all!(
    others_come_first,
    a_queue_may_be_paused_and_a_class_unknown,
    a_running_job_is_where_it_runs,
    a_scheduled_job_waits_for_its_time,
    what_has_ended_says_how,
    an_execution_that_is_gone_is_noticed,
    the_last_day_of_the_calendar_is_a_time,
);

/// The latest time that an enqueue accepts.
fn the_last_day_of_the_calendar_is_a_time(db: &TestDb) {
    let last: chrono::DateTime<chrono::Utc> = "9999-12-31T23:59:59Z".parse().unwrap();
    let job = enqueue(db, note().at(last));
    let Reason::Scheduled { at, .. } = why(db, job).reason else {
        panic!("{:?}", why(db, job).reason);
    };
    assert_eq!(at, last);
    let listed = jobs::Jobs::unfinished().list(&mut db.connection()).unwrap();
    assert_eq!(listed[0].at, last);
}
