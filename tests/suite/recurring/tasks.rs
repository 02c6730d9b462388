//! Tasks that are scheduled, changed, paused and run at run time.

use super::{Stamp, rewind, schedule, scheduler, stamp, ticks, until_ticked};
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::until;
use crate::{on_each_database, with_own_connection};
use chrono::{TimeDelta, Utc};
use std::sync::Arc;
use windlass::recurring::{self, MissedTicks, Overlap, RecurringSettings, RecurringStatus};
use windlass::{Concurrency, Delivery, Error, Policy, RecurringTask, Registry, Worker};

on_each_database!(
    a_task_is_scheduled_in_the_users_own_transaction,
    a_task_that_changes_keeps_its_place_unless_its_times_change,
    a_paused_task_has_no_ticks,
    a_task_is_run_at_once,
    a_task_that_is_unscheduled_ends,
    a_task_of_a_rails_app_is_left_alone,
    what_is_unknown_is_told,
    settings_of_a_file_make_a_task,
    limits_speak_before_a_tick_does,
    the_jobs_of_a_task_keep_the_limit_of_their_type,
);

fn only(db: &TestDb) -> RecurringStatus {
    let mut tasks = recurring::list(&mut db.connection()).unwrap();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks.remove(0)
}

fn a_task_is_scheduled_in_the_users_own_transaction(db: &TestDb) {
    let task = stamp("a", "0 3 * * * Asia/Tokyo").description("at three");
    with_own_connection!(db, |conn| {
        let result = conn.transaction::<(), Error, _>(|conn| {
            recurring::schedule(conn, &task)?;
            Err(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(result.is_err());
        assert_eq!(recurring::list(&mut conn).unwrap(), []);
        let next = recurring::schedule(&mut conn, &task).unwrap();
        assert!(next > Utc::now() - TimeDelta::minutes(1));
        assert_eq!(next.timestamp() % 86_400, 18 * 3600);
    });
    let task = only(db);
    assert_eq!(
        (task.schedule.as_str(), task.time_zone.as_str()),
        ("0 3 * * *", "Asia/Tokyo")
    );
    assert_eq!(
        (task.class_name.as_str(), task.queue_name.as_str()),
        ("stamp", "clockwork")
    );
    assert_eq!(
        (task.priority, task.description.as_deref()),
        (7, Some("at three"))
    );
    assert_eq!(
        (task.last_run_at, task.paused_at, task.declared_at),
        (None, None, None)
    );
    // Solid Queue deletes static tasks that it does not know.
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_recurring_tasks WHERE NOT static"),
        1
    );
    assert_eq!(
        recurring::upcoming(&mut db.connection(), "a", 3).unwrap()[1],
        task.next_run_at.unwrap() + TimeDelta::days(1)
    );
}

fn a_task_that_changes_keeps_its_place_unless_its_times_change(db: &TestDb) {
    schedule(db, &stamp("a", "every 100000s"));
    rewind(db, "a", 500_000);
    let place = only(db).next_run_at;
    schedule(
        db,
        &stamp("a", "every 100000s")
            .queue("other")
            .overlap(Overlap::Skip),
    );
    let task = only(db);
    assert_eq!(
        (task.next_run_at, task.queue_name.as_str()),
        (place, "other")
    );
    // A new one has missed nothing.
    schedule(db, &stamp("a", "every 100001s"));
    assert!(only(db).next_run_at.unwrap() > Utc::now() - TimeDelta::minutes(1));
    // Nor has one whose last tick lies ahead, as the clock was set back.
    db.execute("UPDATE solid_queue_recurring_tasks SET last_run_at = '2999-12-31 12:00:00.000000'");
    schedule(db, &stamp("a", "@daily"));
    assert_eq!(
        only(db).next_run_at.unwrap().to_rfc3339(),
        "3000-01-01T00:00:00+00:00"
    );
}

fn a_paused_task_has_no_ticks(db: &TestDb) {
    schedule(
        db,
        &stamp("a", "every 100000s").missed(MissedTicks::AllWithin(std::time::Duration::MAX)),
    );
    schedule(db, &stamp("b", "every 1s"));
    rewind(db, "a", 500_000);
    let mut conn = db.connect();
    recurring::pause(&mut conn, "a").unwrap();
    recurring::pause(&mut conn, "a").unwrap();
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "b", 2);
    assert_eq!(ticks(db, "a").len(), 0);
    let task = &recurring::list(&mut conn).unwrap()[0];
    assert!(task.paused_at.is_some() && task.next_run_at.is_none());
    // Changing it does not resume it.
    schedule(db, &stamp("a", "every 100000s"));
    assert!(recurring::list(&mut conn).unwrap()[0].paused_at.is_some());
    // Ticks during the pause were not missed.
    recurring::resume(&mut conn, "a").unwrap();
    recurring::resume(&mut conn, "a").unwrap();
    let seen = ticks(db, "b").len();
    until_ticked(db, "b", seen + 2);
    assert_eq!(ticks(db, "a").len(), 0);
    let task = &recurring::list(&mut conn).unwrap()[0];
    assert!(task.next_run_at.unwrap() > Utc::now() - TimeDelta::minutes(1));
    rewind(db, "a", 150_000);
    until_ticked(db, "a", 1);
}

fn a_task_is_run_at_once(db: &TestDb) {
    schedule(db, &stamp("a", "@yearly"));
    let mut conn = db.connect();
    recurring::pause(&mut conn, "a").unwrap();
    let before = only(db);
    let job = recurring::run_now(&mut conn, "a").unwrap();
    assert_ne!(job, recurring::run_now(&mut conn, "a").unwrap());
    assert_eq!(db.rows("ready_executions"), 2);
    assert_eq!(only(db), before);
    // The job has a time, and it is now.
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Stamp>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("both are done", || log.len() == 2);
    let line = &log.lines()[0];
    let time = line.strip_prefix("stamped a ").unwrap();
    let age = Utc::now() - time.parse::<chrono::DateTime<Utc>>().unwrap();
    assert!(age.abs() < TimeDelta::minutes(5), "{line}");
}

fn a_task_that_is_unscheduled_ends(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s"));
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 2);
    let mut conn = db.connect();
    assert!(recurring::unschedule(&mut conn, "a").unwrap());
    assert!(!recurring::unschedule(&mut conn, "a").unwrap());
    let seen = ticks(db, "a");
    schedule(db, &stamp("b", "every 1s"));
    until_ticked(db, "b", 2);
    assert_eq!(ticks(db, "a"), seen, "its jobs stay, and none comes");
    // It may come back, and no tick does.
    schedule(db, &stamp("a", "every 1s"));
    until_ticked(db, "a", seen.len() + 2);
    let all = ticks(db, "a");
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
}

