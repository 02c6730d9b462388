//! Each tick has one job, whoever fires it.

use super::{Stamp, assert_each_second, rewind, schedule, scheduler, stamp, ticks, until_ticked};
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::events::Events;
use crate::support::jobs::Log;
use crate::support::wait::until;
use crate::{on_each_database, with_own_connection};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Policy, Registry, Scheduler, Supervisor, Worker, recurring};

on_each_database!(
    a_tick_enqueues_a_job_as_the_task_says,
    many_schedulers_fire_each_tick_once,
    no_tick_comes_twice_when_jobs_are_cleared_at_once,
    a_tick_that_has_a_row_already_is_not_fired_again,
    a_task_that_somebody_else_has_locked_holds_up_no_other,
    what_cannot_be_read_holds_up_no_other,
    many_tasks_are_due_at_once,
    a_scheduler_sleeps_until_the_next_tick,
    old_rows_of_ticks_are_deleted,
    a_job_reads_its_tick,
);

crate::through_a_pooler_in_all!(
    a_tick_enqueues_a_job_as_the_task_says,
    many_schedulers_fire_each_tick_once,
    no_tick_comes_twice_when_jobs_are_cleared_at_once,
    a_tick_that_has_a_row_already_is_not_fired_again,
    a_task_that_somebody_else_has_locked_holds_up_no_other,
    what_cannot_be_read_holds_up_no_other,
    many_tasks_are_due_at_once,
    a_scheduler_sleeps_until_the_next_tick,
    old_rows_of_ticks_are_deleted,
    a_job_reads_its_tick,
);

fn a_tick_enqueues_a_job_as_the_task_says(db: &TestDb) {
    let task = stamp("a", "every 100000s").policy(Policy::new().max_attempts(4).max_crashes(2));
    schedule(db, &task.queue("other").priority(-2));
    rewind(db, "a", 150_000);
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 1);
    assert_eq!(
        db.texts(
            "SELECT r.queue_name || ' ' || r.priority || ' ' || j.class_name || ' ' || j.arguments || ' ' \
             || j.max_attempts || ' ' || j.max_crashes AS t FROM solid_queue_ready_executions r \
             JOIN solid_queue_jobs j ON j.id = r.job_id"
        ),
        [r#"other -2 stamp {"text":"stamped"} 4 2"#]
    );
    assert_eq!(ticks(db, "a")[0] % 100_000, 0);
}

/// A task of one tick a second, and whatever else the schedulers do.
fn many_schedulers_fire_each_tick_once(db: &TestDb) {
    schedule(db, &stamp("fast", "* * * * * *"));
    let events = Events::default();
    let schedulers: Vec<_> = (0..6)
        .map(|_| scheduler(db).subscriber(events.subscriber()))
        .map(|scheduler| scheduler.start().unwrap())
        .collect();
    until_ticked(db, "fast", 5);
    drop(schedulers);
    let ticks = ticks(db, "fast");
    assert_each_second(&ticks);
    assert_eq!(db.rows("jobs"), ticks.len() as i64);
    assert_eq!(db.rows("ready_executions"), ticks.len() as i64);
    assert_eq!(events.count("Ticked"), ticks.len());
    assert_eq!(
        events.count("Unreachable"),
        0,
        "{:?}",
        events.of("Unreachable")
    );
}

/// Nothing is left of the jobs, nor of the rows that go with them.
fn no_tick_comes_twice_when_jobs_are_cleared_at_once(db: &TestDb) {
    schedule(db, &stamp("fast", "every 1s"));
    let log = Arc::new(Log::default());
    let worker = Worker::new(
        &db.database,
        Registry::new().register::<Stamp>(Arc::clone(&log)),
    );
    let _worker = worker.keep_finished(false).start().unwrap();
    let schedulers: Vec<_> = (0..4).map(|_| scheduler(db).start().unwrap()).collect();
    until("five ticks are done", || log.len() >= 5);
    drop(schedulers);
    until("all jobs are gone", || db.rows("jobs") == 0);
    assert_eq!(db.rows("recurring_executions"), 0);
    let lines = log.lines();
    let distinct: BTreeSet<&String> = lines.iter().collect();
    assert_eq!(distinct.len(), lines.len(), "{lines:?}");
}

/// As when a Rails app had fired it.
fn a_tick_that_has_a_row_already_is_not_fired_again(db: &TestDb) {
    schedule(db, &stamp("a", "every 100000s"));
    rewind(db, "a", 150_000);
    let first = scheduler(db).start().unwrap();
    until_ticked(db, "a", 1);
    drop(first);
    rewind(db, "a", 150_000);
    let _second = scheduler(db).start().unwrap();
    until("the task has moved on", || {
        db.count("SELECT row_version AS n FROM solid_queue_recurring_tasks") == 4
    });
    assert_eq!(db.rows("jobs"), 1);
}

