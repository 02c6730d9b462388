//! The time within which a task has ticks.

use super::{rewind, schedule, scheduler, stamp, ticks, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use std::time::Duration;
use windlass::RecurringTask;
use windlass::recurring::{self, MissedTicks};
use windlass_console::Config;

on_each_database!(
    a_task_is_not_due_before_its_window,
    a_task_is_not_due_after_its_window,
    what_was_missed_within_the_window_is_made_up_for,
    only_the_latest_tick_within_the_window_is_made_up_for,
    a_window_that_is_moved_starts_anew,
    an_impossible_window_is_refused,
);

/// The last full hour, so many hours ago.
fn hours_ago(hours: i64) -> DateTime<Utc> {
    let hour = Utc::now().duration_trunc(TimeDelta::hours(1)).unwrap();
    hour - TimeDelta::hours(hours)
}

fn a_task_is_not_due_before_its_window(db: &TestDb) {
    let from = hours_ago(-48) + TimeDelta::minutes(1);
    let next =
        recurring::schedule(&mut db.connection(), &stamp("a", "every 1h").from(from)).unwrap();
    assert_eq!(next, hours_ago(-49));
    let task = &recurring::list(&mut db.connection()).unwrap()[0];
    assert_eq!((task.from, task.until), (Some(from), None));
    let upcoming = recurring::upcoming(&mut db.connection(), "a", 2).unwrap();
    assert_eq!(upcoming, [hours_ago(-49), hours_ago(-50)]);
    let said = windlass(&db.url, &["recurring", "list"]).out;
    assert!(said.contains("from 2"), "{said}");
}

fn a_task_is_not_due_after_its_window(db: &TestDb) {
    let task = stamp("a", "every 1s").missed(MissedTicks::AllWithin(Duration::MAX));
    schedule(db, &task.until(hours_ago(1)));
    schedule(db, &stamp("b", "every 1s"));
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "b", 2);
    assert_eq!(ticks(db, "a").len(), 0);
    let task = &recurring::list(&mut db.connection()).unwrap()[0];
    assert_eq!((task.key.as_str(), task.next_run_at), ("a", None));
    assert!(
        recurring::upcoming(&mut db.connection(), "a", 5)
            .unwrap()
            .is_empty()
    );
    let said = windlass(&db.url, &["recurring", "next", "a"]);
    assert!(said.is_done(), "{said:?}");
    let expected = "a has no upcoming run: it ended at ";
    assert!(said.out.starts_with(expected), "{}", said.out);
    let json = windlass(&db.url, &["recurring", "next", "--json"]).json();
    assert_eq!(json["without"][0]["key"], "a");
}

/// Three ticks, at the start of the window but not at its end.
fn what_was_missed_within_the_window_is_made_up_for(db: &TestDb) {
    let (from, until) = (hours_ago(6), hours_ago(3));
    let task = stamp("a", "every 1h").missed(MissedTicks::AllWithin(Duration::MAX));
    schedule(db, &task.from(from).until(until));
    rewind(db, "a", 12 * 3600);
    schedule(db, &stamp("b", "every 1s"));
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 3);
    until_ticked(db, "b", 2);
    let hours = [from, from + TimeDelta::hours(1), from + TimeDelta::hours(2)];
    assert_eq!(ticks(db, "a"), hours.map(|hour| hour.timestamp()));
}

fn only_the_latest_tick_within_the_window_is_made_up_for(db: &TestDb) {
    let (from, until) = (hours_ago(6), hours_ago(3));
    schedule(db, &stamp("a", "every 1h").from(from).until(until));
    rewind(db, "a", 12 * 3600);
    schedule(db, &stamp("b", "every 1s"));
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 1);
    until_ticked(db, "b", 2);
    assert_eq!(ticks(db, "a"), [(until - TimeDelta::hours(1)).timestamp()]);
}

fn a_window_that_is_moved_starts_anew(db: &TestDb) {
    let next = |task: &RecurringTask| recurring::schedule(&mut db.connection(), task).unwrap();
    let over = next(&stamp("a", "@daily").until(hours_ago(1)));
    assert_eq!(over.to_rfc3339(), "9999-12-31T00:00:00+00:00");
    assert!(next(&stamp("a", "@daily").until(hours_ago(-100))) < hours_ago(-50));
    assert!(next(&stamp("a", "@daily")) < hours_ago(-50));
}

fn an_impossible_window_is_refused(db: &TestDb) {
    let task = stamp("a", "@daily").from(hours_ago(1)).until(hours_ago(1));
    let error = recurring::schedule(&mut db.connection(), &task).unwrap_err();
    let expected = "the recurring task `a` has a window without time: `from` is ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(scheduler(db).task(task).start().is_err());
}

#[test]
fn a_file_has_windows() {
    let config = |lines: &str| {
        let task = "[recurring.a]\nclass = 'a'\nschedule = '@daily'\n";
        Config::parse(&format!("{task}{lines}"))
    };
    let read = config("from = '2026-12-01T00:00:00+01:00'\nuntil = \"2027-01-01T00:00:00Z\"\n");
    let shown = read.unwrap().to_string();
    assert!(shown.contains("from = \"2026-11-30T23:00:00Z\""), "{shown}");
    assert!(
        shown.contains("until = \"2027-01-01T00:00:00Z\""),
        "{shown}"
    );
    for (lines, expected) in [
        (
            "from = '2026-12-01'\n",
            "line 4: recurring.a.from: `2026-12-01` is not a time with its date and zone",
        ),
        (
            "from = 2026-12-01T00:00:00Z\n",
            "is not a time with its date and zone in quotes",
        ),
        (
            "from = '2027-01-01T00:00:00Z'\nuntil = '2026-12-01T00:00:00Z'\n",
            "recurring.a: has a window without time",
        ),
    ] {
        let error = config(lines).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
