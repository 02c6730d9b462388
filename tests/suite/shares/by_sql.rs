//! Shares of jobs that are enqueued by SQL: they have the same columns as those of Rust.

use super::{drained, of_each, share};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::{insert, literal, run};
use serde_json::{Map, Value, json};
use std::time::Duration;
use windlass::limits::Rate;
use windlass::{Concurrency, NewJob, enqueue_all, tenants};

const ARGUMENTS: &str = "{\"text\":\"acme\"}";

/// A job by its name in Rust, the same by SQL as the columns of a list, and what is stored of it.
struct Case {
    by_rust: NewJob,
    by_sql: Value,
    stored: &'static str,
}

fn case(by_rust: NewJob, by_sql: Value, stored: &'static str) -> Case {
    Case {
        by_rust,
        by_sql,
        stored,
    }
}

fn note() -> NewJob {
    NewJob::of_class("note", ARGUMENTS)
}

/// Returns the job as a row of the view: texts of JSON instead of values.
fn row(columns: &Value) -> Map<String, Value> {
    let mut row = columns.as_object().unwrap().clone();
    if let Some(rates) = row.get_mut("rates") {
        *rates = rates.to_string().into();
    }
    row.insert("class".to_owned(), "note".into());
    row.insert("arguments".to_owned(), ARGUMENTS.into());
    row
}

/// Returns the statements that enqueue a job, each in another way, and how many jobs of it each enqueues.
fn ways(db: &TestDb, columns: &Value) -> Vec<(String, usize)> {
    let row = row(columns);
    let mut listed = columns.clone();
    listed["arguments"] = serde_json::from_str(ARGUMENTS).unwrap();
    let list = literal(&json!([listed, listed]).to_string().into());
    let options = literal(&columns.to_string().into());
    let versioned = insert(&row).replace("windlass_enqueue ", "windlass_enqueue_v2 ");
    let mut ways = vec![(insert(&row), 1), (versioned, 1)];
    if !db.is_postgres() {
        let texts = literal(&json!([ARGUMENTS, ARGUMENTS]).to_string().into());
        for view in ["windlass_enqueue_many", "windlass_enqueue_many_v2"] {
            ways.push((format!("INSERT INTO {view} VALUES ('note', {list})"), 2));
        }
        let each =
            format!("INSERT INTO windlass_enqueue_each_v2 VALUES ('note', {texts}, {options})");
        ways.push((each, 2));
        return ways;
    }
    let named: Vec<String> = row
        .iter()
        .map(|(name, value)| format!("{name} => {}", literal(value)))
        .collect();
    for name in ["windlass_enqueue", "windlass_enqueue_v2"] {
        ways.push((format!("SELECT {name}({})", named.join(", ")), 1));
    }
    for name in ["windlass_enqueue_many", "windlass_enqueue_many_v2"] {
        ways.push((format!("SELECT {name}('note', {list})"), 2));
    }
    let texts = format!("ARRAY['{ARGUMENTS}', '{ARGUMENTS}']");
    let each = format!("SELECT windlass_enqueue_each_v2('note', {texts}, {options})");
    ways.push((each, 2));
    ways
}

/// Returns what is stored of the jobs behind the first: once, if it is the same for all.
fn stored(db: &TestDb, behind: i64) -> Vec<String> {
    let texts = ["tenant", "gate", "rates", "concurrency_key"]
        .map(|column| format!("coalesce(j.{column}, '-')"));
    let is = |kind: &str| {
        format!("EXISTS (SELECT 1 FROM solid_queue_{kind}_executions x WHERE x.job_id = j.id)")
    };
    let stored = db.texts(&format!(
        "SELECT DISTINCT {} || '|' || CASE WHEN {} THEN 'ready' WHEN {} THEN 'scheduled' ELSE 'neither' END || \
         coalesce((SELECT ' ' || e.concurrency_key || '|' || coalesce(e.gate, '-') FROM solid_queue_blocked_executions e \
             WHERE e.job_id = j.id), '') AS t \
         FROM solid_queue_jobs j WHERE j.id > {behind}",
        texts.join(" || '|' || "),
        is("ready"),
        is("scheduled"),
    ));
    stored
        .iter()
        .map(|row| row.replace("neither     |", "blocked at "))
        .collect()
}

