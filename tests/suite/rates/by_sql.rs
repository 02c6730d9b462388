//! Rates of jobs that are enqueued by SQL, and by the name of their class.

use super::{HOUR, SECOND, drained};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::{insert, run};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::limits::Rate;
use windlass::testing;
use windlass::{Context, Job, JobResult, NewJob, Policy, Registry, Worker};

/// Enqueues a job of the class `note` with rates, or with those of its class.
fn enqueue(db: &TestDb, rates: Option<&Value>) -> Result<(), String> {
    let mut job = json!({"class": "note", "arguments": "{\"text\":\"a\"}"});
    if let Some(rates) = rates {
        job["rates"] = rates.to_string().into();
    }
    run(db, &insert(job.as_object().unwrap()))
}

fn a_job_by_sql_waits_for_its_tokens(db: &TestDb) {
    let rates = json!([{"number": 2, "period": "hour", "burst": 2, "key": "api"}]);
    for _ in 0..3 {
        enqueue(db, Some(&rates)).unwrap();
    }
    assert_eq!((db.rows("blocked_executions"), drained(db)), (3, 2));
    assert_eq!(drained(db), 0);
    // A job of Rust with the key waits behind it.
    let mut conn = db.connection();
    let rate = Rate::per_hour(2).burst(2).key("api");
    let last = NewJob::of_class("note", "{\"text\":\"b\"}").rate(rate);
    last.enqueue(&mut conn).unwrap();
    testing::travel(&mut conn, HOUR / 2 + SECOND).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!((drained(db), db.rows("blocked_executions")), (1, 0));
}

fn a_scheduled_job_waits_for_its_tokens_when_it_is_due(db: &TestDb) {
    let insert = "INSERT INTO windlass_enqueue (class, arguments, delay_seconds, rates) VALUES \
         ('note', '{\"text\":\"a\"}', 600, '[{\"number\": 1, \"period\": \"hour\"}]')";
    for _ in 0..2 {
        run(db, insert).unwrap();
    }
    assert_eq!((db.rows("scheduled_executions"), drained(db)), (2, 0));
    let mut conn = db.connection();
    testing::travel(&mut conn, 601 * SECOND).unwrap();
    assert_eq!((drained(db), db.rows("blocked_executions")), (1, 1));
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 1);
}

fn jobs_of_a_list_wait_for_their_tokens(db: &TestDb) {
    let list = json!([
        {"arguments": {"text": "a"}, "rates": [{"number": 1, "period": "hour", "key": "api"}]},
        {"arguments": {"text": "b"}, "rates": [{"number": 1, "period": "hour", "key": "api"}]},
        {"arguments": {"text": "c"}},
    ]);
    let each = r#"'{"rates": [{"number": 1, "period": "hour", "key": "api"}]}'"#;
    let text = r#"{"text":"d"}"#;
    let enqueue = match db.is_postgres() {
        true => [
            format!("SELECT windlass_enqueue_many('note', '{list}')"),
            format!("SELECT windlass_enqueue_each_v2('note', ARRAY['{text}', '{text}'], {each})"),
        ],
        false => {
            let texts = json!([text, text]);
            [
                format!("INSERT INTO windlass_enqueue_many VALUES ('note', '{list}')"),
                format!("INSERT INTO windlass_enqueue_each_v2 VALUES ('note', '{texts}', {each})"),
            ]
        }
    };
    for text in enqueue {
        run(db, &text).unwrap();
    }
    assert_eq!((db.rows("blocked_executions"), drained(db)), (4, 2));
    for _ in 0..3 {
        testing::travel(&mut db.connection(), HOUR).unwrap();
        assert_eq!(drained(db), 1);
    }
}

/// A type whose jobs have a rate, by whichever way they are enqueued.
#[derive(Serialize, Deserialize)]
struct Ping;

impl Job for Ping {
    const NAME: &'static str = "ping";
    const ALIASES: &'static [&'static str] = &["old_ping"];
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        let all = Rate::per_second(5_000).key("api");
        Policy::new()
            .max_attempts(3)
            .rate(Rate::per_hour(1).cost(2))
            .rate(all)
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// A type whose rate lets nothing through, which its enqueues in Rust say.
#[derive(Serialize, Deserialize)]
struct Never;

