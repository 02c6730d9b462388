//! Lists of jobs: all or none, with the same rows as one by one.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::count;
use crate::support::enqueue_by_sql::{SHARE_QUEUES, by_sql, literal, run_on, vectors};
use crate::support::enqueue_rows::{compare, rows, rows_after};
use serde_json::{Map, Value, json};
use windlass::{AsConn, Conn};

on_each_database!(
    a_list_leaves_the_same_rows_as_its_jobs,
    jobs_that_differ_in_their_arguments_leave_the_same_rows,
    so_they_do_where_tenants_take_turns,
    arguments_of_many_jobs_are_checked_one_by_one,
    a_list_is_enqueued_as_a_whole,
    jobs_of_a_list_keep_its_order,
    of_two_with_one_name_the_first_decides,
    no_key_is_passed_over_in_silence,
    values_of_another_type_are_refused,
    of_a_key_that_is_named_twice_the_first_never_counts,
);

fn enqueue(db: &TestDb, class: &str, jobs: &str) -> Result<(), String> {
    enqueue_on(&mut db.connection(), class, jobs)
}

fn enqueue_on<C: AsConn>(conn: &mut C, class: &str, jobs: &str) -> Result<(), String> {
    let (class, jobs) = (literal(&class.into()), literal(&jobs.into()));
    let text = match conn.as_conn() {
        Conn::Sqlite(_) => {
            format!("INSERT INTO windlass_enqueue_many (class, jobs) VALUES ({class}, {jobs})")
        }
        _ => format!("SELECT windlass_enqueue_many({class}, {jobs})"),
    };
    run_on(conn, &text)
}

fn another(db: &TestDb) -> TestDb {
    if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    }
}

/// The job in the form of a list. `None` if one of its texts is no JSON, or is written in another way here.
fn listed(job: &Map<String, Value>) -> Option<Value> {
    let mut listed = job.clone();
    listed.remove("class");
    for column in ["arguments", "tags", "meta", "rates"] {
        let Some(Value::String(text)) = listed.get(column) else {
            continue;
        };
        let value: Value = serde_json::from_str(text).ok()?;
        let written = value.to_string();
        if column == "arguments" && written != *text {
            return None;
        }
        listed.insert(column.to_owned(), value);
    }
    Some(Value::Object(listed))
}

fn a_list_leaves_the_same_rows_as_its_jobs(db: &TestDb) {
    compare_lists(db, &another(db));
}

fn jobs_that_differ_in_their_arguments_leave_the_same_rows(db: &TestDb) {
    compare_each(db, &another(db));
}

fn so_they_do_where_tenants_take_turns(db: &TestDb) {
    let shared = || {
        let db = another(db);
        run_on(&mut db.connection(), SHARE_QUEUES).unwrap();
        db
    };
    let (lists, each) = (shared(), shared());
    compare_lists(&lists, &shared());
    compare_each(&each, &shared());
    let lines = "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE gate = '\u{1d}default\u{1c}acme'";
    assert!(lists.count(lines) > 3 && each.count(lines) > 1);
}

/// Enqueues each vector as a list and one by one, and compares the rows.
fn compare_lists(db: &TestDb, other: &TestDb) {
    let scratch = another(db);
    // A new connection to SQLite reads the whole schema.
    let (mut by_list, mut one_by_one) = (db.connect(), other.connect());
    let mut tries = scratch.connect();
    for vector in vectors() {
        let known = count(&mut by_list, "SELECT count(*) AS n FROM solid_queue_jobs");
        let Some(class) = vector.jobs[0].get("class").and_then(Value::as_str) else {
            continue;
        };
        let is_one =
            |job: &Map<String, Value>| job.get("class").and_then(Value::as_str) == Some(class);
        let jobs: Option<Vec<Value>> = vector.jobs.iter().map(listed).collect();
        let Some(jobs) = jobs.filter(|_| vector.jobs.iter().all(is_one)) else {
            continue;
        };
        let list = enqueue_on(&mut by_list, class, &Value::Array(jobs).to_string());
        // A list is refused if one of its jobs is.
        if list.is_ok() {
            for job in &vector.jobs {
                by_sql(&mut one_by_one, job)
                    .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            }
        } else {
            let refused = vector
                .jobs
                .iter()
                .any(|job| by_sql(&mut tries, job).is_err());
            assert!(
                refused || vector.jobs.len() > 1,
                "{}: {list:?}",
                vector.name
            );
        }
        compare(
            &vector.name,
            rows_after(&mut by_list, known),
            rows_after(&mut one_by_one, known),
        );
    }
    compare("all lists", rows(db), rows(other));
    assert!(db.rows("jobs") > 60);
}

