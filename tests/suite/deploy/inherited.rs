//! A program that a job starts inherits what the supervisor told the worker.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use windlass::Job as _;

on_each_database!(a_worker_that_a_job_starts_is_no_child);

/// The workers by name, with their processes.
fn workers(db: &TestDb) -> Vec<(String, i32)> {
    let query = "SELECT name || ' ' || CAST(pid AS text) AS t FROM solid_queue_processes \
         WHERE kind = 'Worker' ORDER BY id";
    let split = |text: String| {
        let (name, pid) = text.split_once(' ').unwrap();
        (name.to_owned(), pid.parse().unwrap())
    };
    db.texts(query).into_iter().map(split).collect()
}

fn a_worker_that_a_job_starts_is_no_child(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let mut supervisor = scene.supervisor(1);
    let start = Work::new("start", Do::StartAnother);
    start.enqueue(&mut db.connection()).unwrap();
    until("both are registered", || workers(db).len() == 2);
    let [(child, child_pid), (other, other_pid)] = &workers(db)[..] else {
        panic!("two workers")
    };
    signal(*child_pid, Signal::KILL);
    until("the child is replaced", || {
        let now = workers(db);
        now.len() == 2 && now.iter().all(|(name, _)| name != child)
    });
    assert!(workers(db).iter().any(|(name, _)| name == other));
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
    assert_eq!(workers(db), [(other.clone(), *other_pid)]);
    signal(*other_pid, Signal::TERM);
    until("it has gone", || workers(db).is_empty());
}
