//! Tokens that are limited to classes and queues.

use super::super::access::token;
use super::super::client::{Reply, get, serve};
use super::{Answer, Program};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use serde_json::json;

const JOBS: &str = "/v1/jobs";

fn an_enqueuer_needs_its_token(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "shop", "enqueuer", &[]);
    let body = "{\"class\": \"a\"}";
    let enqueuer = Program::with_token(&server, &secret);
    let id = enqueuer.post(JOBS, body).id();
    assert_eq!(enqueuer.get(&format!("{JOBS}/{id}")).status(), 200);
    let none = Program::local(&server).post(JOBS, body);
    assert!(none.refused(401).contains("token"));
    assert_eq!(none.reply.header("www-authenticate"), Some("Bearer"));
    Program::with_token(&server, "windlass_0")
        .post(JOBS, body)
        .refused(401);
    let viewer = Program::with_token(&server, &token(db, "eve", "viewer", &[]));
    assert!(viewer.post(JOBS, body).refused(403).contains("enqueuer"));
    assert_eq!(viewer.get(&format!("{JOBS}/{id}")).status(), 200);
    // It shows no pages, and tells nothing about them.
    for path in ["/", "/jobs", "/nowhere"] {
        let ask = enqueuer.ask("GET", path).send();
        assert!([401, 403].contains(&ask.status), "{path}: {ask:?}");
    }
    get(&server, "/v1/openapi.json").expect(200);
    let said = windlass(&db.url, &["web", "tokens", "revoke", "shop"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    enqueuer.post(JOBS, body).refused(401);
    assert_eq!(db.rows("jobs"), 1);
}

fn a_token_enqueues_its_classes_to_its_queues(db: &TestDb) {
    let server = serve(&db.database);
    let limits = [
        "--class", "mail/*", "--class", "bill", "--queue", "default", "--queue", "slow*",
    ];
    let secret = token(db, "shop", "enqueuer", &limits);
    let program = Program::with_token(&server, &secret);
    for (body, may) in [
        (json!({"class": "mail/welcome"}), true),
        (json!({"class": "bill", "queue": "slower"}), true),
        (json!({"class": "billing"}), false),
        (json!({"class": "bill", "queue": "fast"}), false),
        (json!({"class": "bill", "unique_id": "a"}), true),
        (
            json!({"class": "bill", "unique_id": "b", "on_conflict": "replace"}),
            false,
        ),
        (
            json!({"class": "bill", "unique_id": "b", "on_conflict": "run_again"}),
            false,
        ),
        (json!({"class": "bill", "concurrency_key": "a"}), true),
        (
            json!({"class": "bill", "concurrency_key": "b", "concurrency_group": "mail/7"}),
            true,
        ),
        (
            json!({"class": "bill", "concurrency_key": "b", "concurrency_group": "wipe"}),
            false,
        ),
        (
            json!({"class": "mail/a", "concurrency_key": "receipt/7"}),
            true,
        ),
        (
            json!({"class": "bill", "concurrency_key": "receipt/7"}),
            false,
        ),
        (
            json!({"class": "bill", "rates": [{"number": 1, "period": "day"}]}),
            true,
        ),
        (
            json!({"class": "bill", "rates": [{"number": 1, "period": "day", "key": "mail/a"}]}),
            true,
        ),
        (
            json!({"class": "bill", "rates": [{"number": 1, "period": "day", "key": "wipe"}]}),
            false,
        ),
    ] {
        let before = db.rows("jobs");
        let one = program.post(JOBS, &body.to_string());
        let list = program.post(
            "/v1/jobs:batch",
            &json!({"jobs": [{"class": "bill"}, body]}).to_string(),
        );
        if may {
            assert!(
                one.status() < 300 && list.status() < 300,
                "{body}: {one:?} {list:?}"
            );
        } else {
            assert!(one.refused(403).contains("may not"), "{one:?}");
            assert!(list.refused(403).starts_with("jobs[1]: "), "{list:?}");
            assert_eq!(db.rows("jobs"), before, "{body}");
        }
    }
    let listed = windlass(&db.url, &["web", "tokens", "list"]);
    assert!(
        listed.out.contains("mail/*, bill to default, slow*"),
        "{listed:?}"
    );
    let listed = windlass(&db.url, &["web", "tokens", "list", "--json"]).json();
    let limits = json!({"classes": ["mail/*", "bill"], "queues": ["default", "slow*"]});
    assert_eq!(listed["tokens"][0]["limits"], limits);
}

fn a_token_sees_what_became_of_its_classes(db: &TestDb) {
    let server = serve(&db.database);
    let all = Program::with_token(&server, &token(db, "all", "enqueuer", &[]));
    let some = token(
        db,
        "some",
        "enqueuer",
        &["--class", "bill", "--queue", "default"],
    );
    let some = Program::with_token(&server, &some);
    let place = |body: &str| format!("{JOBS}/{}", all.post(JOBS, body).id());
    let own = place("{\"class\": \"bill\", \"idempotency_key\": \"k/1\"}");
    let class = place("{\"class\": \"wipe\", \"idempotency_key\": \"k/2\"}");
    let queue = place("{\"class\": \"bill\", \"queue\": \"fast\"}");
    assert_eq!(some.get(&own).json["class"], "bill");
    for hidden in [&class, &queue] {
        assert_eq!(all.get(hidden).status(), 200);
        let said = some.get(hidden);
        assert!(said.refused(404).contains("may not see it"));
    }
    // A key of another class tells nothing but that it is used.
    let said = some.post(JOBS, "{\"class\": \"bill\", \"idempotency_key\": \"k/2\"}");
    assert!(!said.refused(422).contains("wipe"), "{said:?}");
}

fn a_unique_id_of_another_class_is_a_conflict(db: &TestDb) {
    let server = serve(&db.database);
    let all = Program::with_token(&server, &token(db, "all", "enqueuer", &[]));
    let some = token(db, "some", "enqueuer", &["--class", "bill"]);
    let some = Program::with_token(&server, &some);
    let body = |class: &str| format!("{{\"class\": \"{class}\", \"unique_id\": \"u\"}}");
    let held = all.post(JOBS, &body("wipe"));
    assert_eq!(all.post(JOBS, &body("wipe")).id(), held.id());
    let said = some.post(JOBS, &body("bill"));
    assert!(said.refused(409).contains("may not see"), "{said:?}");
    let list = format!("{{\"jobs\": [{{\"class\": \"bill\"}}, {}]}}", body("bill"));
    assert!(
        some.post("/v1/jobs:batch", &list)
            .refused(409)
            .contains("jobs[1]")
    );
    assert_eq!(db.rows("jobs"), 1);
}

fn a_token_is_shown_what_it_may_do(db: &TestDb) {
    let server = serve(&db.database);
    let some = token(db, "some", "enqueuer", &["--class", "bill"]);
    let some = Program::with_token(&server, &some).get("/v1/token");
    let expected = json!({"name": "some", "role": "enqueuer", "classes": ["bill"], "queues": null, "arguments_only": false, "events": []});
    assert_eq!(some.json, expected);
    Program::local(&server).get("/v1/token").refused(401);
}

/// A list is not read before its sender is known.
fn a_list_of_an_unknown_sender_is_refused_unread(db: &TestDb) {
    let server = serve(&db.database);
    token(db, "shop", "enqueuer", &[]);
    let head = Program::local(&server).ask("POST", "/v1/jobs:batch");
    let head = head
        .header("Content-Type", "application/json")
        .header("Content-Length", "4000000");
    let reply = Reply::read(head.header("Connection", "close").open());
    Answer::checked("post", "/v1/jobs:batch", reply).refused(401);
}

fn a_token_may_pass_arguments_only(db: &TestDb) {
    let server = serve(&db.database);
    let some = token(db, "form", "enqueuer", &["--arguments-only"]);
    let some = Program::with_token(&server, &some);
    let plain = json!({"class": "bill", "arguments": {"a": 1}, "idempotency_key": "k"});
    some.post(JOBS, &plain.to_string()).id();
    for (option, value) in [
        ("queue", json!("fast")),
        ("priority", json!(-5)),
        ("run_at", json!("2026-12-24T18:00:00Z")),
        ("delay_seconds", json!(1)),
        ("unique_id", json!("u")),
        ("on_conflict", json!("existing")),
        ("concurrency_key", json!("k")),
        ("max_attempts", json!(9)),
        ("at_most_once", json!(true)),
    ] {
        let mut body = json!({"class": "bill"});
        body[option] = value;
        let said = some.post(JOBS, &body.to_string());
        assert!(said.refused(403).contains(option), "{said:?}");
        let list = json!({ "jobs": [{"class": "bill"}, body] });
        let said = some.post("/v1/jobs:batch", &list.to_string());
        assert!(said.refused(403).contains("jobs[1]"), "{said:?}");
    }
    assert_eq!(some.get("/v1/token").json["arguments_only"], true);
    let listed = windlass(&db.url, &["web", "tokens", "list"]);
    assert!(listed.out.contains("all, arguments only"), "{listed:?}");
    assert_eq!(db.rows("jobs"), 1);
}

fn the_quota_of_a_class_counts(db: &TestDb) {
    let server = serve(&db.database);
    let quota = "{\"name\": \"bills\", \"limits\": {\"per_day\": 2}}";
    let now = if db.is_postgres() {
        "now()"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    };
    db.execute(&format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at, quota) VALUES ('bill', 'default', '[]', {now}, '{quota}')"
    ));
    let program = Program::local(&server);
    let body = json!({"class": "bill", "idempotency_key": "k"}).to_string();
    let id = program.post(JOBS, &body).id();
    let list = |jobs: usize| json!({ "jobs": vec![json!({"class": "bill"}); jobs] }).to_string();
    program.post("/v1/jobs:batch", &list(2)).refused(429);
    assert_eq!(program.post("/v1/jobs:batch", &list(1)).status(), 202);
    let said = program.post(JOBS, "{\"class\": \"bill\"}");
    assert!(
        said.refused(429)
            .contains("the quota `bills` allows 2 enqueues per day"),
        "{said:?}"
    );
    let wait: u64 = said.reply.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0);
    // A repeated request for a known job does not count.
    assert_eq!(program.post(JOBS, &body).id(), id);
    assert_eq!(db.rows("jobs"), 2);
}