fn a_task_of_a_rails_app_is_left_alone(db: &TestDb) {
    db.execute(
        "INSERT INTO solid_queue_recurring_tasks (key, schedule, class_name, static, created_at, updated_at) \
         VALUES ('rails', 'every second', 'CleanupJob', false, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')",
    );
    let rails = || {
        db.texts(
            "SELECT key || schedule || class_name || updated_at || row_version AS t \
             FROM solid_queue_recurring_tasks WHERE key = 'rails'",
        )
    };
    let before = rails();
    let error = recurring::schedule(&mut db.connection(), &stamp("rails", "@daily")).unwrap_err();
    assert!(
        error.to_string().contains("belongs to a Rails app"),
        "{error}"
    );
    schedule(db, &stamp("a", "every 1s"));
    let _scheduler = scheduler(db)
        .task(stamp("rails", "every 1s"))
        .start()
        .unwrap();
    until_ticked(db, "a", 2);
    assert_eq!(only(db).key, "a");
    let mut conn = db.connect();
    assert!(!recurring::unschedule(&mut conn, "rails").unwrap());
    assert!(recurring::run_now(&mut conn, "rails").is_err());
    assert!(recurring::pause(&mut conn, "rails").is_err());
    assert_eq!(rails(), before);
    assert_eq!(ticks(db, "rails").len(), 0);
}