fn a_task_that_somebody_else_has_locked_holds_up_no_other(db: &TestDb) {
    schedule(db, &stamp("free", "every 1s"));
    if !db.is_postgres() {
        // SQLite has one lock for all.
        return;
    }
    schedule(db, &stamp("locked", "every 100000s"));
    rewind(db, "locked", 150_000);
    let mut other = db.connect();
    execute(&mut other, "BEGIN");
    execute(
        &mut other,
        "UPDATE solid_queue_recurring_tasks SET description = 'long' WHERE key = 'locked'",
    );
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "free", 2);
    assert_eq!(ticks(db, "locked").len(), 0);
    execute(&mut other, "COMMIT");
    until_ticked(db, "locked", 1);
}

fn what_cannot_be_read_holds_up_no_other(db: &TestDb) {
    for key in ["a", "b", "c", "d"] {
        schedule(db, &stamp(key, "every 100000s"));
        rewind(db, key, 150_000);
    }
    for (key, column, value) in [
        ("a", "schedule_text", "now and then"),
        ("b", "time_zone", "Mars/Olympus"),
        ("c", "options", "{\"overlap\":\"newer\"}"),
    ] {
        db.execute(&format!(
            "UPDATE solid_queue_recurring_tasks SET {column} = '{value}' WHERE key = '{key}'"
        ));
    }
    let events = Events::default();
    let _scheduler = scheduler(db)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until_ticked(db, "d", 1);
    schedule(db, &stamp("e", "every 1s"));
    until_ticked(db, "e", 2);
    assert_eq!(
        events.count("TaskRefused"),
        3,
        "{:?}",
        events.of("TaskRefused")
    );
    // Put right, it is fired.
    schedule(db, &stamp("a", "every 100000s"));
    rewind(db, "a", 150_000);
    until_ticked(db, "a", 1);
}

/// More than are looked at at once, and the first ones cannot be fired.
fn many_tasks_are_due_at_once(db: &TestDb) {
    with_own_connection!(db, |conn| conn
        .transaction::<(), windlass::Error, _>(|conn| {
            for number in 100..330 {
                let task = stamp(&format!("t{number}"), "every 100000s");
                recurring::schedule(conn, &task)?;
            }
            Ok(())
        })
        .unwrap());
    let time = super::ago(db, 150_000);
    db.execute(&format!(
        "UPDATE solid_queue_recurring_tasks SET next_run_at = {time}, \
         schedule_text = CASE WHEN key < 't210' THEN 'never' ELSE schedule_text END"
    ));
    let _schedulers = [scheduler(db), scheduler(db)].map(|scheduler| scheduler.start().unwrap());
    until("the others are fired", || db.rows("jobs") == 120);
}

/// It looks but once an hour, unless it knows better.
fn a_scheduler_sleeps_until_the_next_tick(db: &TestDb) {
    schedule(db, &stamp("fast", "every 1s"));
    let lazy = Scheduler::new(&db.database).polling_interval(Duration::from_secs(3600));
    let _supervisor = Supervisor::new(&db.database)
        .scheduler(lazy)
        .start()
        .unwrap();
    until_ticked(db, "fast", 3);
    assert_eq!(
        db.texts("SELECT kind AS t FROM solid_queue_processes ORDER BY kind"),
        ["Scheduler", "Supervisor"]
    );
    // By the clock that counts, not a moment too early.
    assert_eq!(
        db.count(
            "SELECT count(*) AS n FROM solid_queue_recurring_executions WHERE created_at < run_at"
        ),
        0
    );
}

fn old_rows_of_ticks_are_deleted(db: &TestDb) {
    schedule(db, &stamp("fast", "every 1s"));
    let first = scheduler(db).start().unwrap();
    until_ticked(db, "fast", 2);
    drop(first);
    let old = super::ago(db, 8 * 86_400);
    db.execute(&format!(
        "UPDATE solid_queue_recurring_executions SET run_at = {old} \
         WHERE id = (SELECT min(id) FROM solid_queue_recurring_executions)"
    ));
    let first = db.count("SELECT min(id) AS n FROM solid_queue_recurring_executions");
    let _second = scheduler(db).start().unwrap();
    until("the old row is gone, and its job is not", || {
        db.count("SELECT min(id) AS n FROM solid_queue_recurring_executions") > first
            && db.rows("jobs") > db.rows("recurring_executions")
    });
}

fn a_job_reads_its_tick(db: &TestDb) {
    schedule(db, &stamp("a", "every 100000s"));
    rewind(db, "a", 150_000);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Stamp>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let _scheduler = scheduler(db).start().unwrap();
    until("the job is done", || log.len() == 1);
    let (tick, _) = recurring::history(&mut db.connection(), "a", 1).unwrap()[0];
    assert_eq!(log.lines(), [format!("stamped a {}", tick.to_rfc3339())]);
    windlass::Job::enqueue(
        Stamp {
            text: "by hand".to_owned(),
        },
        &mut db.connection(),
    )
    .unwrap();
    until("the other is done", || log.len() == 2);
    assert_eq!(log.lines()[1], "by hand none none");
}
