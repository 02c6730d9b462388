//! Tasks that a program's code has: who fires them, and what happens where
//! several programs, or versions of one, share a database.

use super::{schedule, scheduler, stamp, ticks, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::wait::until;
use std::time::Duration;
use windlass::Error;
use windlass::recurring::{self, RecurringStatus};

on_each_database!(
    declared_tasks_are_fired_by_who_declares_them,
    a_task_that_a_new_version_does_not_have_ends_with_the_old_one,
    the_last_one_to_start_says_how_a_task_is,
    a_higher_revision_says_how_a_task_is,
    one_key_is_declared_or_scheduled_at_run_time,
    a_pause_outlives_a_deploy,
    what_nobody_declares_for_a_week_is_forgotten,
    a_task_that_is_no_longer_declared_can_be_removed,
    what_was_missed_between_two_versions_is_made_up_for,
    the_programs_time_zone_is_a_default,
    impossible_settings_are_refused,
);

fn task(db: &TestDb, key: &str) -> Option<RecurringStatus> {
    let tasks = recurring::list(&mut db.connection()).unwrap();
    tasks.into_iter().find(|task| task.key == key)
}

fn until_declared(db: &TestDb, key: &str) {
    until("it is declared", || {
        task(db, key).is_some_and(|task| task.declared_at.is_some())
    });
}

fn declared_tasks_are_fired_by_who_declares_them(db: &TestDb) {
    let first = scheduler(db).task(stamp("a", "every 1s")).start().unwrap();
    let _second = scheduler(db)
        .tasks([stamp("b", "every 1s")])
        .start()
        .unwrap();
    schedule(db, &stamp("c", "every 1s"));
    for key in ["a", "b", "c"] {
        until_ticked(db, key, 2);
    }
    drop(first);
    let seen = ticks(db, "a");
    for key in ["b", "c"] {
        until_ticked(db, key, ticks(db, key).len() + 2);
    }
    assert_eq!(ticks(db, "a"), seen);
}

fn a_task_that_a_new_version_does_not_have_ends_with_the_old_one(db: &TestDb) {
    let old = scheduler(db)
        .tasks([stamp("kept", "every 1s"), stamp("gone", "every 1s")])
        .start()
        .unwrap();
    until_ticked(db, "gone", 1);
    let _new = scheduler(db)
        .tasks([stamp("kept", "every 1s"), stamp("new", "every 1s")])
        .start()
        .unwrap();
    until_ticked(db, "new", 1);
    let seen = ticks(db, "gone").len();
    until_ticked(db, "gone", seen + 1);
    drop(old);
    let seen = ticks(db, "gone").len();
    until_ticked(db, "kept", ticks(db, "kept").len() + 2);
    assert_eq!(ticks(db, "gone").len(), seen);
    super::assert_each_second(&ticks(db, "kept"));
}

fn the_last_one_to_start_says_how_a_task_is(db: &TestDb) {
    let _old = scheduler(db).task(stamp("a", "@daily")).start().unwrap();
    until_declared(db, "a");
    let new = stamp("a", "@hourly").queue("other");
    let _new = scheduler(db).task(new).start().unwrap();
    until("it has changed", || {
        let task = task(db, "a").unwrap();
        (task.schedule.as_str(), task.queue_name.as_str()) == ("@hourly", "other")
    });
}

/// An old one that crashes and comes back changes nothing.
fn a_higher_revision_says_how_a_task_is(db: &TestDb) {
    let new = scheduler(db)
        .revision(2)
        .task(stamp("a", "@hourly"))
        .start()
        .unwrap();
    until_declared(db, "a");
    drop(new);
    db.execute("UPDATE solid_queue_recurring_tasks SET declared_at = '2026-01-01 00:00:00.000000'");
    let old = scheduler(db).revision(1).task(stamp("a", "@daily"));
    let _old = old.task(stamp("b", "@daily")).start().unwrap();
    until_declared(db, "b");
    let seen = task(db, "a").unwrap();
    assert_eq!(seen.schedule, "@hourly");
    assert!(
        seen.declared_at.unwrap().timestamp() > 1_767_225_600,
        "still declared"
    );
    // By its own rule, it fires it all the same.
    super::rewind(db, "a", 7200);
    until_ticked(db, "a", 1);
}

fn one_key_is_declared_or_scheduled_at_run_time(db: &TestDb) {
    schedule(db, &stamp("run", "every 1s"));
    let events = Events::default();
    let declaring = scheduler(db).subscriber(events.subscriber());
    let _scheduler = declaring
        .tasks([stamp("run", "@daily"), stamp("code", "@daily")])
        .start()
        .unwrap();
    until_declared(db, "code");
    let refused = events.of("TaskRefused");
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].contains("`run` was scheduled at run time"),
        "{refused:?}"
    );
    // As it was, so it goes on.
    until_ticked(db, "run", 1);
    let error = recurring::schedule(&mut db.connection(), &stamp("code", "every 1s")).unwrap_err();
    assert!(
        error.to_string().contains("is declared by a program"),
        "{error}"
    );
}

fn a_pause_outlives_a_deploy(db: &TestDb) {
    let old = scheduler(db).task(stamp("a", "every 1s")).start().unwrap();
    until_ticked(db, "a", 1);
    recurring::pause(&mut db.connection(), "a").unwrap();
    drop(old);
    let seen = ticks(db, "a").len();
    let _new = scheduler(db)
        .tasks([stamp("a", "every 1s"), stamp("b", "every 1s")])
        .start()
        .unwrap();
    until_ticked(db, "b", 2);
    assert_eq!(ticks(db, "a").len(), seen);
    recurring::resume(&mut db.connection(), "a").unwrap();
    until_ticked(db, "a", seen + 1);
}

