//! Every change by an operator has its row, written in the transaction of the change.

use super::{actions, enqueue, entries, fail, refuse};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::with_own_connection;
use serde_json::json;
use std::ops::ControlFlow;
use std::time::Duration;
use windlass::audit::{Actor, AuditLog, Via};
use windlass::jobs::{Change, JobState, Jobs};
use windlass::tenants::ShareBy;
use windlass::{JobId, NewJob, RecurringTask, recurring};

on_each_database!(
    every_change_has_its_row,
    what_changes_nothing_has_no_row,
    no_change_without_its_row,
    a_rollback_leaves_neither,
    the_actor_is_recorded,
    a_change_in_batches_is_one_action,
    jobs_that_were_named_are_named,
    changes_of_tasks_say_what_changed,
    arguments_are_not_recorded,
    enqueues_are_not_recorded,
    the_audit_is_filtered_and_paged,
);

const RETRY: Change = Change::Retry {
    even_at_most_once: false,
};

fn row(
    action: &str,
    target: Option<&str>,
    jobs: Option<i64>,
) -> (String, Option<String>, Option<i64>) {
    (action.to_owned(), target.map(str::to_owned), jobs)
}

fn task(schedule: &str) -> RecurringTask {
    RecurringTask::of_class("nightly", schedule, "none", "{\"secret\":1}").unwrap()
}

/// The action, the target, and the change; whether it changed what it should.
type AuditedChange = (
    &'static str,
    Option<&'static str>,
    Box<dyn Fn(&mut windlass::DbConnection) -> bool>,
);

/// Every function that changes something as an operator does, with the row that it leaves.
fn all_changes(ids: &[JobId]) -> Vec<AuditedChange> {
    let (one, two) = (ids[0], ids[1]);
    let jobs = |range: std::ops::Range<usize>| Jobs::unfinished().ids(ids[range].to_vec());
    let (ready, failed) = (jobs(2..4), jobs(4..6));
    let [a, b, c, d, e, f] = [(); 6].map(|()| ready.clone());
    vec![
        (
            "jobs.priority",
            None,
            Box::new(move |c| a.change(c, Change::Priority(3)).unwrap().changed == 2),
        ),
        (
            "jobs.move",
            None,
            Box::new(move |c| b.change(c, Change::Queue("other".into())).unwrap().changed == 2),
        ),
        (
            "jobs.reschedule",
            None,
            Box::new(move |c| {
                d.change(c, Change::RunIn(Duration::from_secs(60)))
                    .unwrap()
                    .changed
                    == 2
            }),
        ),
        (
            "jobs.tag",
            None,
            Box::new(move |c| e.tag(c, "eu").unwrap().changed == 2),
        ),
        (
            "jobs.untag",
            None,
            Box::new(move |c| f.untag(c, "eu").unwrap().changed == 2),
        ),
        (
            "jobs.discard",
            None,
            Box::new({
                let it = c;
                move |c| it.change(c, Change::Discard).unwrap().changed == 2
            }),
        ),
        (
            "jobs.retry",
            None,
            Box::new({
                let it = failed.clone();
                move |c| it.change(c, RETRY).unwrap().changed == 2
            }),
        ),
        (
            "jobs.cancel",
            None,
            Box::new({
                let it = failed;
                move |c| it.change(c, Change::Cancel).unwrap().changed == 2
            }),
        ),
        (
            "jobs.edit",
            Some("1"),
            Box::new(move |c| windlass::jobs::edit_arguments(c, one, "{\"a\":1}", None).is_ok()),
        ),
        (
            "jobs.cancel",
            Some("2"),
            Box::new(move |c| {
                windlass::jobs::cancel(c, two).unwrap() == windlass::jobs::Cancelled::Ended
            }),
        ),
        (
            "queues.pause",
            Some("mail"),
            Box::new(|c| windlass::queues::pause(c, "mail", "", "").unwrap()),
        ),
        (
            "queues.resume",
            Some("mail"),
            Box::new(|c| windlass::queues::resume(c, "mail").unwrap()),
        ),
        (
            "queues.clear",
            Some("default"),
            Box::new(|c| windlass::queues::clear(c, "default").unwrap() > 0),
        ),
        (
            "classes.pause",
            Some("none"),
            Box::new(|c| windlass::classes::pause(c, "none", "", "").unwrap()),
        ),
        (
            "classes.resume",
            Some("none"),
            Box::new(|c| windlass::classes::resume(c, "none").unwrap()),
        ),
        (
            "limits.set",
            Some("g/*"),
            Box::new(|c| windlass::limits::set(c, "g/*", 2, "", "").is_ok()),
        ),
        (
            "limits.clear",
            Some("g/*"),
            Box::new(|c| windlass::limits::clear(c, "g/*").unwrap()),
        ),
        (
            "limits.reopen",
            Some("api/acme"),
            Box::new(|c| {
                execute(
                    c,
                    "INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at, closed_until) \
                     VALUES ('api/acme', 1, 1, 1, 1, 1, 9000000000000000)",
                );
                windlass::limits::reopen(c, "api/acme").unwrap()
            }),
        ),
        (
            "tenants.share",
            Some("mail"),
            Box::new(|c| windlass::tenants::share(c, "mail", ShareBy::Time).is_ok()),
        ),
        (
            "tenants.weight",
            Some("mail"),
            Box::new(|c| windlass::tenants::set_weight(c, "mail", "acme", 2).unwrap()),
        ),
        (
            "tenants.unshare",
            Some("mail"),
            Box::new(|c| windlass::tenants::unshare(c, "mail").unwrap()),
        ),
        (
            "recurring.schedule",
            Some("nightly"),
            Box::new(|c| recurring::schedule(c, &task("@daily")).is_ok()),
        ),
        (
            "recurring.pause",
            Some("nightly"),
            Box::new(|c| recurring::pause(c, "nightly").is_ok()),
        ),
        (
            "recurring.resume",
            Some("nightly"),
            Box::new(|c| recurring::resume(c, "nightly").is_ok()),
        ),
        (
            "recurring.run",
            Some("nightly"),
            Box::new(|c| recurring::run_now(c, "nightly").is_ok()),
        ),
        (
            "recurring.remove",
            Some("nightly"),
            Box::new(|c| recurring::unschedule(c, "nightly").unwrap()),
        ),
    ]
}

