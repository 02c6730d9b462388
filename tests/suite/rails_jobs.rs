//! Jobs of Ruby that Rust enqueues: what Active Job would have written.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use windlass::ruby::{self, BigDecimal, Date, GlobalId, Module, Symbol, SymbolKeys, Time};
use windlass::schema::{self, RailsOption};
use windlass::{
    Concurrency, Context, Error, Job, JobResult, NewJob, OnConflict, Policy, Registry, Worker,
};

fn envelopes(db: &TestDb) -> Vec<Value> {
    let rows = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id");
    rows.iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

#[derive(Serialize)]
struct Options {
    reply: bool,
}

fn a_ruby_job_carries_the_envelope_of_active_job(db: &TestDb) {
    let user: GlobalId = "gid://app/User/7".parse().unwrap();
    let job = NewJob::ruby("Reports::BuildJob")
        .arg(1)
        .arg(user)
        .arg(json!([Symbol("a".into()), null]))
        .arg(Options { reply: true })
        .kwarg("to", SymbolKeys(Options { reply: false }))
        .kwarg("wait", ruby::Duration(300))
        .kwarg("on", Date("2026-11-25".parse().unwrap()))
        .kwarg("at", Time("2026-11-25T01:02:03.5Z".parse().unwrap()))
        .kwarg("price", BigDecimal("12.50".into()))
        .kwarg("by", Module("Mailer".into()))
        .queue("ruby")
        .priority(3);
    let enqueued = job.clone().enqueue(&mut db.connection()).unwrap();
    assert!(enqueued.is_new);
    let envelope = &envelopes(db)[0];
    for (field, value) in [
        ("job_class", json!("Reports::BuildJob")),
        ("provider_job_id", Value::Null),
        ("queue_name", json!("ruby")),
        ("priority", json!(3)),
        ("executions", json!(0)),
        ("exception_executions", json!({})),
        ("locale", json!("en")),
        ("timezone", json!("UTC")),
    ] {
        assert_eq!(envelope[field], value, "{field}");
    }
    let of = |name: &str, value: &str| json!({"_aj_serialized": format!("ActiveJob::Serializers::{name}Serializer"), "value": value});
    let mut wait = of("Duration", "");
    wait["value"] = 300.into();
    wait["parts"] = json!([[of("Symbol", "seconds"), 300]]);
    let expected = json!([
        1,
        {"_aj_globalid": "gid://app/User/7"},
        [of("Symbol", "a"), null],
        {"reply": true},
        {
            "to": {"reply": false, "_aj_symbol_keys": ["reply"]},
            "wait": wait,
            "on": of("Date", "2026-11-25"),
            "at": of("Time", "2026-11-25T01:02:03.500000000Z"),
            "price": of("BigDecimal", "12.50"),
            "by": of("Module", "Mailer"),
            "_aj_ruby2_keywords": ["at", "by", "on", "price", "to", "wait"],
        },
    ]);
    assert_eq!(envelope["arguments"], expected);
    let ids = db.texts("SELECT active_job_id AS t FROM solid_queue_jobs");
    assert_eq!(envelope["job_id"], ids[0]);
    for at in ["enqueued_at", "scheduled_at"] {
        let at = envelope[at].as_str().unwrap();
        assert!(chrono::DateTime::parse_from_rfc3339(at).is_ok(), "{at}");
    }
    assert_eq!(
        db.texts("SELECT queue_name || ' ' || priority AS t FROM solid_queue_ready_executions"),
        ["ruby 3"]
    );
    // Each has an id of its own, and those of a later time say which.
    let later = [job.clone(), job.after(Duration::from_secs(3_600))];
    windlass::enqueue_all(&mut db.connection(), later).unwrap();
    assert_eq!(
        db.count("SELECT count(DISTINCT active_job_id) AS n FROM solid_queue_jobs"),
        3
    );
    let envelopes = envelopes(db);
    let seconds = |field: &str| {
        chrono::DateTime::parse_from_rfc3339(envelopes[2][field].as_str().unwrap())
            .unwrap()
            .timestamp()
    };
    assert_eq!(seconds("scheduled_at") - seconds("enqueued_at"), 3_600);
    assert_eq!(db.rows("scheduled_executions"), 1);
}

/// The real Active Job opens the envelopes, as a worker of Solid Queue has it do. That of Debian is 6.1, which passes no
/// `BigDecimal` yet.
#[test]
fn active_job_performs_what_rust_enqueued() {
    let db = TestDb::sqlite();
    let user: GlobalId = "gid://app/User/7".parse().unwrap();
    let rust = NewJob::ruby("Reports::BuildJob")
        .arg(user)
        .arg(json!([Symbol("a".into()), null]))
        .arg(Options { reply: true })
        .arg(Module("Mailer".into()))
        .kwarg("to", SymbolKeys(Options { reply: false }))
        .kwarg("wait", ruby::Duration(300))
        .kwarg("on", Date("2026-11-25".parse().unwrap()))
        .kwarg("at", Time("2026-11-25T01:02:03.5Z".parse().unwrap()));
    let plain = NewJob::ruby("Reports::BuildJob").arg("text").queue("later");
    windlass::enqueue_all(&mut db.connection(), [rust, plain]).unwrap();
    let lines = db
        .texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id")
        .join("\n");
    let program = std::env::var_os("WINDLASS_TEST_RUBY").unwrap_or_else(|| "ruby".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/active_job.rb");
    let mut program = Command::new(program)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install ruby and ruby-activejob, or run ./bin/test");
    program
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let done = program.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "install ruby-activejob, or run ./bin/test"
    );
    assert_eq!(
        String::from_utf8(done.stdout)
            .unwrap()
            .lines()
            .collect::<Vec<_>>(),
        [
            "default User 7, [:a, nil], {\"reply\": true}, Mailer, at: 2026-11-25T01:02:03.5Z, on: 2026-11-25, \
             to: {:reply: false}, wait: ActiveSupport::Duration 300",
            "later \"text\"",
        ]
    );
}

/// A class of Ruby is known to no worker of Rust.
fn unknown_classes_of_ruby_are_enqueued_where_others_are_refused(db: &TestDb) {
    let mut conn = db.connect();
    windlass::audit::Actor::named("test")
        .set_strict_classes(&mut conn, true)
        .unwrap();
    NewJob::ruby("BuildJob").enqueue(&mut conn).unwrap();
    let unknown = NewJob::of_class("BuildJob", "{}").enqueue(&mut conn);
    assert!(
        matches!(unknown, Err(Error::UnknownClass { .. })),
        "{unknown:?}"
    );
    assert_eq!(envelopes(db)[0]["arguments"], json!([]));
}

/// The id goes with the envelope, and shows whether Ruby performs the job.
fn a_replaced_job_has_the_id_of_the_new_one(db: &TestDb) {
    let mut conn = db.connect();
    let named = |job: NewJob| {
        job.unique_id("u")
            .policy(Policy::new().on_conflict(OnConflict::Replace))
    };
    let ids = || db.texts("SELECT coalesce(active_job_id, '-') AS t FROM solid_queue_jobs");
    named(NewJob::of_class("note", "{}"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(ids(), ["-"]);
    named(NewJob::ruby("BuildJob")).enqueue(&mut conn).unwrap();
    assert_eq!(ids(), [envelopes(db)[0]["job_id"].as_str().unwrap()]);
    named(NewJob::of_class("note", "{}"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(ids(), ["-"]);
    schema::set_rails_option(&mut conn, RailsOption::ActiveJobEnvelopes, true).unwrap();
    named(NewJob::of_class("note", "{\"n\":1}"))
        .enqueue(&mut conn)
        .unwrap();
    assert!(ids()[0].starts_with("windlass-"));
    assert_eq!(envelopes(db)[0]["arguments"], json!([{"n": 1}]));
    named(NewJob::ruby("BuildJob").arg(7))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(envelopes(db)[0]["arguments"], json!([7]));
    assert_eq!(ids(), [envelopes(db)[0]["job_id"].as_str().unwrap()]);
}

/// Only the program's own code enqueues it.
#[derive(Serialize, Deserialize)]
struct Internal;

impl Job for Internal {
    const NAME: &'static str = "Internal";
    const INTERNAL: bool = true;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn what_ruby_cannot_be_passed_is_refused(db: &TestDb) {
    let mut conn = db.connect();
    let _worker = Worker::new(&db.database, Registry::new().register::<Internal>(()))
        .start()
        .unwrap();
    until("its class is known", || {
        db.count("SELECT count(*) AS n FROM windlass_classes WHERE class_name = 'Internal'") == 1
    });
    let too_deep = |depth: usize| (0..depth).fold(Value::Null, |inner, _| json!([inner]));
    let cases = [
        (NewJob::ruby("build_job"), "no name of a Ruby class"),
        (
            NewJob::ruby("BuildJob").kwarg("a", 1).kwarg("a", 2),
            "there twice",
        ),
        (NewJob::ruby("BuildJob").kwarg("", 1), "is empty"),
        (
            NewJob::ruby("BuildJob").arg(json!({"_aj_globalid": "gid://a/B/1", "b": 2})),
            "`_aj_globalid`",
        ),
        (
            NewJob::ruby("BuildJob").arg(SymbolKeys(7)),
            "argument 1 is no JSON",
        ),
        (NewJob::ruby("BuildJob").arg("x".repeat(70_000)), "bytes"),
        (NewJob::ruby("BuildJob").arg(too_deep(130)), "nested"),
        (NewJob::ruby("BuildJob").arg("a\0b"), "NUL"),
        (NewJob::of_class("note", "{}").arg(1), "`NewJob::ruby`"),
        (NewJob::ruby("Internal"), "internal"),
        (
            NewJob::ruby("BuildJob").concurrency(Concurrency::new("k")),
            "does not hold for jobs that Ruby performs",
        ),
    ];
    for (job, reason) in cases {
        let error = job.enqueue(&mut conn).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}: {reason}");
    }
    assert_eq!(db.rows("jobs"), 0);
}

on_each_database!(
    a_ruby_job_carries_the_envelope_of_active_job,
    unknown_classes_of_ruby_are_enqueued_where_others_are_refused,
    a_replaced_job_has_the_id_of_the_new_one,
    what_ruby_cannot_be_passed_is_refused,
);