impl Job for Never {
    const NAME: &'static str = "never";
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().rate(Rate::per_hour(0))
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn store_classes(db: &TestDb) {
    let registry = Registry::new().register::<Ping>(()).register::<Never>(());
    let worker = Worker::new(&db.database, registry).queues(["none"]);
    let mut worker = worker.unwrap().start().unwrap();
    until("the classes are stored", || {
        db.rows_of("windlass_classes") == 3
    });
    worker.stop();
    assert!(worker.join(DEADLINE).is_some());
}

fn a_class_has_the_rates_of_its_policy(db: &TestDb) {
    store_classes(db);
    let mut conn = db.connection();
    Ping.enqueue(&mut conn).unwrap();
    let by_name = || NewJob::of_class("ping", "null");
    by_name().enqueue(&mut conn).unwrap();
    run(db, "INSERT INTO windlass_enqueue (class) VALUES ('ping')").unwrap();
    let many = match db.is_postgres() {
        true => "SELECT windlass_enqueue_many('ping', '[{}]')",
        false => "INSERT INTO windlass_enqueue_many VALUES ('ping', '[{}]')",
    };
    run(db, many).unwrap();
    let columns = "SELECT DISTINCT rates || ' ' || gate || ' ' || coalesce(policy, '-') || ' ' || max_attempts AS t \
         FROM solid_queue_jobs";
    assert_eq!(
        db.texts(columns),
        [
            "[{\"key\":\"ping\",\"number\":1,\"period\":3600000000,\"burst\":2,\"cost\":2},\
          {\"key\":\"api\",\"number\":5000,\"period\":1000000,\"burst\":500}] ping\u{1f}api - 3"
        ]
    );
    assert_eq!(db.rows("blocked_executions"), 4);
    // Others, or none, replace them.
    let one = Rate::per_day(1).key("one");
    by_name().rate(one).enqueue(&mut conn).unwrap();
    by_name().without_rates().enqueue(&mut conn).unwrap();
    for rates in [r#"[{"number": 1, "period": "day", "key": "one"}]"#, "[]"] {
        let text =
            format!("INSERT INTO windlass_enqueue (class, rates) VALUES ('ping', '{rates}')");
        run(db, &text).unwrap();
    }
    let gates =
        db.texts("SELECT coalesce(gate, '-') AS t FROM solid_queue_jobs WHERE id > 4 ORDER BY id");
    assert_eq!(gates, ["one", "-", "one", "-"]);
    assert_eq!(db.rows("ready_executions"), 2);
    // A former name is another key.
    NewJob::of_class("old_ping", "null")
        .enqueue(&mut conn)
        .unwrap();
    let gates = db.texts("SELECT gate AS t FROM solid_queue_jobs WHERE class_name = 'old_ping'");
    assert_eq!(gates, ["old_ping\u{1f}api"]);
}

fn a_class_with_a_bad_rate_has_none_by_its_name(db: &TestDb) {
    store_classes(db);
    let error = Never.enqueue(&mut db.connection()).unwrap_err();
    assert!(error.to_string().contains("no start"), "{error}");
    run(db, "INSERT INTO windlass_enqueue (class) VALUES ('never')").unwrap();
    assert_eq!(db.rows("ready_executions"), 1);
}

/// Control characters would end the name of a key within the name of a line.
fn hostile_keys_are_refused(db: &TestDb) {
    let long = "x".repeat(256);
    let wide = "ä".repeat(128);
    for key in [
        "",
        "a\u{1f}b",
        "a\u{1e}note/7",
        "\u{1f}",
        "\u{7f}",
        "\u{85}",
        "a\n",
        &long,
        &wide,
    ] {
        let error = enqueue(
            db,
            Some(&json!([{"number": 1, "period": "day", "key": key}])),
        );
        let error = error.unwrap_err();
        assert!(
            error.contains("1 to 255 bytes and no control character"),
            "{key:?}: {error}"
        );
    }
    let twice = r#"[{"number": 1, "period": "day", "key": "a", "key": "b"}]"#;
    let text = format!("INSERT INTO windlass_enqueue (class, rates) VALUES ('note', '{twice}')");
    let error = run(db, &text).unwrap_err();
    assert!(
        error.contains("a JSON array of at most 4 objects"),
        "{error}"
    );
    assert_eq!(
        (db.rows("jobs"), db.rows_of("windlass_wanted_keys")),
        (0, 0)
    );
    // Nor can a concurrency key pass for a rate: what follows its mark is the key.
    let limit = "INSERT INTO windlass_enqueue (class, arguments, concurrency_key, rates) VALUES \
         ('note', '{\"text\":\"a\"}', '7', '[{\"number\": 1, \"period\": \"day\", \"key\": \"a\"}]')";
    run(db, &limit.replace("'7'", "'7\u{1e}b\u{1f}c'")).unwrap();
    let gates = db.texts("SELECT gate AS t FROM solid_queue_jobs");
    assert_eq!(gates, ["a\u{1e}note/7\u{1e}b\u{1f}c"]);
    assert_eq!(drained(db), 1);
}

fn a_bad_rate_says_what_is_wrong(db: &TestDb) {
    let rate = |part: &str, value: Value| {
        let mut rate = json!({"number": 1, "period": "day"});
        rate[part] = value;
        json!([rate])
    };
    for (rates, says) in [
        (rate("number", json!(0)), "from 1 to 10000000"),
        (rate("burst", json!(10_000_001)), "from 1 to 10000000"),
        (rate("cost", json!(-1)), "from 1 to 10000000"),
        (rate("period", json!("week")), "second, minute, hour or day"),
        (
            rate("period", json!(86_400_000_001_u64)),
            "microseconds from 1 to 86400000000",
        ),
        (rate("other", json!(1)), "a JSON array of at most 4 objects"),
        (
            json!([{"number": 1, "period": "day", "burst": 2, "cost": 3}]),
            "could never start",
        ),
        (
            json!([{"number": 10_000_000, "period": 9}]),
            "the burst that its number makes",
        ),
        (
            json!([rate("key", json!("a"))[0], rate("key", json!("a"))[0]]),
            "the same key",
        ),
        (json!({}), "a JSON array of at most 4 objects"),
    ] {
        let error = enqueue(db, Some(&rates)).unwrap_err();
        assert!(
            error.contains("cannot enqueue") && error.contains(says),
            "{rates}: {error}"
        );
    }
    enqueue(
        db,
        Some(&json!([{"number": 10_000_000, "period": 86_400_000_000_u64}])),
    )
    .unwrap();
    enqueue(db, Some(&json!([{"number": 5, "period": 1_500}]))).unwrap();
    let rates = db.texts("SELECT rates AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(
        rates[1],
        r#"[{"key":"note","number":5,"period":1500,"burst":333}]"#
    );
}

on_each_database!(
    a_job_by_sql_waits_for_its_tokens,
    a_scheduled_job_waits_for_its_tokens_when_it_is_due,
    jobs_of_a_list_wait_for_their_tokens,
    a_class_has_the_rates_of_its_policy,
    a_class_with_a_bad_rate_has_none_by_its_name,
    hostile_keys_are_refused,
    a_bad_rate_says_what_is_wrong,
);
