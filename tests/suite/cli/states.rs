//! The states of jobs that have ended, and the number of their runs, as people see them.

use crate::on_each_database;
use crate::policies::{Bench, Turn, enqueue, executions, finished};
use crate::support::TestDb;
use crate::support::process::{Do, Once, Scene, Work, signal};
use crate::support::program::windlass;
use crate::support::wait::until;
use rustix::process::Signal;
use serde_json::Value;
use windlass::{Job, JobId, Policy};

on_each_database!(
    cancelled_and_discarded_are_states,
    a_run_counts_however_it_ends,
    runs_that_a_death_ended_count,
    a_killed_at_most_once_job_has_run_once,
);

/// The jobs that `jobs list` shows of a state, by id, with their attempts.
fn listed(db: &TestDb, state: &str) -> Vec<(i64, i64)> {
    let said = windlass(&db.url, &["jobs", "list", "--json", "--state", state]).json();
    let jobs = said["jobs"].as_array().unwrap();
    let number = |job: &Value, name: &str| job[name].as_i64().unwrap();
    let row = |job: &Value| {
        assert_eq!(job["state"], *state, "{job}");
        (number(job, "job_id"), number(job, "attempts"))
    };
    jobs.iter().map(row).collect()
}

fn explained(db: &TestDb, job: JobId) -> (Value, String) {
    let id = job.to_string();
    let json = windlass(&db.url, &["explain", &id, "--json"]).json();
    (
        json["task"]["attempt"].clone(),
        windlass(&db.url, &["explain", &id]).out,
    )
}

fn cancelled_and_discarded_are_states(db: &TestDb) {
    let cancelled = enqueue(db, "a", [Turn::Succeed], Policy::new());
    let said = windlass(&db.url, &["jobs", "cancel", &cancelled.to_string()]);
    assert!(said.is_done(), "{said:?}");
    let _bench = Bench::start(db);
    let discarded = enqueue(db, "b", [Turn::Discard], Policy::new());
    let succeeded = enqueue(db, "c", [Turn::Succeed], Policy::new());
    until("they have ended", || finished(db) == 3);
    assert_eq!(listed(db, "cancelled"), [(cancelled.0, 0)]);
    assert_eq!(listed(db, "discarded"), [(discarded.0, 1)]);
    assert_eq!(listed(db, "finished"), [(succeeded.0, 1)]);
    let said = windlass(&db.url, &["jobs", "list", "--state", "discarded"]);
    assert!(said.out.contains(": no need"), "{}", said.out);
    let (attempt, text) = explained(db, cancelled);
    assert_eq!(attempt, 0);
    assert!(text.contains("It was cancelled at "), "{text}");
    assert!(text.contains(", and never ran"), "{text}");
    let (attempt, text) = explained(db, discarded);
    assert_eq!(attempt, 1);
    assert!(text.contains("It was discarded at "), "{text}");
}

fn a_run_counts_however_it_ends(db: &TestDb) {
    let bench = Bench::start(db);
    let succeeded = enqueue(db, "a", [Turn::Succeed], Policy::new());
    let second = [Turn::Err("no".to_owned()), Turn::Succeed];
    let retried = enqueue(db, "b", second, crate::policies::stubborn(3));
    let failed = enqueue(db, "c", [Turn::Fail], Policy::new());
    until("three have ended", || {
        finished(db) == 2 && executions(db, "failed") == 1
    });
    assert_eq!(listed(db, "finished"), [(retried.0, 2), (succeeded.0, 1)]);
    assert_eq!(listed(db, "failed"), [(failed.0, 1)]);
    let running = enqueue(db, "d", [Turn::UntilCancelled], Policy::new());
    until("it runs", || bench.log.len() == 5);
    assert_eq!(listed(db, "claimed"), [(running.0, 1)]);
    windlass(&db.url, &["jobs", "cancel", &running.to_string()]);
    until("it has ended", || finished(db) == 3);
    assert_eq!(listed(db, "cancelled"), [(running.0, 1)]);
}

fn runs_that_a_death_ended_count(db: &TestDb) {
    let scene = Scene::new(db);
    let supervisor = scene.supervisor(1);
    let mut conn = db.connect();
    let work = Work::new("a", Do::WaitFor(scene.gate("a")));
    let survivor = work.enqueue(&mut conn).unwrap().id;
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    scene.started("a", 2);
    scene.open("a");
    scene.drained();
    assert_eq!(listed(db, "finished"), [(survivor.0, 2)]);
    assert_eq!(explained(db, survivor).0, 2);
    let policy = Policy::new().max_crashes(0).max_attempts(3);
    let killer = Work::new("b", Do::Abort);
    let killer = windlass::NewJob::new(&killer).unwrap().policy(policy);
    let killer = killer.enqueue(&mut conn).unwrap().id;
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(listed(db, "failed"), [(killer.0, 1)]);
    let (attempt, text) = explained(db, killer);
    assert_eq!(attempt, 1);
    assert!(text.contains(", with attempt 1"), "{text}");
    let why = "It may have 3 attempts, but is not tried again by itself: its process has died too often while it ran.";
    assert!(text.contains(why), "{text}");
    drop(supervisor);
}

fn a_killed_at_most_once_job_has_run_once(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let work = Once(Work::new("a", Do::WaitFor(scene.gate("never"))));
    let job = work.enqueue(&mut db.connection()).unwrap().id;
    let first = scene.started("a", 1);
    signal(first.pid, Signal::KILL);
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(listed(db, "failed"), [(job.0, 1)]);
    assert_eq!(explained(db, job).0, 1);
}
