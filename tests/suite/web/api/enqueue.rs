//! Enqueues over HTTP that are accepted, and those that are refused.

use super::super::access::token;
use super::super::client::{Ask, serve};
use super::{Answer, Program};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use serde_json::json;
use windlass_console::web::Server;

const JOBS: &str = "/v1/jobs";
const LIST: &str = "/v1/jobs:batch";

fn a_job_is_enqueued(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body =
        json!({"class": "import", "arguments": {"file": "a.csv"}, "queue": "slow", "priority": 5});
    let answer = program.post(JOBS, &body.to_string());
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.json["outcome"], "new");
    let place = format!("/v1/jobs/{}", answer.id());
    assert_eq!(answer.reply.header("location"), Some(place.as_str()));
    let stored = db.texts(
        "SELECT class_name || ' ' || arguments || ' ' || queue_name || ' ' || CAST(priority AS text) AS t \
         FROM solid_queue_jobs",
    );
    assert_eq!(stored, ["import {\"file\":\"a.csv\"} slow 5"]);
    assert_eq!(db.rows("ready_executions"), 1);
    // Arguments are stored as they were sent.
    program.post(
        JOBS,
        "{\"class\": \"a\", \"arguments\": {\"b\" : 1.50, \"a\":12345678901234567890} }",
    );
    let stored = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id DESC LIMIT 1");
    assert_eq!(stored, ["{\"b\" : 1.50, \"a\":12345678901234567890}"]);
}

fn a_repeated_request_finds_the_job(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let send = |key: &str, body: &str| {
        let ask = program.ask("POST", JOBS).header("Idempotency-Key", key);
        Answer::of("post", JOBS, ask.json(body))
    };
    let first = send(
        "order/7",
        "{\"class\": \"ship\", \"arguments\": {\"a\": 1, \"b\": 2}}",
    );
    assert_eq!(first.status(), 202);
    // A proxy may write other spaces, and the draft of the header has quotes.
    let again = send(
        "\"order/7\"",
        "{\"class\":\"ship\",\"arguments\":{\"a\":1,\"b\":2}}",
    );
    assert_eq!((again.status(), again.id()), (200, first.id()));
    assert_eq!(again.json["outcome"], "existing");
    for body in [
        "{\"class\": \"ship\", \"arguments\": {\"a\": 1}}",
        "{\"class\": \"ship\", \"arguments\": {\"a\": 1, \"b\": 2.0}}",
        "{\"class\": \"bill\", \"arguments\": {\"a\": 1, \"b\": 2}}",
    ] {
        let said = send("order/7", body);
        let said = said.refused(422);
        assert!(
            said.contains("order/7") && said.contains("nothing was enqueued"),
            "{said}"
        );
    }
    let both = send(
        "order/8",
        "{\"class\": \"ship\", \"idempotency_key\": \"order/9\"}",
    );
    assert!(both.refused(400).contains("two keys"));
    let body = "{\"class\": \"ship\"}";
    assert!(send("", body).refused(400).contains("1 to 255 bytes"));
    assert_eq!(db.rows("jobs"), 1);
    // A job that is found by its unique id is no other request.
    let unique = |arguments: i32, key: &str| {
        let body = json!({"class": "index", "arguments": arguments, "unique_id": "index/7"});
        send(key, &body.to_string())
    };
    let (one, other) = (unique(1, "a"), unique(2, "b"));
    assert_eq!(
        (one.status(), other.status(), other.id()),
        (202, 200, one.id())
    );
}

fn a_held_unique_id_is_a_conflict(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body = |conflict: &str| {
        json!({"class": "index", "unique_id": "index/7", "on_conflict": conflict}).to_string()
    };
    let first = program.post(JOBS, &body("refuse"));
    let said = program.post(JOBS, &body("refuse"));
    assert!(said.refused(409).contains("index/7"));
    let replaced = program.post(JOBS, &body("replace"));
    assert_eq!(
        (replaced.status(), replaced.json["outcome"].as_str()),
        (202, Some("replaced"))
    );
    let list = format!("{{\"jobs\": [{{\"class\": \"a\"}}, {}]}}", body("refuse"));
    let many = program.post(LIST, &list);
    assert_eq!(many.json["jobs"][1]["outcome"], "refused");
    assert_eq!(first.status(), 202);
    assert_eq!(db.rows("jobs"), 2);
}

