//! Arguments of old and of newer versions.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::testing::{self, RunOutcome};
use windlass::{
    Context, Event, Job, JobError, JobId, JobResult, NewJob, Policy, RecurringTask, Registry,
    Worker, jobs,
};

on_each_database!(
    old_arguments_are_converted,
    arguments_of_ruby_have_the_first_version,
    a_conversion_may_fail,
    an_old_program_leaves_newer_arguments_to_others,
    an_old_worker_releases_newer_arguments,
    an_old_worker_lets_newer_arguments_expire,
    recurring_tasks_keep_their_version,
    errors_hide_secrets_of_every_version,
    an_edited_job_has_the_version_of_its_new_arguments,
    what_waits_for_a_newer_program_is_explained,
);

/// The program before: one name.
#[derive(Debug, Serialize, Deserialize)]
struct First {
    name: String,
}

impl Job for First {
    const NAME: &'static str = "greet";
    type State = ();
    type Output = Vec<String>;

    fn perform(self, _: &Context<'_, ()>) -> JobResult<Vec<String>> {
        Ok(vec![self.name])
    }
}

/// The program after the next: version 2 had a list, version 3 has a greeting too.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Third {
    names: Vec<String>,
    greeting: String,
    secret: Option<u32>,
}

impl Job for Third {
    const NAME: &'static str = "greet";
    const VERSION: u32 = 3;
    const REDACT: &'static [&'static str] = &["secret", "pin"];
    type State = ();
    type Output = Vec<String>;

    fn upcast(version: u32, mut old: Value) -> Result<Value, JobError> {
        if version < 2 {
            let name = old["name"].as_str().ok_or("it has no name")?;
            old = json!({"names": [name], "secret": old.get("pin")});
        }
        old["greeting"] = json!(format!("from {version}"));
        Ok(old)
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult<Vec<String>> {
        let greet = |name: &String| format!("{name} {}", self.greeting);
        Ok(self.names.iter().map(greet).collect())
    }
}

fn third() -> Third {
    Third {
        names: vec!["c".into()],
        greeting: "now".into(),
        secret: None,
    }
}

fn old() -> Registry {
    Registry::new().register::<First>(())
}

fn new() -> Registry {
    Registry::new().register::<Third>(())
}

fn result(db: &TestDb, job: JobId) -> Option<Value> {
    let info = jobs::status(&mut db.connection(), job).unwrap().unwrap();
    info.result
}

fn old_arguments_are_converted(db: &TestDb) {
    let conn = &mut db.connection();
    let first = First { name: "a".into() }.enqueue(conn).unwrap().id;
    let second = NewJob::of_class("greet", r#"{"names":["b"]}"#).arguments_version(2);
    let second = second.enqueue(conn).unwrap().id;
    let current = third().enqueue(conn).unwrap().id;
    let waiting = testing::enqueued::<Third>(conn).unwrap();
    let names = waiting.iter().map(|job| &*job.arguments.names[0]);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c"]);
    let versions = [first, second, current].map(|job| {
        let shown = jobs::reveal(conn, job).unwrap().unwrap();
        shown.arguments_version.unwrap()
    });
    assert_eq!(versions, [1, 2, 3]);
    let drained = testing::drain(conn, &new()).unwrap();
    drained.assert_all_finished(3);
    assert_eq!(result(db, first), Some(json!(["a from 1"])));
    assert_eq!(result(db, second), Some(json!(["b from 2"])));
    assert_eq!(result(db, current), Some(json!(["c now"])));
    // A program of the first version stores none.
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE policy IS NULL"),
        1
    );
}

fn arguments_of_ruby_have_the_first_version(db: &TestDb) {
    let envelope = r#"{"job_class":"greet","arguments":[{"name":"r","_aj_symbol_keys":["name"]}],"executions":0}"#;
    let conn = &mut db.connection();
    let job = NewJob::of_class("greet", envelope)
        .enqueue(conn)
        .unwrap()
        .id;
    testing::drain(conn, &new()).unwrap().assert_all_finished(1);
    assert_eq!(result(db, job), Some(json!(["r from 1"])));
}