fn what_nobody_declares_for_a_week_is_forgotten(db: &TestDb) {
    drop({
        let old = scheduler(db).tasks([stamp("a", "@daily"), stamp("b", "@daily")]);
        let old = old.start().unwrap();
        until_declared(db, "b");
        old
    });
    schedule(db, &stamp("run", "@daily"));
    for (key, days) in [("a", 6), ("b", 8)] {
        let time = super::ago(db, days * 86_400);
        db.execute(&format!(
            "UPDATE solid_queue_recurring_tasks SET declared_at = {time} WHERE key = '{key}'"
        ));
    }
    let _new = scheduler(db).task(stamp("c", "@daily")).start().unwrap();
    until("one is forgotten", || task(db, "b").is_none());
    assert!(["a", "c", "run"].iter().all(|key| task(db, key).is_some()));
}

fn what_was_missed_between_two_versions_is_made_up_for(db: &TestDb) {
    let old = scheduler(db)
        .task(stamp("a", "every 100000s"))
        .start()
        .unwrap();
    until_declared(db, "a");
    drop(old);
    super::rewind(db, "a", 150_000);
    let new = stamp("a", "every 100000s").queue("other");
    let _new = scheduler(db).task(new).start().unwrap();
    until_ticked(db, "a", 1);
    assert_eq!(
        db.texts("SELECT queue_name AS t FROM solid_queue_jobs"),
        ["other"]
    );
}

fn the_programs_time_zone_is_a_default(db: &TestDb) {
    let berlin = scheduler(db).time_zone("Europe/Berlin").unwrap();
    let _scheduler = berlin
        .tasks([stamp("a", "0 3 * * *"), stamp("b", "0 3 * * * Asia/Tokyo")])
        .start()
        .unwrap();
    until_declared(db, "b");
    assert_eq!(task(db, "a").unwrap().time_zone, "Europe/Berlin");
    assert_eq!(task(db, "b").unwrap().time_zone, "Asia/Tokyo");
    let next = task(db, "a").unwrap().next_run_at.unwrap();
    let time = next.format("%H:%M").to_string();
    assert!(["01:00", "02:00"].contains(&&*time), "{time}");
}

fn impossible_settings_are_refused(db: &TestDb) {
    let twice = scheduler(db).tasks([stamp("a", "@daily"), stamp("a", "@hourly")]);
    let error = twice.start().unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("two recurring tasks have the key `a`"),
        "{error}"
    );
    assert!(
        scheduler(db)
            .polling_interval(Duration::ZERO)
            .start()
            .is_err()
    );
    assert!(
        scheduler(db)
            .task(stamp("a", "@daily").queue(""))
            .start()
            .is_err()
    );
    assert!(scheduler(db).time_zone("Berlin").is_err());
    let supervisor = windlass::Supervisor::new(&db.database);
    let bad = scheduler(db).polling_interval(Duration::ZERO);
    assert!(supervisor.scheduler(bad).start().is_err());
    assert_eq!(db.rows("processes"), 0);
}

/// Returns the finding of `doctor` about the recurring tasks.
fn diagnosis(db: &TestDb) -> windlass_console::Finding {
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let found = findings
        .into_iter()
        .find(|found| found.check == "recurring");
    found.unwrap()
}

fn a_task_that_is_no_longer_declared_can_be_removed(db: &TestDb) {
    let names = ["kept", "gone", "gone/too"];
    let [kept, gone, also] = names;
    let old = scheduler(db).tasks(names.map(|key| stamp(key, "every 1000d")));
    let old = old.start().unwrap();
    until_declared(db, also);
    // A scheduler that runs declares it.
    for key in names {
        let task = task(db, key).unwrap();
        assert!(
            task.deleted_at.is_none() && task.next_run_at.is_some(),
            "{task:?}"
        );
    }
    drop(old);
    // None runs, so that nothing is known of it.
    assert!(task(db, gone).unwrap().deleted_at.is_none());
    let _new = scheduler(db)
        .task(stamp(kept, "every 1000d"))
        .start()
        .unwrap();
    until("it is no longer declared", || {
        task(db, gone).unwrap().deleted_at.is_some()
    });
    super::rewind(db, gone, 10_000);
    let found = task(db, gone).unwrap();
    let week = found.deleted_at.unwrap() - found.declared_at.unwrap();
    assert_eq!((week.num_days(), found.next_run_at), (7, None));
    assert!(
        recurring::upcoming(&mut db.connection(), gone, 3)
            .unwrap()
            .is_empty()
    );
    let said = diagnosis(db);
    assert_eq!(said.verdict, windlass_console::Verdict::Fine, "{said:?}");
    assert!(said.says.contains("and 1 others any more"), "{said:?}");
    let found = task(db, kept).unwrap();
    assert!(
        found.deleted_at.is_none() && found.next_run_at.is_some(),
        "{found:?}"
    );
    {
        use crate::support::program::windlass;
        let listed = windlass(&db.url, &["recurring", "list"]);
        assert!(
            listed.out.contains("no longer declared, deleted on 20"),
            "{listed:?}"
        );
        let next = windlass(&db.url, &["recurring", "next"]);
        assert!(next.out.contains("it is no longer declared"), "{next:?}");
        {
            use crate::web::client::{get, serve};
            let page = get(&serve(&db.database), "/recurring").body;
            assert_eq!(page.matches("no longer declared").count(), 2, "{page}");
        }
        let removed = windlass(&db.url, &["recurring", "remove", gone]);
        assert!(removed.is_done(), "{removed:?}");
        let refused = windlass(&db.url, &["recurring", "remove", kept]);
        assert!(
            refused.err.contains("is declared by a program's code"),
            "{refused:?}"
        );
        assert!(task(db, gone).is_none() && task(db, kept).is_some());
    }
}
