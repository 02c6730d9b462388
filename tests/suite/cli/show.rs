//! `windlass jobs show`: everything of a job, but no secret.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::program::windlass;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{Backoff, Context, Job, JobResult, NewJob, Policy, Registry, Worker};

on_each_database!(
    a_job_is_shown_without_its_secrets,
    arguments_of_an_unknown_class_are_hidden,
    errors_repeat_no_secret,
    classes_that_no_worker_names_are_forgotten,
);

#[derive(Serialize, Deserialize)]
struct Card {
    number: String,
    name: String,
}

/// Fails once, after a step.
#[derive(Serialize, Deserialize)]
struct Pay {
    token: String,
    card: Card,
    cents: u32,
}

impl Job for Pay {
    const NAME: &'static str = "pay";
    const REDACT: &'static [&'static str] = &["token", "card.number"];
    type State = ();
    type Output = u32;

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(2)
            .backoff(Backoff::Fixed(Duration::from_secs(3600)))
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult<u32> {
        let mut conn = cx.connection()?;
        cx.step(&mut conn, "charge", |_| {
            Ok::<_, windlass::JobError>(self.cents)
        })?;
        Err("550 no such mailbox".into())
    }
}

fn pay() -> Pay {
    Pay {
        token: "hunter2".to_owned(),
        card: Card {
            // No name of a process contains it.
            number: "4711-0815".to_owned(),
            name: "Ada".to_owned(),
        },
        cents: 1200,
    }
}

fn worker(db: &TestDb, events: &Events) -> windlass::Handle {
    let registry = Registry::new().register::<Pay>(());
    Worker::new(&db.database, registry)
        .subscriber(events.subscriber())
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_secs(20))
        .start()
        .unwrap()
}

fn classes(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM windlass_classes")
}

fn a_job_is_shown_without_its_secrets(db: &TestDb) {
    let events = Events::default();
    let _worker = worker(db, &events);
    let job = pay().enqueue(&mut db.connection()).unwrap().id.to_string();
    until("it waits for its second attempt", || {
        db.rows("scheduled_executions") == 1 && classes(db) == 1
    });
    let said = windlass(&db.url, &["jobs", "show", &job]);
    assert!(said.is_done(), "{said:?}");
    for part in [
        "Job 1 (pay) on the queue default",
        "\"token\": \"[hidden]\"",
        "\"number\": \"[hidden]\"",
        "\"name\": \"Ada\"",
        "\"cents\": 1200",
        "550 no such mailbox",
        "charge: 1200",
        "  enqueued\n",
        "  retried: ",
    ] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    assert!(!said.out.contains("hunter2") && !said.out.contains("4711-0815"));
    let json = windlass(&db.url, &["jobs", "show", &job, "--json"]).json();
    assert_eq!(json["arguments"]["token"], "[hidden]");
    assert_eq!(json["arguments"]["card"]["number"], "[hidden]");
    assert_eq!(json["task"]["attempt"], 1);
    assert_eq!(json["attempts"][0]["outcome"], "retried");
    assert_eq!(json["steps"][0]["name"], "charge");
    assert_eq!(json["timeline"][0]["what"], "enqueued");
    let json = windlass(
        &db.url,
        &["jobs", "show", &job, "--json", "--show-arguments"],
    )
    .json();
    assert_eq!(json["arguments"]["token"], "hunter2");
    assert_eq!(json["arguments"]["card"]["number"], "4711-0815");
}

fn arguments_of_an_unknown_class_are_hidden(db: &TestDb) {
    let job = NewJob::of_class("other", r#"{"token":"hunter2"}"#);
    let job = job.unique_id("a").enqueue(&mut db.connection()).unwrap().id;
    let said = windlass(&db.url, &["jobs", "show", "a"]);
    assert!(said.is_done(), "{said:?}");
    assert!(
        said.out.contains("[hidden]: no worker has registered"),
        "{said:?}"
    );
    let json = windlass(&db.url, &["jobs", "show", &job.to_string(), "--json"]);
    assert!(!json.out.contains("hunter2"), "{json:?}");
    assert_eq!(json.json()["unknown_class"], true);
    let said = windlass(&db.url, &["jobs", "show", "a", "--show-arguments"]);
    assert!(said.out.contains("hunter2"), "{said:?}");
    let said = windlass(&db.url, &["jobs", "show", "4711"]);
    assert!(said.err.contains("there is no job `4711`"), "{said:?}");
}

fn errors_repeat_no_secret(db: &TestDb) {
    let events = Events::default();
    let _worker = worker(db, &events);
    let wrong = r#"{"token":"t","card":{"number":"hunter2","name":"Ada"},"cents":"hunter2"}"#;
    NewJob::of_class("pay", wrong)
        .enqueue(&mut db.connection())
        .unwrap();
    until("it has been tried", || db.rows("scheduled_executions") == 1);
    let error = &db.texts("SELECT kind || ' ' || message AS t FROM windlass_attempts")[0];
    assert!(error.contains("undecodable_arguments"), "{error}");
    assert!(
        error.contains("[hidden]") && !error.contains("hunter2"),
        "{error}"
    );
}

fn classes_that_no_worker_names_are_forgotten(db: &TestDb) {
    let events = Events::default();
    let _worker = worker(db, &events);
    until("the worker has named its class", || classes(db) == 1);
    db.execute(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at) \
         VALUES ('old', 'default', '[]', '2020-01-01 00:00:00.000000')",
    );
    let _supervisor = windlass::Supervisor::new(&db.database).start().unwrap();
    until("the old one is forgotten", || classes(db) == 1);
    let left = db.texts("SELECT class_name AS t FROM windlass_classes");
    assert_eq!(left, ["pay"]);
}