fn what_is_wrong_is_refused_in_its_own_terms(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    for (body, says) in [
        ("", "EOF"),
        ("{\"class\": \"a\"", "EOF"),
        ("[]", "a job is an object"),
        ("[\"a\"]", "a job is an object"),
        ("{}", "missing field `class`"),
        ("{\"class\": 7}", "expected a string"),
        ("{\"class\": \"\"}", "class name"),
        (
            "{\"class\": \"a\", \"class\": \"b\"}",
            "duplicate field `class`",
        ),
        ("{\"class\": \"a\", \"priority\": 1.5}", "expected i32"),
        (
            "{\"class\": \"a\", \"priority\": 3000000000}",
            "expected i32",
        ),
        (
            "{\"class\": \"a\", \"run_at\": \"tomorrow\"}",
            "invalid characters",
        ),
        (
            "{\"class\": \"a\", \"delay_seconds\": -1}",
            "`delay_seconds`",
        ),
        (
            "{\"class\": \"a\", \"delay_seconds\": 1, \"run_at\": \"2030-01-01T00:00:00Z\"}",
            "two times",
        ),
        (
            "{\"class\": \"a\", \"on_conflict\": \"explode\"}",
            "expected one of `existing`",
        ),
        (
            "{\"class\": \"a\", \"concurrency_limit\": 2}",
            "`concurrency_key`",
        ),
        (
            "{\"class\": \"a\", \"rates\": [{\"number\": 1, \"period\": \"day\", \"key\": \"a\\u001fb\"}]}",
            "no control character",
        ),
        (
            "{\"class\": \"a\", \"rates\": [{\"number\": 1, \"period\": \"week\"}]}",
            "second, minute, hour or day",
        ),
        (
            "{\"class\": \"a\", \"rates\": [{\"number\": 1, \"period\": \"day\", \"burts\": 2}]}",
            "a rate has no `burts`",
        ),
        (
            "{\"class\": \"a\", \"max_attempts\": 0}",
            "`max_attempts` is 1 or more",
        ),
        ("{\"class\": \"a\", \"arguments\": \"\\u0000\"}", "NUL"),
        ("{\"class\": \"a\", \"traceparent\": \"00\"}", "traceparent"),
        (
            "{\"class\": \"a\", \"unique_id\": \"u\", \"on_conflict\": \"replace\", \"idempotency_key\": \"k\"}",
            "leave the key out",
        ),
    ] {
        let answer = program.post(JOBS, body);
        let said = answer.refused(400);
        assert!(said.contains(says), "{body}: {said}");
        if body.contains("class") && body.ends_with('}') {
            let answer = program.post(
                LIST,
                &format!("{{\"jobs\": [{{\"class\": \"fine\"}}, {body}]}}"),
            );
            let said = answer.refused(400);
            assert!(said.contains(says), "{body}: {said}");
        }
    }
    let long = format!(
        "{{\"class\": \"a\", \"arguments\": \"{}\"}}",
        "x".repeat(70_000)
    );
    assert!(program.post(JOBS, &long).refused(400).contains("bytes"));
    let longer = format!(
        "{{\"class\": \"a\", \"arguments\": \"{}\"}}",
        "x".repeat(300_000)
    );
    assert!(
        program
            .post(JOBS, &longer)
            .refused(413)
            .contains("262144 bytes")
    );
    assert_eq!(db.rows("jobs"), 0);
}

fn what_is_no_json_of_a_program_is_refused(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let body = "{\"class\": \"a\"}";
    let ask = |name: &str, value: &str| {
        let ask = program.ask("POST", JOBS).json(body);
        Answer::of("post", JOBS, ask.header(name, value))
    };
    assert!(
        ask("Content-Type", "text/plain")
            .refused(403)
            .contains("page")
    );
    assert!(
        ask("Content-Encoding", "gzip")
            .refused(415)
            .contains("application/json")
    );
    // A page elsewhere is always named.
    ask("Origin", "https://evil.example").refused(403);
    ask("Sec-Fetch-Site", "cross-site").refused(403);
    ask("Host", "evil.example").refused(421);
    assert_eq!(ask("Sec-Fetch-Site", "same-origin").status(), 202);
    assert_eq!(
        ask("Content-Type", "Application/JSON; charset=utf-8").status(),
        202
    );
    assert_eq!(db.rows("jobs"), 2);
    let put = Ask::new(server.address(), "PUT", JOBS).json(body).send();
    assert_eq!(put.status, 405);
    assert_eq!(put.header("content-type"), Some("application/problem+json"));
}

