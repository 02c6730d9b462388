//! Schedules that a program computes itself.

use super::{assert_each_second, schedule, scheduler, stamp, ticks, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::program::windlass;
use crate::support::wait::until;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::RecurringTask;
use windlass::recurring::{self, Timing};
use windlass_console::Config;

on_each_database!(
    the_ticks_of_a_timing_are_fired_once,
    a_program_without_the_timing_leaves_its_task,
    a_timing_that_fails_stops_nothing_else,
    a_timing_that_fails_later_stops_nothing_else,
    what_was_missed_is_computed_from_tick_to_tick,
    a_timing_may_end,
    a_scheduler_that_lacks_a_timing_does_not_start,
);

/// Every full second.
struct Seconds;

impl Timing for Seconds {
    fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        Some(time.trunc_subsecs(0) + TimeDelta::seconds(1))
    }
}

fn timed(key: &str, timing: impl Timing + 'static) -> RecurringTask {
    stamp(key, &format!("@timing {key}")).timing(Arc::new(timing))
}

fn the_ticks_of_a_timing_are_fired_once(db: &TestDb) {
    let start = || scheduler(db).task(timed("a", Seconds)).start().unwrap();
    let (_one, _other) = (start(), start());
    until_ticked(db, "a", 4);
    assert_each_second(&ticks(db, "a"));
    assert_eq!(db.rows("ready_executions"), db.rows("recurring_executions"));
}

fn a_program_without_the_timing_leaves_its_task(db: &TestDb) {
    schedule(db, &timed("a", Seconds));
    schedule(db, &stamp("b", "every 1s"));
    let events = Events::default();
    let without = scheduler(db)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until_ticked(db, "b", 2);
    until("it is reported", || !events.of("TaskRefused").is_empty());
    let seen = ticks(db, "b").len();
    until_ticked(db, "b", seen + 2);
    assert_eq!(ticks(db, "a").len(), 0);
    let refused = events.of("TaskRefused");
    assert_eq!(refused.len(), 1, "once");
    assert!(
        refused[0].contains("this program has no timing of this name"),
        "{refused:?}"
    );
    drop(without);
    let said = windlass(&db.url, &["recurring", "next", "a"]);
    assert!(said.is_done(), "{said:?}");
    let _with = scheduler(db)
        .timing("a", Arc::new(Seconds))
        .start()
        .unwrap();
    until_ticked(db, "a", 2);
}

fn a_timing_that_fails_stops_nothing_else(db: &TestDb) {
    let events = Events::default();
    let _scheduler = scheduler(db)
        .subscriber(events.subscriber())
        .task(timed("back", Some))
        .task(timed("panics", |_| panic!("no calendar")))
        .task(stamp("b", "every 1s"))
        .start()
        .unwrap();
    until_ticked(db, "b", 2);
    let refused = events.of("TaskRefused");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("which is not after"), "{refused:?}");
    assert!(
        refused[1].contains("its timing `panics` panicked"),
        "{refused:?}"
    );
    let tasks = recurring::list(&mut db.connection()).unwrap();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
}

/// After its second tick.
fn a_timing_that_fails_later_stops_nothing_else(db: &TestDb) {
    let calls = AtomicUsize::new(0);
    let fails = move |time: DateTime<Utc>| match calls.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Seconds.next_after(time),
        _ => panic!("no more"),
    };
    let events = Events::default();
    let _scheduler = scheduler(db)
        .subscriber(events.subscriber())
        .task(timed("a", fails))
        .task(stamp("b", "every 1s"))
        .start()
        .unwrap();
    until("it is reported", || !events.of("TaskRefused").is_empty());
    until_ticked(db, "b", ticks(db, "b").len() + 2);
    assert_eq!(events.of("TaskRefused").len(), 1);
    assert!(ticks(db, "a").len() < 2);
}

/// Each tick comes from the one before, so that the times do not depend on who looks when.
fn what_was_missed_is_computed_from_tick_to_tick(db: &TestDb) {
    let later = |time: DateTime<Utc>| Some(time + TimeDelta::seconds(1009));
    schedule(db, &timed("a", later));
    super::rewind(db, "a", 500_000);
    let first = recurring::list(&mut db.connection()).unwrap()[0]
        .next_run_at
        .unwrap();
    let _scheduler = scheduler(db).timing("a", Arc::new(later)).start().unwrap();
    until_ticked(db, "a", 1);
    let tick = recurring::history(&mut db.connection(), "a", 1).unwrap()[0].0;
    assert_eq!((tick - first).num_milliseconds() % 1_009_000, 0);
    assert!(tick - first > TimeDelta::seconds(490_000), "the latest");
    let next = recurring::list(&mut db.connection()).unwrap()[0].next_run_at;
    assert_eq!(next, Some(tick + TimeDelta::seconds(1009)));
}

fn a_timing_may_end(db: &TestDb) {
    let task = timed("a", |_| None);
    schedule(db, &task);
    assert_eq!(
        recurring::list(&mut db.connection()).unwrap()[0].next_run_at,
        None
    );
    assert!(
        recurring::upcoming(&mut db.connection(), "a", 5)
            .unwrap()
            .is_empty()
    );
}

fn a_scheduler_that_lacks_a_timing_does_not_start(db: &TestDb) {
    let task = stamp("a", "@timing tides");
    let error = scheduler(db)
        .task(task.clone())
        .start()
        .unwrap_err()
        .to_string();
    assert!(error.contains("`@timing tides`"), "{error}");
    let error = recurring::schedule(&mut db.connection(), &task)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this program has no timing of this name"),
        "{error}"
    );
    let two = scheduler(db).timing("a", Arc::new(Seconds));
    let error = two
        .timing("a", Arc::new(Seconds))
        .start()
        .unwrap_err()
        .to_string();
    assert_eq!(error, "two timings have the name `a`");
    let text = "[recurring.a]\nclass = 'stamp'\nschedule = '@timing seconds'\n";
    let config = Config::parse(text)
        .unwrap()
        .timing("seconds", Arc::new(Seconds));
    let _scheduler = config.scheduler(&db.database).start().unwrap();
    until_ticked(db, "a", 1);
    assert!(RecurringTask::of_class("a", "@timing", "a", "{}").is_err());
}