fn a_class_leads_a_token_to_no_other_queue(db: &TestDb) {
    db.execute(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at) \
         VALUES ('bill', 'money', '[]', '2026-11-29 00:00:00.000000')",
    );
    let server = serve(&db.database);
    let of = |name: &str, queue: &str| {
        let limits = ["--class", "bill", "--queue", queue];
        Program::with_token(&server, &token(db, name, "enqueuer", &limits))
    };
    let (other, own) = (of("other", "default"), of("own", "money"));
    let (body, list) = (
        "{\"class\": \"bill\"}",
        "{\"jobs\": [{\"class\": \"bill\"}]}",
    );
    let refused = other.post(JOBS, body);
    assert!(refused.refused(403).contains("\"money\""), "{refused:?}");
    other.post("/v1/jobs:batch", list).refused(403);
    assert_eq!(db.rows("jobs"), 0);
    let named = "{\"class\": \"bill\", \"queue\": \"default\"}";
    assert_eq!(other.post(JOBS, named).status(), 202);
    assert_eq!(own.post(JOBS, body).status(), 202);
    assert_eq!(own.post("/v1/jobs:batch", list).status(), 202);
    let queues = "SELECT queue_name AS t FROM solid_queue_jobs ORDER BY id";
    assert_eq!(db.texts(queues), ["default", "money", "money"]);
}