/// Enqueues jobs by their arguments, with options that all of them have.
fn each_on<C: AsConn>(
    conn: &mut C,
    class: &str,
    arguments: &[&str],
    options: &str,
) -> Result<(), String> {
    let (class, options) = (literal(&class.into()), literal(&options.into()));
    let texts: Vec<String> = arguments
        .iter()
        .map(|text| literal(&(*text).into()))
        .collect();
    let text = match conn.as_conn() {
        Conn::Sqlite(_) => {
            let array = literal(&json!(arguments).to_string().into());
            format!(
                "INSERT INTO windlass_enqueue_each_v2 (class, arguments, options) VALUES ({class}, {array}, {options})"
            )
        }
        _ => format!(
            "SELECT windlass_enqueue_each_v2({class}, CAST(ARRAY[{}] AS text[]), {options})",
            texts.join(", ")
        ),
    };
    run_on(conn, &text)
}

/// The same for vectors of one job, each with its options.
fn compare_each(db: &TestDb, other: &TestDb) {
    let (mut by_each, mut one_by_one) = (db.connect(), other.connect());
    let mut tried = 0;
    for vector in vectors() {
        let [job] = &vector.jobs[..] else { continue };
        let Some(class) = job.get("class").and_then(Value::as_str) else {
            continue;
        };
        let arguments = match job.get("arguments") {
            None => "null",
            Some(Value::String(text)) if !text.contains('\0') => text,
            _ => continue,
        };
        let mut options = job.clone();
        options.remove("arguments");
        // In a list they are JSON, and a text that is none cannot be written.
        let Some(options) = listed(&options) else {
            continue;
        };
        let each = each_on(&mut by_each, class, &[arguments], &options.to_string());
        let one = by_sql(&mut one_by_one, job);
        assert_eq!(
            each.is_ok(),
            one.is_ok(),
            "{}: {each:?} {one:?}",
            vector.name
        );
        tried += 1;
    }
    compare("each", rows(db), rows(other));
    assert!(tried > 250, "{tried}");
}