fn prepared(db: &TestDb) -> Vec<JobId> {
    let ids = enqueue(db, "none", 8);
    fail(db, "id IN (5, 6)");
    ids
}

fn every_change_has_its_row(db: &TestDb) {
    let ids = prepared(db);
    let conn = &mut db.connection();
    for (action, target, change) in all_changes(&ids) {
        let before = entries(db).len();
        assert!(change(conn), "{action}");
        let all = entries(db);
        assert_eq!(all.len(), before + 1, "{action}");
        let last = all.last().unwrap();
        assert_eq!((&*last.action, last.target.as_deref()), (action, target));
        assert_eq!(last.via, "library");
        assert!(last.actor.contains('@'), "{last:?}");
        let of_jobs = action.starts_with("jobs.") || action == "queues.clear";
        assert_eq!(last.jobs.is_some(), of_jobs, "{last:?}");
        assert_eq!(last.jobs, last.total);
    }
}

fn what_changes_nothing_has_no_row(db: &TestDb) {
    let ids = prepared(db);
    let conn = &mut db.connection();
    recurring::schedule(conn, &task("@daily")).unwrap();
    windlass::queues::pause(conn, "mail", "", "").unwrap();
    let before = actions(db);
    assert!(!windlass::queues::pause(conn, "mail", "", "").unwrap());
    assert!(!windlass::queues::resume(conn, "other").unwrap());
    assert!(!windlass::classes::resume(conn, "other").unwrap());
    assert!(!windlass::limits::clear(conn, "g/*").unwrap());
    assert!(!windlass::tenants::unshare(conn, "other").unwrap());
    assert!(!windlass::tenants::set_weight(conn, "other", "acme", 1).unwrap());
    assert_eq!(windlass::queues::clear(conn, "other").unwrap(), 0);
    assert!(recurring::pause(conn, "other").is_err());
    assert!(!recurring::unschedule(conn, "other").unwrap());
    // The same task again, as a program schedules it at each start.
    recurring::schedule(conn, &task("@daily")).unwrap();
    recurring::resume(conn, "nightly").unwrap();
    windlass::jobs::cancel(conn, JobId(4711)).unwrap();
    Jobs::failed().ids([ids[0]]).change(conn, RETRY).unwrap();
    let same = Change::Queue("default".into());
    Jobs::waiting().change(conn, same).unwrap();
    assert!(windlass::jobs::edit_arguments(conn, JobId(4711), "{}", None).is_err());
    assert_eq!(actions(db), before);
}