fn a_list_is_enqueued_whole_or_not_at_all(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let jobs: Vec<_> = (0..1_000)
        .map(|n| json!({"class": "import", "arguments": n}))
        .collect();
    let list = json!({"jobs": jobs}).to_string();
    let send = |body: &str| {
        let ask = program.ask("POST", LIST).header("Idempotency-Key", "night");
        Answer::of("post", LIST, ask.json(body))
    };
    let (first, again) = (send(&list), send(&list));
    assert_eq!((first.status(), again.status()), (202, 200));
    let ids = |answer: &Answer| -> Vec<i64> {
        let jobs = answer.json["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["id"].as_i64().unwrap()).collect()
    };
    assert_eq!((ids(&first), ids(&first).len()), (ids(&again), 1_000));
    assert_eq!(db.rows("jobs"), 1_000);
    // One that was sent with other arguments, after some that are new.
    let other = json!({"jobs": [
        {"class": "new", "idempotency_key": "new/1"},
        {"class": "import", "arguments": 5, "idempotency_key": "night/4"},
    ]});
    let said = program.post(LIST, &other.to_string());
    assert!(said.refused(422).contains("jobs[1]"), "{said:?}");
    assert_eq!(db.rows("jobs"), 1_000);
    let other = json!({"jobs": [{"class": "new"}, ["new"]]});
    let said = program.post(LIST, &other.to_string());
    assert!(said.refused(400).contains("jobs[1]"), "{said:?}");
    assert!(
        program
            .post(LIST, "[[]]")
            .refused(400)
            .contains("an object")
    );
    let long = program
        .ask("POST", LIST)
        .header("Idempotency-Key", &"k".repeat(251));
    let long = Answer::of("post", LIST, long.json("{\"jobs\": []}"));
    assert!(long.refused(400).contains("1 to 250 bytes"));
    let empty = program.post(LIST, "{\"jobs\": []}");
    assert_eq!(empty.json, json!({"jobs": []}));
    let many = format!(
        "{{\"jobs\": [{}]}}",
        vec!["{\"class\": \"a\"}"; 10_001].join(",")
    );
    assert!(program.post(LIST, &many).refused(400).contains("10000"));
    let large = format!(
        "{{\"jobs\": [{}]}}",
        vec![
            format!(
                "{{\"class\": \"a\", \"arguments\": \"{}\"}}",
                "x".repeat(50_000)
            );
            60
        ]
        .join(",")
    );
    assert_eq!(program.post(LIST, &large).status(), 202);
    let larger = " ".repeat(4 * 1024 * 1024 + 1);
    assert!(program.post(LIST, &larger).refused(413).contains("4194304"));
    assert_eq!(db.rows("jobs"), 1_060);
}

fn classes_are_refused_as_by_name(db: &TestDb) {
    let said = windlass(&db.url, &["classes", "strict", "on"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let server = serve(&db.database);
    let program = Program::local(&server);
    let said = program.post(JOBS, "{\"class\": \"imprt\"}");
    assert!(said.refused(400).contains("imprt"));
    let said = program.post(LIST, "{\"jobs\": [{\"class\": \"imprt\"}]}");
    assert!(said.refused(400).contains("imprt"));
    assert_eq!(db.rows("jobs"), 0);
}

fn a_trace_goes_on_with_the_job(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for header in [trace, "nonsense"] {
        let ask = program.ask("POST", JOBS).header("traceparent", header);
        let answer = Answer::of("post", JOBS, ask.json("{\"class\": \"a\"}"));
        assert_eq!(answer.status(), 202);
    }
    let stored =
        db.texts("SELECT coalesce(traceparent, '-') AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(stored, [trace, "-"]);
}

fn each_database_has_its_own_jobs(db: &TestDb) {
    let other = TestDb::sqlite();
    let server = Server::new(&db.database)
        .database("other", &other.database)
        .listen("127.0.0.1:0");
    let server = server.start().unwrap();
    let ask = Ask::new(server.address(), "POST", "/db/other/v1/jobs").json("{\"class\": \"a\"}");
    let reply = ask.send();
    assert_eq!(reply.status, 202, "{reply:?}");
    assert!(
        reply
            .header("location")
            .unwrap()
            .starts_with("/db/other/v1/jobs/")
    );
    assert_eq!((db.rows("jobs"), other.rows("jobs")), (0, 1));
}

fn a_server_that_only_shows_enqueues_nothing(db: &TestDb) {
    let secret = token(db, "shop", "enqueuer", &[]);
    let server = Server::new(&db.database)
        .listen("127.0.0.1:0")
        .read_only(true);
    let server = server.start().unwrap();
    for (name, role) in [("ben", "operator"), ("eve", "viewer")] {
        let secret = token(db, name, role, &[]);
        let answer = Program::with_token(&server, &secret).post(JOBS, "{\"class\": \"a\"}");
        assert!(answer.refused(403).contains("read-only"));
    }
    let answer = Program::with_token(&server, &secret).post(JOBS, "{\"class\": \"a\"}");
    assert!(answer.refused(403).contains("read-only"), "{answer:?}");
    assert_eq!(db.rows("jobs"), 0);
}

on_each_database!(
    a_job_is_enqueued,
    a_repeated_request_finds_the_job,
    a_held_unique_id_is_a_conflict,
    what_is_wrong_is_refused_in_its_own_terms,
    what_is_no_json_of_a_program_is_refused,
    a_list_is_enqueued_whole_or_not_at_all,
    classes_are_refused_as_by_name,
    a_trace_goes_on_with_the_job,
    each_database_has_its_own_jobs,
    a_server_that_only_shows_enqueues_nothing,
);