fn a_conversion_may_fail(db: &TestDb) {
    let conn = &mut db.connection();
    NewJob::of_class("greet", "[]").enqueue(conn).unwrap();
    let worse = NewJob::of_class("greet", r#"{"names":7}"#).arguments_version(2);
    worse
        .policy(Policy::new().max_attempts(2))
        .enqueue(conn)
        .unwrap();
    let drained = testing::drain(conn, &new()).unwrap();
    let RunOutcome::Failed(_, message) = &drained.runs[0].outcome else {
        panic!("{drained:?}");
    };
    assert!(message.contains("it has no name"), "{message}");
    let RunOutcome::Retried(kind, message, _) = &drained.runs[1].outcome else {
        panic!("{drained:?}");
    };
    assert_eq!(kind, "undecodable_arguments");
    assert!(message.contains("version 2"), "{message}");
}

fn an_old_program_leaves_newer_arguments_to_others(db: &TestDb) {
    let conn = &mut db.connection();
    let job = third().enqueue(conn).unwrap().id;
    let drained = testing::drain(conn, &old()).unwrap();
    assert!(matches!(drained.runs[0].outcome, RunOutcome::Snoozed(_)));
    assert_eq!(drained.runs.len(), 1);
    assert_eq!(jobs::status(conn, job).unwrap().unwrap().attempt, 0);
    testing::travel(conn, Duration::from_secs(3_600)).unwrap();
    testing::drain(conn, &new()).unwrap().assert_all_finished(1);
    assert_eq!(result(db, job), Some(json!(["c now"])));
    assert_eq!(jobs::status(conn, job).unwrap().unwrap().attempt, 1);
}

/// A job that cannot start on this worker has not started, so it expires.
fn an_old_worker_lets_newer_arguments_expire(db: &TestDb) {
    let released = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&released);
    let worker = Worker::new(&db.database, old())
        .subscriber(Subscriber::new(move |event| {
            if matches!(event, Event::Released { .. }) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }))
        .start()
        .unwrap();
    let job = NewJob::new(&third()).unwrap();
    let job = job.expires_in(Duration::from_secs(60));
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    until("it was released", || released.load(Ordering::Relaxed) > 0);
    worker.stop();
    testing::travel(&mut db.connection(), Duration::from_secs(3600)).unwrap();
    let worker = Worker::new(&db.database, new()).start().unwrap();
    let dispatcher = windlass::Dispatcher::new(&db.database);
    let dispatcher = dispatcher.polling_interval(Duration::from_millis(20));
    let _dispatcher = dispatcher.start().unwrap();
    until("it has ended", || {
        let info = jobs::status(&mut db.connection(), job).unwrap().unwrap();
        info.status == jobs::TaskStatus::Discarded
    });
    assert_eq!(result(db, job), None);
    worker.stop();
}

