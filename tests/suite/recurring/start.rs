//! Tasks that are due when a deployment starts.

use super::{scheduler, stamp, ticks};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use crate::support::wait::until;
use chrono::{TimeDelta, Utc};
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::{Error, Handle, RecurringTask, Scheduler, recurring};

on_each_database!(
    a_deployment_starts_once,
    schedulers_that_start_together_fire_it_once,
    without_a_name_the_definition_counts,
    a_revision_names_a_deployment,
    an_older_revision_starts_nothing,
    a_start_outside_of_the_window_has_no_tick,
    a_start_is_not_missed,
    only_declared_tasks_have_starts,
);

fn start_task() -> RecurringTask {
    stamp("warm_up", "@start")
}

/// Starts a scheduler and waits until it has fired what was due at its start: its tasks are declared
/// in order, and a start that was fired leaves no next tick.
fn run(db: &TestDb, scheduler: Scheduler, task: RecurringTask) -> Handle {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let last = format!("last/{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let scheduler = scheduler.task(task).task(stamp(&last, "@yearly"));
    let handle = scheduler.start().unwrap();
    until("its start was fired", || {
        let tasks = recurring::list(&mut db.connection()).unwrap();
        let of = |key: &str| tasks.iter().find(|task| task.key == key);
        of(&last).is_some() && of("warm_up").is_some_and(|task| task.next_run_at.is_none())
    });
    handle
}

fn starts(db: &TestDb) -> usize {
    ticks(db, "warm_up").len()
}

fn a_deployment_starts_once(db: &TestDb) {
    let deploy = |name: &str| run(db, scheduler(db).deployment(name), start_task());
    let old = deploy("one");
    assert_eq!(starts(db), 1);
    let tick = recurring::history(&mut db.connection(), "warm_up", 1).unwrap()[0].0;
    assert!((Utc::now() - tick).abs() < TimeDelta::minutes(5));
    let _same = deploy("one");
    assert_eq!(starts(db), 1);
    let _new = deploy("two");
    assert_eq!(starts(db), 2);
    // A node of the old deployment that comes back.
    drop(old);
    let _old = deploy("one");
    let _new = deploy("two");
    assert_eq!(starts(db), 2);
    let said = windlass(&db.url, &["recurring", "next", "warm_up"]).out;
    assert!(
        said.contains("it is due when a new deployment starts"),
        "{said}"
    );
}

fn schedulers_that_start_together_fire_it_once(db: &TestDb) {
    let handles: Vec<Handle> = std::thread::scope(|scope| {
        let start = || run(db, scheduler(db).deployment("one"), start_task());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(starts(db), 1);
    drop(handles);
}

fn without_a_name_the_definition_counts(db: &TestDb) {
    drop(run(db, scheduler(db), start_task()));
    drop(run(db, scheduler(db), start_task().queue("other")));
    assert_eq!(starts(db), 1);
    let other = RecurringTask::of_class("warm_up", "@start", "stamp", r#"{"text":"other"}"#);
    drop(run(db, scheduler(db), other.unwrap()));
    assert_eq!(starts(db), 2);
    drop(run(db, scheduler(db), start_task()));
    assert_eq!(starts(db), 2);
}

fn a_revision_names_a_deployment(db: &TestDb) {
    for (revision, count) in [(1, 1), (1, 1), (2, 2)] {
        drop(run(db, scheduler(db).revision(revision), start_task()));
        assert_eq!(starts(db), count);
    }
    let long = scheduler(db).deployment("x".repeat(256)).task(start_task());
    assert!(long.start().is_err());
}

fn an_older_revision_starts_nothing(db: &TestDb) {
    let deploy = |revision, name: &str| {
        drop(run(
            db,
            scheduler(db).revision(revision).deployment(name),
            start_task(),
        ));
    };
    deploy(2, "two");
    deploy(1, "one");
    assert_eq!(starts(db), 1);
}

fn a_start_outside_of_the_window_has_no_tick(db: &TestDb) {
    let deploy =
        |name: &str, task: RecurringTask| drop(run(db, scheduler(db).deployment(name), task));
    let (before, after) = (
        Utc::now() - TimeDelta::hours(9),
        Utc::now() + TimeDelta::hours(9),
    );
    deploy("one", start_task().from(after));
    deploy("two", start_task().until(before));
    assert_eq!(starts(db), 0);
    deploy("one", start_task());
    assert_eq!(starts(db), 0, "it has started before");
    deploy("three", start_task().from(before).until(after));
    assert_eq!(starts(db), 1);
}

/// Even if the first scheduler died before it could fire it.
fn a_start_is_not_missed(db: &TestDb) {
    let deploy = || {
        let task = start_task().missed(recurring::MissedTicks::Skip);
        drop(run(db, scheduler(db).deployment("one"), task));
    };
    deploy();
    assert_eq!(starts(db), 1);
    super::rewind(db, "warm_up", 100_000);
    deploy();
    assert_eq!(starts(db), 2);
}

fn only_declared_tasks_have_starts(db: &TestDb) {
    let error = recurring::schedule(&mut db.connection(), &start_task()).unwrap_err();
    assert!(matches!(error, Error::RecurringTask { .. }), "{error}");
    assert!(error.to_string().contains("`@start`"), "{error}");
}
