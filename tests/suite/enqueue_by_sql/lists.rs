//! Lists of jobs: all or none, with the same rows as one by one.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::{by_sql, literal, run, vectors};
use crate::support::enqueue_rows::{compare, rows};
use serde_json::{Map, Value, json};

on_each_database!(
    a_list_leaves_the_same_rows_as_its_jobs,
    a_list_is_enqueued_as_a_whole,
    jobs_of_a_list_keep_its_order,
    of_two_with_one_name_the_first_decides,
    no_key_is_passed_over_in_silence,
);

fn enqueue(db: &TestDb, class: &str, jobs: &str) -> Result<(), String> {
    let (class, jobs) = (literal(&class.into()), literal(&jobs.into()));
    let text = match db.is_postgres() {
        true => format!("SELECT windlass_enqueue_many({class}, {jobs})"),
        false => {
            format!("INSERT INTO windlass_enqueue_many (class, jobs) VALUES ({class}, {jobs})")
        }
    };
    run(db, &text)
}

fn another(db: &TestDb) -> TestDb {
    if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    }
}

/// The job in the form of a list. `None` if its arguments are no JSON, or are not the same as JSON of
/// Postgres.
fn listed(job: &Map<String, Value>) -> Option<Value> {
    let mut listed = job.clone();
    listed.remove("class");
    if let Some(Value::String(arguments)) = listed.get("arguments") {
        let value: Value = serde_json::from_str(arguments).ok()?;
        let written = value.to_string();
        if written != *arguments {
            return None;
        }
        listed.insert("arguments".to_owned(), value);
    }
    Some(Value::Object(listed))
}

fn a_list_leaves_the_same_rows_as_its_jobs(db: &TestDb) {
    let (other, scratch) = (another(db), another(db));
    for vector in vectors() {
        let Some(class) = vector.jobs[0].get("class").and_then(Value::as_str) else {
            continue;
        };
        let is_one = |job: &Map<String, Value>| job.get("class") == Some(&class.into());
        let jobs: Option<Vec<Value>> = vector.jobs.iter().map(listed).collect();
        let Some(jobs) = jobs.filter(|_| vector.jobs.iter().all(is_one)) else {
            continue;
        };
        let list = enqueue(db, class, &Value::Array(jobs).to_string());
        // A list is refused if one of its jobs is.
        if list.is_ok() {
            for job in &vector.jobs {
                by_sql(&other, job).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            }
        } else {
            let refused = vector.jobs.iter().any(|job| by_sql(&scratch, job).is_err());
            assert!(
                refused || vector.jobs.len() > 1,
                "{}: {list:?}",
                vector.name
            );
        }
        // JSON of Postgres has a space after each comma and colon.
        let plain = |rows: Vec<String>| {
            let rows = rows.iter();
            rows.map(|row| row.replace(": ", ":").replace(", ", ","))
                .collect()
        };
        compare(&vector.name, plain(rows(db)), plain(rows(&other)));
    }
    assert!(db.rows("jobs") > 60);
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