/// The database refuses the row of the audit: then it keeps nothing of the change.
fn no_change_without_its_row(db: &TestDb) {
    let ids = prepared(db);
    recurring::schedule(&mut db.connection(), &task("@hourly")).unwrap();
    windlass::queues::pause(&mut db.connection(), "paused", "", "").unwrap();
    let state = |db: &TestDb| {
        let of = |sql: &str| db.texts(sql);
        [
            of(
                "SELECT job_id || ' ' || queue_name || ' ' || priority AS t FROM solid_queue_ready_executions ORDER BY job_id",
            ),
            of(
                "SELECT CAST(job_id AS text) AS t FROM solid_queue_scheduled_executions ORDER BY job_id",
            ),
            of(
                "SELECT CAST(job_id AS text) AS t FROM solid_queue_failed_executions ORDER BY job_id",
            ),
            of(
                "SELECT id || ' ' || arguments || ' ' || coalesce(policy, '') || ' ' || queue_name || ' ' || priority AS t FROM solid_queue_jobs ORDER BY id",
            ),
            of("SELECT queue_name AS t FROM solid_queue_pauses"),
            of("SELECT class_name AS t FROM windlass_class_pauses"),
            of("SELECT limit_key AS t FROM windlass_limits"),
            of("SELECT queue_name AS t FROM windlass_fair_queues"),
            of("SELECT tenant AS t FROM windlass_tenants"),
            of(
                "SELECT schedule || ' ' || CASE WHEN paused_at IS NULL THEN 'on' ELSE 'off' END AS t FROM solid_queue_recurring_tasks",
            ),
        ]
    };
    refuse(db, "windlass_audit", "INSERT", "true");
    let before = state(db);
    let mut refused = 0;
    for (action, _, change) in all_changes(&ids) {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            change(&mut db.connection())
        }));
        refused += usize::from(done.is_err());
        assert_eq!(state(db), before, "{action}");
    }
    // The others find nothing to do, as one before them was refused.
    assert!(refused >= 10, "{refused}");
}