fn a_token_emits_the_events_of_its_patterns(db: &TestDb) {
    const EVENTS: &str = "/v1/events";
    let server = serve(&db.database);
    let limits = ["--event", "paid/*", "--event", "closed"];
    let bank = Program::with_token(&server, &token(db, "bank", "enqueuer", &limits));
    let shop = Program::with_token(&server, &token(db, "shop", "enqueuer", &[]));
    let paid = json!({"name": "paid/7", "payload": {"cents": 700}}).to_string();
    assert_eq!(bank.post(EVENTS, &paid).status(), 202);
    assert_eq!(bank.post(EVENTS, &paid).status(), 202);
    assert_eq!(bank.post(EVENTS, "{\"name\": \"closed\"}").status(), 202);
    let other = json!({"name": "paid/7", "payload": 1}).to_string();
    bank.post(EVENTS, &other).refused(409);
    for body in [
        "{\"name\": \"paid\"}",
        "{\"name\": \"closed/1\"}",
        "{\"name\": \"\"}",
    ] {
        assert!(
            bank.post(EVENTS, body)
                .refused(403)
                .contains("may not emit")
        );
    }
    // A token for events enqueues nothing, and one for jobs emits nothing.
    bank.post(JOBS, "{\"class\": \"a\"}").refused(403);
    shop.post(EVENTS, &paid).refused(403);
    assert_eq!(shop.post(JOBS, "{\"class\": \"a\"}").status(), 202);
    let operator = Program::with_token(&server, &token(db, "ops", "operator", &[]));
    for body in [
        "[\"a\", 1]",
        "{}",
        "{\"name\": \"\"}",
        "{\"name\": \"a\", \"to\": 1}",
        "{\"name\": 7}",
    ] {
        operator.post(EVENTS, body).refused(400);
    }
    let deep = format!(
        "{{\"name\": \"a\", \"payload\": {}{}}}",
        "[".repeat(121),
        "]".repeat(121)
    );
    operator.post(EVENTS, &deep).refused(400);
    let events = "SELECT name || ' ' || payload AS t FROM windlass_events ORDER BY name";
    assert_eq!(db.texts(events), ["closed null", "paid/7 {\"cents\":700}"]);
    let listed = windlass(&db.url, &["web", "tokens", "list"]);
    assert!(
        listed.out.contains("none; emits paid/*, closed"),
        "{listed:?}"
    );
}