/// Enqueues a job in each way.
fn compare(db: &TestDb, case: Case) {
    let mut conn = db.connection();
    let behind = db.count("SELECT coalesce(max(id), 0) AS n FROM solid_queue_jobs");
    let mut jobs = db.rows("jobs");
    case.by_rust.clone().enqueue(&mut conn).unwrap();
    enqueue_all(&mut conn, [case.by_rust.clone(), case.by_rust]).unwrap();
    assert_eq!(stored(db, behind), [case.stored], "by Rust");
    jobs += 3;
    for (text, number) in ways(db, &case.by_sql) {
        run(db, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        jobs += i64::try_from(number).unwrap();
        assert_eq!(db.rows("jobs"), jobs, "{text}");
        assert_eq!(stored(db, behind), [case.stored], "{text}");
    }
}

/// Returns a job of a tenant whose queue is shared.
fn acme() -> NewJob {
    note().queue("mail").tenant("acme")
}

/// Returns the same as the columns of a list, with others.
fn acme_and(others: Value) -> Value {
    let mut columns = json!({"queue": "mail", "tenant": "acme"});
    for (name, value) in others.as_object().unwrap() {
        columns[name] = value.clone();
    }
    columns
}

fn rate(key: &str) -> Rate {
    Rate::per_hour(9).burst(1).key(key)
}

/// Returns the same rates as the column of a list.
fn rates(keys: &[&str]) -> Value {
    let rates = keys
        .iter()
        .map(|key| json!({"number": 9, "period": "hour", "burst": 1, "key": key}));
    rates.collect()
}

fn jobs_by_sql_have_the_columns_of_those_of_rust(db: &TestDb) {
    share(db);
    compare(
        db,
        case(
            acme(),
            acme_and(json!({})),
            "acme|\u{1d}mail\u{1c}acme|-|-|blocked at \u{1d}mail\u{1c}acme",
        ),
    );
    compare(
        db,
        case(
            acme().rate(rate("a")).rate(rate("b")),
            acme_and(json!({"rates": rates(&["a", "b"])})),
            "acme|\u{1d}mail\u{1c}acme\u{1f}a\u{1f}b|\
             [{\"key\":\"a\",\"number\":9,\"period\":3600000000,\"burst\":1},{\"key\":\"b\",\"number\":9,\"period\":3600000000,\"burst\":1}]\
             |-|blocked at \u{1d}mail\u{1c}acme\u{1f}a\u{1f}b",
        ),
    );
    compare(
        db,
        case(
            acme().after(Duration::from_secs(600)),
            acme_and(json!({"delay_seconds": 600})),
            "acme|\u{1d}mail\u{1c}acme|-|-|scheduled",
        ),
    );
}

fn so_have_those_with_a_concurrency_key(db: &TestDb) {
    share(db);
    compare(
        db,
        case(
            acme().concurrency(Concurrency::new("7")),
            acme_and(json!({"concurrency_key": "7"})),
            "acme|\u{1d}mail\u{1c}acme\u{1e}note/7|-|note/7|blocked at \u{1d}mail\u{1c}acme\u{1e}note/7",
        ),
    );
    let both = acme().concurrency(Concurrency::new("7"));
    compare(
        db,
        case(
            both.rate(rate("a")),
            acme_and(json!({"concurrency_key": "7", "rates": rates(&["a"])})),
            "acme|\u{1d}mail\u{1c}acme\u{1f}a\u{1e}note/7|[{\"key\":\"a\",\"number\":9,\"period\":3600000000,\"burst\":1}]\
             |note/7|blocked at \u{1d}mail\u{1c}acme\u{1f}a\u{1e}note/7",
        ),
    );
    let ordered = || acme().concurrency(Concurrency::new("8").ordered());
    let columns = json!({"concurrency_key": "8", "concurrency_on_conflict": "ordered"});
    compare(
        db,
        case(
            ordered(),
            acme_and(columns.clone()),
            "acme|\u{1e}note/8|-|note/8|blocked at \u{1e}note/8",
        ),
    );
    let mut columns = acme_and(columns);
    columns["rates"] = rates(&["a"]);
    compare(
        db,
        case(
            ordered().rate(rate("a")),
            columns,
            "acme|\u{1e}note/8|[{\"key\":\"a\",\"number\":9,\"period\":3600000000,\"burst\":1}]|note/8|blocked at \u{1e}note/8",
        ),
    );
}

fn jobs_of_no_tenant_or_of_another_queue_take_no_share(db: &TestDb) {
    share(db);
    for case in [
        case(
            note().queue("mail"),
            json!({"queue": "mail"}),
            "-|-|-|-|ready",
        ),
        case(
            note().queue("other").tenant("acme"),
            json!({"queue": "other", "tenant": "acme"}),
            "acme|-|-|-|ready",
        ),
        case(
            note().tenant("acme"),
            json!({"tenant": "acme", "queue": null}),
            "acme|-|-|-|ready",
        ),
        case(
            note().queue("other").tenant("acme").rate(rate("a")),
            json!({"queue": "other", "tenant": "acme", "rates": rates(&["a"])}),
            "acme|a|[{\"key\":\"a\",\"number\":9,\"period\":3600000000,\"burst\":1}]|-|blocked at a",
        ),
    ] {
        compare(db, case);
    }
    // It is shared no more: jobs of the class wait for nothing.
    assert!(tenants::unshare(&mut db.connection(), "mail").unwrap());
    compare(db, case(acme(), acme_and(json!({})), "acme|-|-|-|ready"));
}

fn the_queue_of_the_class_counts(db: &TestDb) {
    share(db);
    db.execute(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at, rates) VALUES ('note', 'mail', '[]', \
         '2026-11-29 00:00:00.000000', '[{\"key\":\"of\",\"number\":9,\"period\":1000000,\"burst\":4}]')",
    );
    let stored = "acme|\u{1d}mail\u{1c}acme\u{1f}of|[{\"key\":\"of\",\"number\":9,\"period\":1000000,\"burst\":4}]|-|\
         blocked at \u{1d}mail\u{1c}acme\u{1f}of";
    let tenant = json!({"tenant": "acme"});
    compare(db, case(note().tenant("acme"), tenant, stored));
    let without = json!({"tenant": "acme", "rates": []});
    let job = note().tenant("acme").without_rates();
    let stored = "acme|\u{1d}mail\u{1c}acme|-|-|blocked at \u{1d}mail\u{1c}acme";
    compare(db, case(job, without, stored));
}

