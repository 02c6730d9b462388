//! Jobs that are functions.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::testing::{RunOutcome, drain};
use windlass::{Function, NewJob, Policy, Registry, Worker};

on_each_database!(
    a_function_is_performed,
    a_function_has_queue_priority_and_policy,
    arguments_that_do_not_match_hide_secrets,
    text_and_envelopes_are_arguments,
);

crate::through_a_pooler_in_all!(
    a_function_is_performed,
    a_function_has_queue_priority_and_policy,
    arguments_that_do_not_match_hide_secrets,
    text_and_envelopes_are_arguments,
);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Welcome {
    email: String,
    #[serde(default)]
    token: Option<u64>,
}

impl Welcome {
    fn new(email: &str) -> Self {
        Welcome {
            email: email.to_owned(),
            token: None,
        }
    }
}

const WELCOME: Function<Welcome> = Function::new("send_welcome");

const URGENT: Function<Welcome> = WELCOME
    .queue("mail")
    .priority(-3)
    .aliases(&["old_welcome"])
    .redact(&["token"])
    .policy(|| Policy::new().max_attempts(2));

fn a_function_is_performed(db: &TestDb) {
    let log = Arc::new(Log::default());
    let seen = Arc::clone(&log);
    let registry = Registry::new().function(WELCOME, move |args, cx| {
        seen.add(format!(
            "{} {} {}",
            cx.class_name(),
            cx.attempt(),
            args.email
        ));
        Ok(args.email.len())
    });
    let policy = Policy::new().keep_result(Duration::from_secs(3600));
    let job = WELCOME.job(&Welcome::new("ada")).unwrap().policy(policy);
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("it has run", || log.len() == 1);
    assert_eq!(log.lines(), ["send_welcome 1 ada"]);
    let info = windlass::jobs::wait_for(&db.database, job, DEADLINE).unwrap();
    assert_eq!(info.unwrap().result, Some(3.into()));
}

fn a_function_has_queue_priority_and_policy(db: &TestDb) {
    let mut conn = db.connect();
    URGENT.enqueue(&mut conn, &Welcome::new("ada")).unwrap();
    let text = "SELECT queue_name || ' ' || priority || ' ' || class_name || ' ' || arguments || ' ' \
         || coalesce(max_attempts, 1) AS t FROM solid_queue_jobs";
    assert_eq!(
        db.texts(text),
        [r#"mail -3 send_welcome {"email":"ada","token":null} 2"#]
    );
    let registry = Registry::new().function(URGENT, |_, _| Err::<(), _>("busy".into()));
    let classes: Vec<&str> = registry.classes().collect();
    assert_eq!(classes, ["old_welcome", "send_welcome"]);
    let drained = drain(&mut conn, &registry).unwrap();
    let outcome = &drained.runs[0].outcome;
    assert!(matches!(outcome, RunOutcome::Retried(..)), "{outcome:?}");
}

fn arguments_that_do_not_match_hide_secrets(db: &TestDb) {
    let mut conn = db.connect();
    let wrong = NewJob::of_class("old_welcome", r#"{"email":"ada","token":"s3cret"}"#);
    wrong.enqueue(&mut conn).unwrap();
    let registry = Registry::new().function(URGENT, |_, _| Ok(()));
    let drained = drain(&mut conn, &registry).unwrap();
    let outcome = format!("{:?}", drained.runs[0].outcome);
    assert!(outcome.contains("undecodable_arguments"), "{outcome}");
    assert!(outcome.contains("do not match `send_welcome`"), "{outcome}");
    assert!(!outcome.contains("s3cret"), "{outcome}");
}

fn text_and_envelopes_are_arguments(db: &TestDb) {
    let mut conn = db.connect();
    let log = Arc::new(Log::default());
    let seen = Arc::clone(&log);
    let registry = Registry::new().function(WELCOME, move |args, _| {
        seen.add(args.email);
        Ok(())
    });
    let ruby = r#"{"job_class":"send_welcome","arguments":[{"email":"ruby"}],"executions":0}"#;
    for text in [r#"{"email":"text"}"#, ruby] {
        let job = registry.new_job("send_welcome", text).unwrap();
        job.enqueue(&mut conn).unwrap();
    }
    let refused = registry.new_job("send_welcome", "{}").unwrap_err();
    assert!(refused.to_string().contains("email"), "{refused}");
    drain(&mut conn, &registry).unwrap().assert_all_finished(2);
    assert_eq!(log.lines(), ["text", "ruby"]);
}

#[test]
#[should_panic(expected = "two job types are registered as `send_welcome`")]
fn two_functions_of_one_name_are_refused() {
    let _ = Registry::new()
        .function(WELCOME, |_, _| Ok(()))
        .function(WELCOME, |_, _| Ok(()));
}