fn an_old_worker_releases_newer_arguments(db: &TestDb) {
    let released = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&released);
    let worker = Worker::new(&db.database, old())
        .subscriber(Subscriber::new(move |event| {
            if let Event::Released { why, .. } = event {
                assert!(why.contains("newer version"), "{why}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }))
        .start()
        .unwrap();
    let once = Policy::new().delivery(windlass::Delivery::AtMostOnce);
    let job = NewJob::new(&third()).unwrap().policy(once);
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    until("it was released", || released.load(Ordering::Relaxed) > 0);
    worker.stop();
    let info = jobs::status(&mut db.connection(), job).unwrap().unwrap();
    assert_eq!((info.attempt, info.error), (0, None));
    assert_eq!(db.rows("failed_executions"), 0);
}

fn recurring_tasks_keep_their_version(db: &TestDb) {
    let conn = &mut db.connection();
    let task = |key: &str, task: windlass::Result<RecurringTask>| {
        windlass::recurring::schedule(&mut db.connection(), &task.unwrap()).unwrap();
        windlass::recurring::run_now(&mut db.connection(), key).unwrap()
    };
    let first = First { name: "a".into() };
    let first = task("old", RecurringTask::new("old", "@yearly", &first));
    let new_task = task("new", RecurringTask::new("new", "@yearly", &third()));
    let drained = testing::drain(conn, &new()).unwrap();
    drained.assert_all_finished(2);
    assert_eq!(result(db, first), Some(json!(["a from 1"])));
    assert_eq!(result(db, new_task), Some(json!(["c now"])));
}

fn an_edited_job_has_the_version_of_its_new_arguments(db: &TestDb) {
    let conn = &mut db.connection();
    let old_one = NewJob::of_class("greet", r#"{"name":"a"}"#).tag("kept");
    let old_one = old_one.enqueue(conn).unwrap().id;
    let newer = third().enqueue(conn).unwrap().id;
    let by_name = NewJob::of_class("greet", r#"{"names":["d"]}"#).arguments_version(2);
    let by_name = by_name.enqueue(conn).unwrap().id;
    let current = r#"{"names":["b"],"greeting":"edited","secret":null}"#;
    jobs::edit_arguments(conn, old_one, current, Some(&new())).unwrap();
    // A program that only knows the first version writes this one.
    jobs::edit_arguments(conn, newer, r#"{"name":"c"}"#, Some(&old())).unwrap();
    // Without the type, it stays as it is.
    jobs::edit_arguments(conn, by_name, r#"{"names":["e"]}"#, None).unwrap();
    let shown = [old_one, newer, by_name].map(|job| {
        let shown = jobs::reveal(conn, job).unwrap().unwrap();
        shown.arguments_version.unwrap()
    });
    assert_eq!(shown, [3, 1, 2]);
    let tags = jobs::status(conn, old_one).unwrap().unwrap().tags;
    assert_eq!(tags, ["kept"]);
    testing::drain(conn, &new()).unwrap().assert_all_finished(3);
    assert_eq!(result(db, old_one), Some(json!(["b edited"])));
    assert_eq!(result(db, newer), Some(json!(["c from 1"])));
    assert_eq!(result(db, by_name), Some(json!(["e from 2"])));
}

/// Returns what keeps a job from being claimed, in JSON.
fn obstacles(db: &TestDb, job: JobId) -> Value {
    let explanation = jobs::explain(&mut db.connection(), job).unwrap().unwrap();
    serde_json::to_value(&explanation.reason).unwrap()["obstacles"].clone()
}

fn what_waits_for_a_newer_program_is_explained(db: &TestDb) {
    let hour = Duration::from_secs(3_600);
    let later = NewJob::new(&third()).unwrap().after(hour);
    let later = later.enqueue(&mut db.connection()).unwrap().id;
    let first = NewJob::of_class("greet", r#"{"name":"a"}"#).after(hour);
    let first = first.enqueue(&mut db.connection()).unwrap().id;
    let worker = Worker::new(&db.database, old()).start().unwrap();
    until("the worker is there", || db.rows("processes") == 1);
    let waits = json!({"is": "no_worker_for_version", "version": 3});
    let no_dispatcher = json!({"is": "no_dispatcher"});
    assert_eq!(obstacles(db, later), json!([no_dispatcher, waits]));
    assert_eq!(obstacles(db, first), json!([no_dispatcher]));
    // A worker claims it, and gives it back.
    let now = third().enqueue(&mut db.connection()).unwrap().id;
    until("it was given back", || {
        let found = obstacles(db, now);
        found.as_array().is_some_and(|found| found.contains(&waits))
            && db.rows("scheduled_executions") == 3
    });
    {
        let id = later.to_string();
        let said = crate::support::program::windlass(&db.url, &["explain", &id]);
        assert!(
            said.out.contains("its arguments have version 3"),
            "{said:?}"
        );
        assert!(
            said.out.contains("it waits for a newer program"),
            "{said:?}"
        );
    }
    worker.stop();
    let _worker = Worker::new(&db.database, new()).start().unwrap();
    until("a worker knows it", || {
        obstacles(db, later) == json!([no_dispatcher])
    });
}

fn errors_hide_secrets_of_every_version(db: &TestDb) {
    let conn = &mut db.connection();
    let job = r#"{"name":"a","pin":"hunter2"}"#;
    NewJob::of_class("greet", job).enqueue(conn).unwrap();
    let drained = testing::drain(conn, &new()).unwrap();
    let RunOutcome::Failed(kind, message) = &drained.runs[0].outcome else {
        panic!("{drained:?}");
    };
    assert_eq!(kind, "undecodable_arguments");
    assert!(!message.contains("hunter2"), "{message}");
    // An error quotes some letters.
    let job = r#"{"name":"a","pin":"say \"hunter2\"\n"}"#;
    NewJob::of_class("greet", job).enqueue(conn).unwrap();
    let drained = testing::drain(conn, &new()).unwrap();
    let RunOutcome::Failed(_, message) = &drained.runs[0].outcome else {
        panic!("{drained:?}");
    };
    assert!(message.contains("[hidden]"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn a_job_by_name_repeats_no_secret_in_its_error() {
    let arguments = r#"{"names":["a"],"greeting":"x","secret":"hunter2"}"#;
    let error = new().new_job("greet", arguments).unwrap_err().to_string();
    assert!(error.contains("do not match"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