fn only_an_enqueuer_is_limited(db: &TestDb) {
    let arguments = [
        "web", "tokens", "add", "ada", "--role", "operator", "--class", "a",
    ];
    let said = windlass(&db.url, &arguments);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("only an enqueuer is limited"), "{said:?}");
    assert_eq!(db.rows_of("windlass_web_tokens"), 0);
}

/// A limit that this version does not know allows nothing.
fn limits_that_cannot_be_read_allow_nothing(db: &TestDb) {
    let server = serve(&db.database);
    let secret = token(db, "shop", "enqueuer", &["--class", "a"]);
    db.execute("UPDATE windlass_web_tokens SET limits = '{\"tenants\": [\"x\"]}'");
    let answer = Program::with_token(&server, &secret).post(JOBS, "{\"class\": \"a\"}");
    answer.refused(403);
    assert_eq!(db.rows("jobs"), 0);
}

on_each_database!(
    an_enqueuer_needs_its_token,
    a_token_enqueues_its_classes_to_its_queues,
    a_token_sees_what_became_of_its_classes,
    a_unique_id_of_another_class_is_a_conflict,
    a_token_is_shown_what_it_may_do,
    a_list_of_an_unknown_sender_is_refused_unread,
    a_token_may_pass_arguments_only,
    the_quota_of_a_class_counts,
    only_an_enqueuer_is_limited,
    limits_that_cannot_be_read_allow_nothing,
    a_class_leads_a_token_to_no_other_queue,
    a_token_emits_the_events_of_its_patterns,
);