fn arguments_of_many_jobs_are_checked_one_by_one(db: &TestDb) {
    let conn = &mut db.connection();
    let deep = "[".repeat(121) + &"]".repeat(121);
    let large = format!("\"{}\"", "x".repeat(65_535));
    for wrong in [
        "{",
        "",
        "1}, {",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "1e999",
        "98765432109876543210",
        &deep,
        &large,
    ] {
        let error = each_on(conn, "note", &["1", wrong, "2"], "{}").unwrap_err();
        assert!(error.contains("cannot enqueue"), "{wrong:.40}: {error}");
    }
    for (options, says) in [
        ("[]", "not an object"),
        ("{", "json"),
        (r#"{"arguments": 1}"#, "key"),
        (r#"{"color": 1}"#, "key"),
        (r#"{"queue": 1}"#, "its queue must be a JSON string"),
        (r#"{"queue": "a b"}"#, "its queue must have"),
        (r#"{"run_at": "now"}"#, "its run_at must be a time"),
    ] {
        let error = each_on(conn, "note", &["1"], options).unwrap_err();
        let (error, says) = (error.to_lowercase(), says.to_lowercase());
        assert!(error.contains(&says), "{options}: {error}");
    }
    assert_eq!(db.rows("jobs"), 0);
    let named = each_on(conn, "note", &["1", "2"], r#"{"unique_id": "u"}"#).unwrap_err();
    assert!(named.contains("name one job"), "{named}");
    each_on(conn, "note", &[], "{}").unwrap();
    let texts = [
        "{\"a\": \"\\u00e9 \\\\u0000 ü \u{7f}\"}",
        " [1.50, 1e3] ",
        "\"quote \\\" slash \\\\\"",
        "null",
    ];
    each_on(
        conn,
        "note",
        &texts,
        r#"{"priority": 4, "delay_seconds": 60}"#,
    )
    .unwrap();
    each_on(
        conn,
        "note",
        &["1", "2"],
        r#"{"concurrency_key": "k", "tags": ["t"]}"#,
    )
    .unwrap();
    let stored = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(stored[..4], texts);
    let count = |table: &str| db.rows_of(&format!("solid_queue_{table}_executions"));
    assert_eq!(
        (count("scheduled"), count("blocked"), count("ready")),
        (4, 2, 0)
    );
}

fn a_list_is_enqueued_as_a_whole(db: &TestDb) {
    for (jobs, says) in [
        (
            "[{\"priority\":1},{\"queue\":\"a b\"}]",
            "its queue must have",
        ),
        (
            "[{\"unique_id\":\"a\"},{\"unique_id\":\"\"}]",
            "its unique_id must have",
        ),
        ("[{\"priority\":1},7]", "not an object"),
        ("[{\"priorty\":1}]", "key"),
        ("{}", "array"),
        ("nothing", "JSON|json"),
        (
            "[{\"idempotency_key\":\"a\"},{\"idempotency_key\":\"b\",\"traceparent\":\"c\"}]",
            "traceparent",
        ),
    ] {
        let error = enqueue(db, "note", jobs).unwrap_err();
        assert!(
            says.split('|').any(|says| error.contains(says)),
            "{jobs}: {error}"
        );
        assert_eq!(
            (db.rows("jobs"), db.rows_of("windlass_unique_jobs")),
            (0, 0),
            "{jobs}"
        );
    }
    let error = enqueue(db, "a b", "[]").unwrap_err();
    assert!(error.contains("its class must have"), "{error}");
    enqueue(db, "note", "[]").unwrap();
    assert_eq!(db.rows("jobs"), 0);
}

fn jobs_of_a_list_keep_its_order(db: &TestDb) {
    let plain: Vec<Value> = (0..50).map(|n| json!({"arguments": n})).collect();
    let named = (50..100).map(|n| json!({"arguments": n, "unique_id": format!("{}", 200 - n)}));
    enqueue(db, "note", &Value::Array(plain).to_string()).unwrap();
    enqueue(db, "note", &Value::Array(named.collect()).to_string()).unwrap();
    let found = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id");
    let expected: Vec<String> = (0..100).map(|n: i32| n.to_string()).collect();
    assert_eq!(found, expected);
}

fn of_two_with_one_name_the_first_decides(db: &TestDb) {
    for jobs in [
        r#"[{"unique_id":"u","idempotency_key":"k","arguments":1},{"idempotency_key":"k","arguments":2}]"#,
        r#"[{"unique_id":"z","idempotency_key":"l","arguments":1},{"unique_id":"y","idempotency_key":"l","arguments":2}]"#,
        r#"[{"unique_id":"x","idempotency_key":"n","arguments":1},{"unique_id":"x","idempotency_key":"m","arguments":2}]"#,
    ] {
        enqueue(db, "note", jobs).unwrap();
    }
    let found = db.texts("SELECT arguments || unique_id AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(found, ["1u", "1z", "1x"]);
}

/// No value is taken for what it looks like.
fn values_of_another_type_are_refused(db: &TestDb) {
    let texts = [
        "queue",
        "unique_id",
        "unique_scope",
        "on_conflict",
        "idempotency_key",
        "concurrency_key",
        "concurrency_group",
        "concurrency_on_conflict",
        "traceparent",
        "run_at",
    ];
    let numbers = [
        "priority",
        "delay_seconds",
        "concurrency_limit",
        "max_attempts",
        "max_crashes",
    ];
    let conn = &mut db.connection();
    let mut refused = |column: &str, value: &str, says: &str| {
        let jobs = format!(r#"[{{"arguments": 1}}, {{"{column}": {value}}}]"#);
        let error = enqueue_on(conn, "note", &jobs).expect_err(&jobs);
        assert!(error.contains("cannot enqueue"), "{jobs}: {error}");
        assert!(error.contains(says), "{jobs}: {error}");
        let enqueued = count(conn, "SELECT count(*) AS n FROM solid_queue_jobs");
        assert_eq!(enqueued, 0, "{jobs}");
    };
    for column in texts {
        for value in ["7", "1.5", "true", r#"["a"]"#, r#"{"a": 1}"#] {
            refused(
                column,
                value,
                &format!("its {column} must be a JSON string"),
            );
        }
    }
    for column in numbers {
        for value in [r#""7""#, r#""""#, "true", "[7]", "{}"] {
            refused(
                column,
                value,
                &format!("its {column} must be a JSON number"),
            );
        }
    }
    for value in [r#""yes""#, r#""true""#, "1", "0", "[]"] {
        refused(
            "at_most_once",
            value,
            "its at_most_once must be true or false",
        );
    }
    for time in [
        "now",
        "tomorrow",
        "today",
        "infinity",
        "epoch",
        "",
        "18:00",
        "2100",
        "4102444800",
        "2026-12-24 now",
        "2026-12-24T18",
        "2026-12-24T18:00:00z",
        "2026-12-24T18:00:00 Z",
        "2026-12-24T18:00:00+1",
        "2026-12-24T18:00:00+15:00",
        "2026-12-24T18:00:00 Europe/Berlin",
        "2026-12-24T24:00:00Z",
        "2026-12-24T18:00:60Z",
        "2026-12-24  18:00",
        " 2026-12-24",
        "2026-12-24T18:00:00Z\\n",
        "20261224T180000Z",
        "2026-W52-4",
        "Dec 24 2026",
    ] {
        refused(
            "run_at",
            &format!("\"{time}\""),
            "its run_at must be a time",
        );
    }
    for time in [
        "2100-12-24",
        "2100-12-24 18:00",
        "2100-12-24T18:00Z",
        "2100-12-24T18:00:00.25",
        "2100-12-24 18:00:00.123456+14:59",
    ] {
        let jobs = format!(r#"[{{"run_at": "{time}"}}]"#);
        enqueue(db, "note", &jobs).unwrap_or_else(|error| panic!("{jobs}: {error}"));
    }
    let nothing = texts
        .iter()
        .chain(&numbers)
        .chain(&["at_most_once", "arguments"]);
    let nothing: Vec<String> = nothing
        .map(|column| format!("\"{column}\": null"))
        .collect();
    enqueue(db, "note", &format!("[{{{}}}]", nothing.join(","))).unwrap();
    assert_eq!(db.rows("jobs"), 6);
}

/// JSON of Postgres knows only the last of them, so it counts there. SQLite refuses the list.
fn of_a_key_that_is_named_twice_the_first_never_counts(db: &TestDb) {
    for jobs in [
        r#"[{"queue": "a", "queue": "b"}]"#,
        r#"[{"arguments": [1], "arguments": [2]}]"#,
    ] {
        match enqueue(db, "note", jobs) {
            Ok(()) => assert!(db.is_postgres()),
            Err(error) => assert!(error.contains("names a key twice"), "{error}"),
        }
    }
    let found = db.texts("SELECT queue_name || arguments AS t FROM solid_queue_jobs ORDER BY id");
    let expected: &[&str] = if db.is_postgres() {
        &["bnull", "default[2]"]
    } else {
        &[]
    };
    assert_eq!(found, expected);
}

/// JSON has more than one way to write a key.
fn no_key_is_passed_over_in_silence(db: &TestDb) {
    for _ in 0..2 {
        let _ = enqueue(db, "note", r#"[{"un\u0069que_id":"u"}]"#);
    }
    let _ = enqueue(db, "note", r#"[{"\u0071ueue":"slow"}]"#);
    let plain = "SELECT count(*) AS n FROM solid_queue_jobs WHERE unique_id IS NULL AND queue_name = 'default'";
    assert_eq!(db.count(plain), 0);
    assert!(db.rows("jobs") <= 2);
}
