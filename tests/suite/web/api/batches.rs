//! Batches over HTTP.

use super::super::access::token;
use super::super::client::serve;
use super::{Answer, Program};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::Registry;

const BATCHES: &str = "/v1/batches";

on_each_database!(
    a_batch_is_enqueued_with_its_jobs,
    a_repeated_request_opens_no_second_batch,
    what_is_no_batch_is_refused,
    jobs_join_a_batch_that_is_open,
    a_token_with_limits_reaches_no_other_batch,
);

fn two_jobs() -> Value {
    json!([{"class": "note", "arguments": {"text": "a"}}, {"class": "note", "arguments": {"text": "b"}, "queue": "slow"}])
}

fn with_key(program: &Program<'_>, key: &str, body: &Value) -> Answer {
    let ask = program.ask("POST", BATCHES).header("Idempotency-Key", key);
    Answer::of("post", BATCHES, ask.json(&body.to_string()))
}

fn batches(db: &TestDb) -> i64 {
    db.rows("batches")
}

fn a_batch_is_enqueued_with_its_jobs(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body = json!({
        "name": "import", "metadata": {"by": "ada"}, "jobs": two_jobs(),
        "on_success": [{"class": "note", "arguments": {"text": "done"}}],
        "on_failure": [{"class": "note", "arguments": {"text": "failed"}}],
    });
    let opened = program.post(BATCHES, &body.to_string());
    assert_eq!(opened.status(), 202, "{opened:?}");
    assert_eq!(opened.json["jobs"].as_array().map(Vec::len), Some(2));
    let path = format!("{BATCHES}/{}", opened.json["id"]);
    let is_there = opened
        .reply
        .header("location")
        .is_some_and(|at| at.ends_with(&path));
    assert!(is_there, "{opened:?}");
    let status = program.get(&path);
    let told = |answer: &Answer, field: &str| answer.json[field].clone();
    assert_eq!(
        (
            told(&status, "name"),
            told(&status, "open"),
            told(&status, "is_over")
        ),
        (json!("import"), json!(2), json!(false))
    );
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _drained = windlass::testing::drain(&mut db.connection(), &registry).unwrap();
    assert_eq!(log.lines().len(), 3, "{:?}", log.lines());
    let status = program.get(&path);
    assert_eq!(
        (told(&status, "open"), told(&status, "failures")),
        (json!(0), json!(0))
    );
    assert_eq!(
        db.texts("SELECT metadata AS t FROM solid_queue_batches"),
        ["{\"by\":\"ada\"}"]
    );
    assert_eq!(program.get(&format!("{BATCHES}/999")).status(), 404);
    assert_eq!(program.get(&format!("{BATCHES}/x")).status(), 400);
}

fn a_repeated_request_opens_no_second_batch(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body = json!({"name": "import", "jobs": two_jobs(), "on_finish": [{"class": "note"}]});
    let first = with_key(&program, "k", &body);
    assert_eq!(first.status(), 202, "{first:?}");
    let again = with_key(&program, "k", &body);
    assert_eq!(
        (again.status(), &again.json["id"]),
        (200, &first.json["id"])
    );
    let more = json!({"name": "import", "jobs": [two_jobs()[0], two_jobs()[1], {"class": "note"}]});
    assert_eq!(with_key(&program, "k", &more).status(), 422);
    let other = json!({"name": "import", "jobs": [{"class": "other"}]});
    assert_eq!(with_key(&program, "k", &other).status(), 422);
    let fewer = json!({"name": "import", "jobs": [two_jobs()[0]]});
    assert_eq!(with_key(&program, "k", &fewer).status(), 422);
    let renamed = json!({"name": "export", "jobs": two_jobs()});
    assert_eq!(with_key(&program, "k", &renamed).status(), 422);
    let described = json!({"name": "import", "jobs": two_jobs(), "metadata": 1});
    assert_eq!(with_key(&program, "k", &described).status(), 422);
    let unique = json!({"name": "import", "jobs": [{"class": "note", "unique_id": "u"}]});
    assert_eq!(with_key(&program, "u", &unique).status(), 202);
    // Found by its unique id, it is a job of another batch.
    assert_eq!(program.post(BATCHES, &unique.to_string()).status(), 422);
    let without = json!({"name": "import", "jobs": []});
    assert_eq!(with_key(&program, "k", &without).status(), 400);
    assert_eq!((batches(db), db.rows("jobs")), (2, 4));
}

fn what_is_no_batch_is_refused(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let unique = json!([{"class": "note", "unique_id": "u"}]);
    for body in [
        json!([]),
        json!({}),
        json!({"name": "a b", "jobs": two_jobs()}),
        json!({"name": "a", "jobs": two_jobs(), "more": 1}),
        json!({"name": "a", "jobs": [{"class": "a b"}]}),
        json!({"name": "a", "jobs": two_jobs(), "metadata": "x".repeat(70_000)}),
        json!({"name": "a", "jobs": two_jobs(), "on_success": unique}),
    ] {
        let refused = program.post(BATCHES, &body.to_string());
        assert_eq!(refused.status(), 400, "{body}: {refused:?}");
    }
    assert_eq!((batches(db), db.rows("jobs")), (0, 0));
}

fn jobs_join_a_batch_that_is_open(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body = json!({"name": "import", "jobs": two_jobs()});
    let batch = program.post(BATCHES, &body.to_string()).json["id"].clone();
    let job = |more: Value| {
        let mut job = json!({"class": "note", "arguments": {"text": "c"}});
        for (key, value) in more.as_object().unwrap() {
            job[key] = value.clone();
        }
        program.post("/v1/jobs", &job.to_string()).status()
    };
    assert_eq!(job(json!({ "batch_id": batch })), 202);
    assert_eq!(
        job(json!({ "after_batch": batch, "runs_on": "finish" })),
        202
    );
    assert_eq!(job(json!({ "batch_id": 999 })), 404);
    assert_eq!(job(json!({ "after_batch": 999 })), 404);
    assert_eq!(job(json!({ "runs_on": "finish" })), 400);
    let path = format!("{BATCHES}/{batch}");
    assert_eq!(program.get(&path).json["open"], 3);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _drained = windlass::testing::drain(&mut db.connection(), &registry).unwrap();
    assert_eq!(log.lines().len(), 4);
    assert_eq!(program.get(&path).json["open"], 0);
    assert_eq!(job(json!({ "batch_id": batch })), 409);
}

fn a_token_with_limits_reaches_no_other_batch(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "shop", "enqueuer", &["--class", "note"]);
    let program = Program::with_token(&server, &secret);
    let body = json!({"name": "import", "jobs": two_jobs()});
    let batch = program.post(BATCHES, &body.to_string());
    assert_eq!(batch.status(), 202, "{batch:?}");
    let id = batch.json["id"].clone();
    for body in [
        json!({"name": "a", "jobs": [{"class": "wipe"}]}),
        json!({"name": "a", "jobs": two_jobs(), "on_finish": [{"class": "wipe"}]}),
        json!({"name": "a", "jobs": [{"class": "note", "batch_id": id}]}),
    ] {
        assert_eq!(
            program.post(BATCHES, &body.to_string()).status(),
            403,
            "{body}"
        );
    }
    for option in ["batch_id", "after_batch"] {
        let body = json!({"class": "note", option: id});
        program.post("/v1/jobs", &body.to_string()).refused(403);
    }
    program.get(&format!("{BATCHES}/{id}")).refused(403);
    assert_eq!((batches(db), db.rows("jobs")), (1, 2));
}
