//! The reports of a handle about its process.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Wait};
use crate::support::process::{HEARTBEAT, THRESHOLD};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::processes::HealthCheck;
use windlass::{Database, Dispatcher, Event, Handle, Job, Registry, Scheduler, Supervisor, Worker};

on_each_database!(
    a_worker_is_ready_while_it_may_claim,
    a_job_that_takes_long_changes_nothing,
    a_late_queue_changes_nothing,
    a_supervisor_answers_for_what_it_runs,
    a_panic_ends_the_life_of_a_process,
    a_loop_that_has_no_children_to_run_is_ready,
);

/// Waits until the process is ready, or is not because of this.
fn is(handle: &Handle, problem: Option<&str>) {
    let health = handle.health();
    until(&format!("{problem:?} is the problem"), || {
        let problems = health.problems(HealthCheck::Ready);
        match problem {
            None => problems.is_empty(),
            Some(text) => problems.iter().any(|problem| problem.contains(text)),
        }
    });
    assert_eq!(health.is_ready(), problem.is_none());
}

fn worker(database: &Database, gate: &Arc<Gate>) -> Worker {
    Worker::new(database, Registry::new().register::<Wait>(gate.clone()))
        .threads(1)
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
}

fn a_worker_is_ready_while_it_may_claim(db: &TestDb) {
    let mut worker = worker(&db.database, &Arc::default()).start().unwrap();
    let health = worker.health();
    assert_eq!(health.kind(), "worker");
    is(&worker, None);
    assert!(health.is_live() && health.is_started());
    worker.quiet();
    is(&worker, Some("worker: it is quiet"));
    assert!(health.is_live() && health.is_started());
    worker.resume();
    is(&worker, None);
    worker.stop();
    let stops = health.problems(HealthCheck::Ready);
    assert_eq!(stops.len(), 1, "{stops:?}");
    worker.join(DEADLINE).unwrap();
    assert_eq!(
        health.problems(HealthCheck::Ready),
        ["worker: it has ended"]
    );
    assert!(health.is_live(), "its end was requested");
    assert!(health.is_started());
}

fn a_job_that_takes_long_changes_nothing(db: &TestDb) {
    let gate = Arc::new(Gate::default());
    let worker = worker(&db.database, &gate).start().unwrap();
    Wait.enqueue(&mut db.connection()).unwrap();
    until("it runs", || gate.begun() == 1);
    is(&worker, None);
    assert!(worker.health().is_live());
    gate.open();
}

/// No worker takes the jobs, and they have waited for a day.
fn a_late_queue_changes_nothing(db: &TestDb) {
    Wait.enqueue(&mut db.connection()).unwrap();
    let yesterday = match db.is_postgres() {
        true => "now() at time zone 'utc' - interval '1 day'",
        false => "strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day')",
    };
    db.execute(&format!(
        "UPDATE solid_queue_ready_executions SET created_at = {yesterday}"
    ));
    let worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    is(&worker, None);
    assert!(worker.health().is_live());
}

fn a_supervisor_answers_for_what_it_runs(db: &TestDb) {
    let supervisor = Supervisor::new(&db.database)
        .dispatcher(Dispatcher::new(&db.database).heartbeat_interval(HEARTBEAT))
        .scheduler(Scheduler::new(&db.database).heartbeat_interval(HEARTBEAT))
        .worker(worker(&db.database, &Arc::default()))
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
        .start()
        .unwrap();
    is(&supervisor, None);
    supervisor.quiet();
    is(&supervisor, Some("worker: it is quiet"));
    let problems = supervisor.health().problems(HealthCheck::Ready);
    let nothing_of = |kind: &str| !problems.iter().any(|problem| problem.starts_with(kind));
    assert!(nothing_of("dispatcher") && nothing_of("scheduler"));
    supervisor.resume();
    is(&supervisor, None);
    assert!(supervisor.health().is_live() && supervisor.health().is_started());
}

fn a_panic_ends_the_life_of_a_process(db: &TestDb) {
    let panics = Subscriber::new(|event: &Event<'_>| {
        assert!(!matches!(event, Event::Registered { .. }), "on purpose");
    });
    let worker = worker(&db.database, &Arc::default()).subscriber(panics);
    let worker = worker.start().unwrap();
    let health = worker.health();
    until("it is not alive", || !health.is_live());
    assert!(!health.is_ready());
    drop(worker);
    assert!(!health.is_live(), "a restart of the program would help");
}

fn a_loop_that_has_no_children_to_run_is_ready(db: &TestDb) {
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let supervisor = Supervisor::new(&db.database).start().unwrap();
    is(&dispatcher, None);
    is(&supervisor, None);
}

#[cfg(feature = "postgres")]
mod away {
    use super::*;
    use crate::support::proxy::{Proxy, Swallow};

    fn through(proxy: &Proxy, db: &TestDb) -> Database {
        let database = Database::open(&proxy.url(&db.url)).unwrap();
        database.with_statement_limit(Duration::from_secs(2))
    }

    #[test]
    fn a_database_that_is_away_is_no_reason_for_a_restart() {
        let db = TestDb::postgres();
        let mut proxy = Proxy::closed(&db.url);
        let worker = worker(&through(&proxy, &db), &Arc::default());
        let worker = worker.start().unwrap();
        let health = worker.health();
        is(&worker, Some("its heartbeats have failed for"));
        assert!(health.is_live() && !health.is_started());
        let problems = health.problems(HealthCheck::Started);
        assert_eq!(
            problems,
            ["worker: it has not been registered in the database yet"]
        );
        proxy.open();
        is(&worker, None);
        assert!(health.is_live() && health.is_started());
        proxy.close();
        is(&worker, Some("its heartbeats have failed for"));
        assert!(health.is_live() && health.is_started());
        proxy.open();
        is(&worker, None);
    }

    #[test]
    fn neither_is_one_that_gives_no_answer() {
        let db = TestDb::postgres();
        let proxy = Proxy::opened(&db.url);
        let worker = worker(&through(&proxy, &db), &Arc::default());
        let worker = worker.start().unwrap();
        is(&worker, None);
        proxy.swallow(Swallow::Everything);
        until("it is not ready", || !worker.health().is_ready());
        assert!(worker.health().is_live() && worker.health().is_started());
        proxy.pass();
        is(&worker, None);
    }
}