fn what_is_unknown_is_told(db: &TestDb) {
    let mut conn = db.connect();
    for result in [
        recurring::run_now(&mut conn, "nobody").map(drop),
        recurring::pause(&mut conn, "nobody"),
        recurring::resume(&mut conn, "nobody"),
        recurring::upcoming(&mut conn, "nobody", 1).map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::RecurringTask { .. }), "{error:?}");
        assert!(
            error.to_string().contains("windlass recurring list"),
            "{error}"
        );
    }
}

fn settings_of_a_file_make_a_task(db: &TestDb) {
    let settings: RecurringSettings = serde_json::from_str(
        r#"{"class": "stamp", "arguments": {"text": "from a file"}, "schedule": "30 3 * * *",
            "time_zone": "Europe/Berlin", "queue": "slow", "priority": 3, "description": "d",
            "missed": {"all_within": "2 days"}, "overlap": "queue_one", "max_attempts": 2}"#,
    )
    .unwrap();
    let text = serde_json::to_string(&settings).unwrap();
    assert_eq!(
        serde_json::from_str::<RecurringSettings>(&text).unwrap(),
        settings
    );
    schedule(db, &settings.task("a").unwrap());
    recurring::run_now(&mut db.connection(), "a").unwrap();
    assert_eq!(
        db.texts(
            "SELECT queue_name || priority || arguments || max_attempts AS t FROM solid_queue_jobs"
        ),
        [r#"slow3{"text":"from a file"}2"#]
    );
    for wrong in [
        r#"{"class": "stamp", "schedule": "@daily", "queues": "a"}"#,
        r#"{"class": "stamp"}"#,
        r#"{"class": "stamp", "schedule": "@daily", "missed": {"all_within": 5}}"#,
        r#"{"class": "stamp", "schedule": "@daily", "overlap": "maybe"}"#,
    ] {
        assert!(
            serde_json::from_str::<RecurringSettings>(wrong).is_err(),
            "{wrong}"
        );
    }
}

fn limits_speak_before_a_tick_does(db: &TestDb) {
    let mut conn = db.connect();
    let long = format!("\"{}\"", "x".repeat(70_000));
    let too_long = RecurringTask::of_class("a", "@daily", "note", long).unwrap();
    assert!(recurring::schedule(&mut conn, &too_long).is_err());
    let twice =
        stamp("a", "@daily").policy(Policy::new().delivery(Delivery::AtMostOnce).max_attempts(2));
    assert!(recurring::schedule(&mut conn, &twice).is_err());
    assert!(recurring::schedule(&mut conn, &stamp("a", "@daily").queue("a b")).is_err());
    assert!(RecurringTask::of_class("a b", "@daily", "note", "{}").is_err());
    assert!(RecurringTask::of_class("a", "@dayly", "note", "{}").is_err());
    assert!(stamp("a", "@daily").time_zone("Berlin").is_err());
    assert_eq!(recurring::list(&mut conn).unwrap(), []);
}

/// Of two jobs of one key, the second waits.
fn the_jobs_of_a_task_keep_the_limit_of_their_type(db: &TestDb) {
    let task = stamp("a", "@daily").concurrency(Concurrency::new("clock").group("stamps"));
    schedule(db, &task);
    let mut conn = db.connect();
    recurring::run_now(&mut conn, "a").unwrap();
    recurring::run_now(&mut conn, "a").unwrap();
    let key = "SELECT DISTINCT concurrency_key AS t FROM solid_queue_jobs";
    assert_eq!(db.texts(key), ["stamps/clock"]);
    assert_eq!(db.rows("ready_executions"), 0);
    assert_eq!(db.rows("blocked_executions"), 2);
    let too_long = Concurrency::new("x".repeat(300));
    let task = stamp("b", "@daily").concurrency(too_long);
    assert!(recurring::schedule(&mut conn, &task).is_err());
}