fn a_rollback_leaves_neither(db: &TestDb) {
    let ids = enqueue(db, "none", 1);
    with_own_connection!(db, |conn| {
        use diesel::Connection as _;
        let result = conn.transaction(|conn| {
            windlass::queues::pause(conn, "mail", "ada", "")?;
            windlass::jobs::cancel(conn, ids[0])?;
            assert_eq!(AuditLog::new().list(conn)?.len(), 2);
            Err::<(), windlass::Error>(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(result.is_err());
    });
    assert_eq!(actions(db), []);
    assert_eq!(db.rows("pauses") + db.rows("ready_executions"), 1);
}

fn the_actor_is_recorded(db: &TestDb) {
    enqueue(db, "none", 3);
    let conn = &mut db.connection();
    let ada = Actor::named("ada")
        .via(Via::Page)
        .origin("10.0.0.7")
        .reason("it is late");
    ada.pause_queue(conn, "mail").unwrap();
    let waiting = Jobs::waiting().limit(1);
    waiting
        .clone()
        .by("bob")
        .reason("old")
        .change(conn, Change::Discard)
        .unwrap();
    waiting
        .by_actor(ada.clone())
        .change(conn, Change::Discard)
        .unwrap();
    windlass::queues::pause(conn, "slow", "eve", "disk").unwrap();
    let said: Vec<_> = entries(db)
        .into_iter()
        .map(|one| (one.actor, one.via, one.origin, one.reason))
        .collect();
    let text = |text: &str| Some(text.to_owned());
    let host = Actor::default();
    let host = host.name().split_once('@').unwrap().1;
    let from = |name: &str, via: &str, origin: &str, reason: &str| {
        (name.to_owned(), via.to_owned(), text(origin), text(reason))
    };
    assert_eq!(
        said,
        [
            from("ada", "page", "10.0.0.7", "it is late"),
            from("bob", "library", host, "old"),
            from("ada", "page", "10.0.0.7", "it is late"),
            from("eve", "library", host, "disk"),
        ]
    );
    let paused = windlass::queues::list(conn).unwrap();
    let mail = paused
        .iter()
        .find(|queue| queue.queue_name == "mail")
        .unwrap();
    assert_eq!(
        (mail.paused_by.clone(), mail.pause_reason.clone()),
        (text("ada"), text("it is late"))
    );
}

/// One action, a row for each of its transactions.
fn a_change_in_batches_is_one_action(db: &TestDb) {
    enqueue(db, "none", 1_100);
    let conn = &mut db.connection();
    let jobs = Jobs::waiting().class("none").by("ada").reason("all of it");
    jobs.change(conn, Change::Priority(2)).unwrap();
    assert_eq!(actions(db), [row("jobs.priority", None, Some(1_100))]);
    let first = entries(db).remove(0);
    assert_eq!((first.jobs, first.part_of), (Some(500), None));
    assert_eq!(first.parameters, Some(json!({ "priority": 2 })));
    let filter: Jobs = serde_json::from_value(first.filter.unwrap()).unwrap();
    assert_eq!(filter.to_pairs(), jobs.to_pairs());
    let mut parts = AuditLog::new().parts_of(first.id).list(conn).unwrap();
    parts.reverse();
    let counted: Vec<_> = parts
        .iter()
        .map(|part| (part.jobs, part.total, part.filter.is_some()))
        .collect();
    assert_eq!(
        counted,
        [
            (Some(500), Some(1_000), false),
            (Some(100), Some(1_100), false)
        ]
    );
    assert!(
        parts
            .iter()
            .all(|part| part.part_of == Some(first.id) && part.actor == "ada")
    );

    // Stopped after the first batch: the audit says how far it came.
    fail(db, "class_name = 'none'");
    let rate = "100/s".parse().unwrap();
    let stop = |_: &windlass::jobs::Changed| ControlFlow::Break(());
    Jobs::failed()
        .retry_at_rate(conn, rate, true, stop)
        .unwrap();
    let last = entries(db).pop().unwrap();
    assert_eq!((&*last.action, last.total), ("jobs.retry", Some(500)));
    assert_eq!(
        last.parameters,
        Some(json!({ "retry": { "even_at_most_once": true, "rate": "100/s" } }))
    );
}

fn jobs_that_were_named_are_named(db: &TestDb) {
    let ids = enqueue(db, "none", 700);
    let conn = &mut db.connection();
    Jobs::waiting()
        .ids(ids[..600].to_vec())
        .change(conn, Change::Discard)
        .unwrap();
    let first = entries(db).remove(0);
    let mut rows = AuditLog::new().parts_of(first.id).list(conn).unwrap();
    assert_eq!((rows.len(), first.total), (1, Some(600)));
    rows.insert(0, first);
    let named: Vec<i64> = rows
        .iter()
        .flat_map(|row| {
            row.filter.as_ref().unwrap()["filter"]["ids"]
                .as_array()
                .unwrap()
        })
        .map(|id| id.as_i64().unwrap())
        .collect();
    assert_eq!(named, ids[..600].iter().map(|id| id.0).collect::<Vec<_>>());
    Jobs::waiting()
        .ids([ids[650]])
        .change(conn, Change::Discard)
        .unwrap();
    let id = ids[650].to_string();
    let of_job = AuditLog::new().target(&id).list(conn).unwrap();
    assert_eq!((of_job.len(), of_job[0].filter.as_ref()), (1, None));
}

fn changes_of_tasks_say_what_changed(db: &TestDb) {
    let conn = &mut db.connection();
    for schedule in ["@daily", "@hourly"] {
        recurring::schedule(conn, &task(schedule)).unwrap();
    }
    recurring::pause(conn, "nightly").unwrap();
    let job = recurring::run_now(conn, "nightly").unwrap();
    let values: Vec<_> = entries(db)
        .into_iter()
        .map(|one| one.parameters.unwrap())
        .collect();
    assert_eq!(values[0]["to"]["schedule"], "@daily");
    assert_eq!(
        values[1],
        json!({"from": {"schedule": "@daily"}, "to": {"schedule": "@hourly"}})
    );
    assert_eq!(
        values[2],
        json!({"from": {"paused": false}, "to": {"paused": true}})
    );
    assert_eq!(values[3], json!({ "job_id": job.0 }));
}

fn arguments_are_not_recorded(db: &TestDb) {
    let conn = &mut db.connection();
    let job = NewJob::of_class("none", "{\"secret\":\"s3cret\"}")
        .enqueue(conn)
        .unwrap()
        .id;
    windlass::jobs::edit_arguments(conn, job, "{\"secret\":\"m0re\"}", None).unwrap();
    let task = RecurringTask::of_class("t", "@daily", "none", "{\"secret\":\"s3cret\"}").unwrap();
    recurring::schedule(conn, &task).unwrap();
    windlass::jobs::cancel(conn, job).unwrap();
    let stored = db.texts(
        "SELECT coalesce(filter, '') || coalesce(parameters, '') || coalesce(reason, '') AS t FROM windlass_audit",
    );
    assert_eq!(stored.len(), 3);
    assert!(
        !stored.concat().contains("s3cret") && !stored.concat().contains("m0re"),
        "{stored:?}"
    );
    assert!(stored.concat().contains("[hidden]"));
}

fn enqueues_are_not_recorded(db: &TestDb) {
    enqueue(db, "none", 3);
    NewJob::of_class("none", "{}")
        .unique_id("u")
        .enqueue(&mut db.connection())
        .unwrap();
    assert_eq!(actions(db), []);
}

fn the_audit_is_filtered_and_paged(db: &TestDb) {
    let conn = &mut db.connection();
    for (name, queue) in [("ada", "a"), ("bob", "b"), ("ada", "c")] {
        Actor::named(name).pause_queue(conn, queue).unwrap();
    }
    Actor::named("ada").resume_queue(conn, "a").unwrap();
    let of = |log: AuditLog| -> Vec<String> {
        let found = log.list(&mut db.connection()).unwrap();
        found.into_iter().map(|one| one.target.unwrap()).collect()
    };
    assert_eq!(of(AuditLog::new()), ["a", "c", "b", "a"]);
    assert_eq!(of(AuditLog::new().actor("ada")), ["a", "c", "a"]);
    assert_eq!(
        of(AuditLog::new().action("queues.pause").actor("ada")),
        ["c", "a"]
    );
    assert_eq!(of(AuditLog::new().target("b")), ["b"]);
    assert_eq!(of(AuditLog::new().limit(2)), ["a", "c"]);
    let all = entries(db);
    assert_eq!(of(AuditLog::new().before(all[2].id)), ["b", "a"]);
    assert_eq!(of(AuditLog::new().after(all[2].id)), ["a"]);
    let hour = chrono::TimeDelta::hours(1);
    assert_eq!(of(AuditLog::new().since(all[0].at - hour)).len(), 4);
    assert_eq!(of(AuditLog::new().since(all[0].at + hour)).len(), 0);
    assert_eq!(of(AuditLog::new().until(all[0].at + hour)).len(), 4);
    assert_eq!(of(AuditLog::new().until(all[0].at - hour)).len(), 0);
    assert_eq!(of(AuditLog::new().operation(1)).len(), 0);
    let states = Jobs::in_state(JobState::Ready);
    assert!(states.count(conn).is_ok());
}