/// A list has jobs of several tenants and queues, and of none.
fn the_jobs_of_a_list_take_turns(db: &TestDb) {
    share(db);
    let job =
        |tenant: &str| json!({"arguments": {"text": tenant}, "queue": "mail", "tenant": tenant});
    let mut jobs = vec![job("acme"); 60];
    jobs.extend(vec![job("globex"); 20]);
    jobs.extend(vec![job("initech"); 20]);
    let list = literal(&json!(jobs).to_string().into());
    run(
        db,
        &match db.is_postgres() {
            true => format!("SELECT windlass_enqueue_many('note', {list})"),
            false => format!("INSERT INTO windlass_enqueue_many VALUES ('note', {list})"),
        },
    )
    .unwrap();
    assert_eq!(
        (db.rows("ready_executions"), db.rows("blocked_executions")),
        (0, 100)
    );
    let order = drained(db);
    assert_eq!(order.len(), 100);
    let counts = of_each(&order, 30);
    assert!(
        counts.values().all(|count| (8..13).contains(count)),
        "{order:?}"
    );
    assert_eq!(db.rows("blocked_executions"), 0);
}

/// Control characters would end the name of a tenant within the name of a line.
fn hostile_tenants_are_refused(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    for tenant in [
        "",
        "a\u{0}b",
        "a\u{1c}b",
        "\u{1d}mail\u{1c}globex",
        "a\u{1e}note/7",
        "a\u{1f}api",
        "\u{1f}",
        "a\n",
        "\u{7f}",
        "\u{80}",
        "\u{9f}",
        &"x".repeat(256),
        &"ä".repeat(128),
    ] {
        let error = note().queue("mail").tenant(tenant).enqueue(&mut conn);
        let error = error.unwrap_err().to_string();
        let refused = "1 to 255 bytes and no control character";
        assert!(error.contains(refused), "{tenant:?}: {error}");
        let columns = json!({"queue": "mail", "tenant": tenant});
        for (text, _) in ways(db, &columns) {
            // No statement has a NUL as it is.
            let text = match db.is_postgres() {
                true => text.replace('\0', "' || chr(0) || '"),
                false => text.replace('\0', "' || char(0) || '"),
            };
            let error = run(db, &text).unwrap_err();
            assert!(
                error.contains(refused) || (tenant.contains('\0') && is_about_nul(&error)),
                "{text}: {error}"
            );
        }
    }
    for table in ["solid_queue_jobs", "windlass_wanted_keys", "windlass_lines"] {
        assert_eq!(db.rows_of(table), 0, "{table}");
    }
    // The longest name, of any other characters.
    let tenant = format!("{}ä'\"|%\u{a0}", "x".repeat(247));
    assert_eq!(tenant.len(), 255);
    run(
        db,
        &insert(&row(&json!({"queue": "mail", "tenant": tenant}))),
    )
    .unwrap();
    assert_eq!(drained(db), ["acme"]);
}

/// Returns whether the database has refused a NUL in a text or in JSON.
fn is_about_nul(error: &str) -> bool {
    ["null character", "NUL character", "not JSON"]
        .iter()
        .any(|part| error.contains(part))
}

on_each_database!(
    jobs_by_sql_have_the_columns_of_those_of_rust,
    so_have_those_with_a_concurrency_key,
    jobs_of_no_tenant_or_of_another_queue_take_no_share,
    the_queue_of_the_class_counts,
    the_jobs_of_a_list_take_turns,
    hostile_tenants_are_refused,
);
