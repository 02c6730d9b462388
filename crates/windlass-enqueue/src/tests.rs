//! The texts of statements and lists, and the values that a job has from its type, its policy and its enqueue.

use crate::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct SendInvoice {
    order: u64,
}

impl JobArgs for SendInvoice {
    const NAME: &'static str = "send_invoice";
    const QUEUE: &'static str = "mail";
    const PRIORITY: i32 = -5;
    const MAX_ARGUMENTS: usize = 14;
    const VERSION: u32 = 2;

    fn policy() -> Policy {
        let backoff = Backoff::Exponential {
            first: SECOND,
            cap: 60 * SECOND,
        };
        let policy = Policy::new().max_attempts(5).backoff(backoff);
        policy.delivery(Delivery::AtLeastOnce).expires_in(SECOND)
    }

    fn unique_id(&self) -> Option<String> {
        Some(format!("invoice/{}", self.order))
    }

    fn concurrency(&self) -> Option<Concurrency> {
        let limit = Concurrency::new("smtp").limit(3).group("mail");
        Some(limit.on_conflict(LimitConflict::Discard))
    }
}

fn invoice() -> NewJob {
    NewJob::new(&SendInvoice { order: 7 }).unwrap()
}

fn import(arguments: &str) -> NewJob {
    NewJob::of_class("import", arguments)
}

/// The values of a job by the names of their columns.
fn values_of(job: &NewJob) -> BTreeMap<&'static str, &str> {
    let columns = job.columns.iter();
    columns
        .map(|(column, text)| (*column, text.as_str()))
        .collect()
}

#[test]
fn only_columns_with_a_value_are_in_a_statement() {
    let job = import("{}").priority(3).after(SECOND / 2);
    let statement = job.statement(Database::Postgres);
    assert_eq!(
        statement.sql,
        "SELECT windlass_enqueue_v2(class => CAST($1 AS text), arguments => CAST($2 AS text), \
         delay_seconds => CAST(CAST($3 AS text) AS double precision), priority => CAST(CAST($4 AS text) AS integer)) AS id"
    );
    assert_eq!(statement.values, ["import", "{}", "0.5", "3"]);
    let statement = job.statement(Database::Sqlite);
    assert_eq!(
        statement.sql,
        "INSERT INTO windlass_enqueue_v2 (class, arguments, delay_seconds, priority) \
         VALUES (?1, ?2, CAST(?3 AS real), CAST(?4 AS integer))"
    );
    assert_eq!(statement.values, ["import", "{}", "0.5", "3"]);
}

#[test]
fn the_other_types_of_columns_are_cast_too() {
    let policy = Policy::new().max_attempts(2).delivery(Delivery::AtMostOnce);
    let job = import("1").at(UNIX_EPOCH).policy(policy);
    let sql = job.statement(Database::Postgres).sql;
    assert!(sql.contains(
        "at_most_once => CAST(CAST($3 AS text) AS boolean), max_attempts => CAST(CAST($4 AS text) AS bigint), \
         run_at => CAST(CAST($5 AS text) AS timestamptz)"
    ));
    let sql = job.statement(Database::Sqlite).sql;
    assert!(sql.contains("(?1, ?2, CAST(?3 AS integer), CAST(?4 AS integer), ?5)"));
}

#[test]
fn a_job_has_the_values_of_its_type() {
    let job = invoice();
    assert_eq!(job.class, "send_invoice");
    let expected = BTreeMap::from([
        ("arguments", r#"{"order":7}"#),
        ("queue", "mail"),
        ("priority", "-5"),
        ("version", "2"),
        ("unique_id", "invoice/7"),
        ("concurrency_key", "smtp"),
        ("concurrency_group", "mail"),
        ("concurrency_limit", "3"),
        ("concurrency_on_conflict", "discard"),
        ("max_attempts", "5"),
        ("at_most_once", "0"),
        ("backoff_seconds", "1"),
        ("backoff_cap_seconds", "60"),
        ("expires_in_seconds", "1"),
    ]);
    assert_eq!(values_of(&job), expected);
}

#[test]
fn a_policy_overrides_value_by_value() {
    let policy = Policy::new()
        .backoff(Backoff::Fixed(9 * SECOND))
        .delivery(Delivery::AtMostOnce)
        .max_crashes(0)
        .timeout(Duration::from_millis(1500))
        .retry_for(2 * SECOND)
        .keep_result(3 * SECOND)
        .unique_scope(UniqueScope::WhileWaiting)
        .on_conflict(OnConflict::RunAgain);
    let job = invoice().policy(policy).not_after(UNIX_EPOCH);
    let columns = values_of(&job);
    for (column, text) in [
        ("max_attempts", Some("5")),
        ("max_crashes", Some("0")),
        ("at_most_once", Some("1")),
        ("backoff_seconds", Some("9")),
        ("backoff_cap_seconds", None),
        ("timeout_seconds", Some("1.5")),
        ("retry_for_seconds", Some("2")),
        ("keep_result_seconds", Some("3")),
        ("unique_scope", Some("while_waiting")),
        ("on_conflict", Some("run_again")),
        ("expires_in_seconds", None),
        ("not_after", Some("1970-01-01T00:00:00.000000Z")),
    ] {
        assert_eq!(columns.get(column).copied(), text, "{column}");
    }
    let policy = Policy::new().max_attempts(0).expires_in(SECOND);
    let job = job.policy(policy).at(UNIX_EPOCH).after(SECOND);
    let columns = values_of(&job);
    assert_eq!(columns["max_attempts"], "1");
    assert!(!columns.contains_key("not_after") && !columns.contains_key("run_at"));
}

#[test]
fn limits_override_each_other_as_a_whole() {
    let job = invoice().concurrency(Concurrency::new(7).ordered());
    let columns = values_of(&job);
    assert_eq!(columns["concurrency_key"], "7");
    assert_eq!(columns["concurrency_limit"], "1");
    assert_eq!(columns["concurrency_on_conflict"], "ordered");
    assert!(!columns.contains_key("concurrency_group"));
    let unlimited = job.clone().unlimited();
    let left = values_of(&unlimited).into_keys();
    assert!(!left.into_iter().any(|name| name.starts_with("concurrency")));
}

#[test]
fn tags_and_metadata_are_json() {
    let job = import("{}").tag("a").tags(["b\"", "a"]);
    let job = job.meta("request", 7).meta("user", "x").meta("request", 8);
    let columns = values_of(&job);
    assert_eq!(columns["tags"], r#"["a","b\""]"#);
    assert_eq!(columns["meta"], r#"{"request":8,"user":"x"}"#);
}

#[test]
fn arguments_are_limited_by_their_type() {
    assert!(NewJob::new(&SendInvoice { order: 1000 }).is_ok());
    let error = NewJob::new(&SendInvoice { order: 10_000 }).unwrap_err();
    assert!(matches!(
        error,
        Error::TooLarge {
            bytes: 15,
            max: 14,
            ..
        }
    ));
    assert!(error.to_string().contains("send_invoice"), "{error}");
}

#[derive(Serialize)]
struct ByPair(BTreeMap<(u8, u8), u8>);

impl JobArgs for ByPair {
    const NAME: &'static str = "by_pair";
}

#[test]
fn arguments_that_json_cannot_express_are_an_error() {
    let error = NewJob::new(&ByPair([((1, 2), 3)].into())).unwrap_err();
    assert!(matches!(
        error,
        Error::Arguments {
            class: "by_pair",
            ..
        }
    ));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_id_is_found_by_what_names_the_job() {
    let newest = "(SELECT seq FROM sqlite_sequence WHERE name = 'solid_queue_jobs')";
    let statement = import("{}").lookup();
    assert_eq!(statement.sql, format!("SELECT {newest} AS id"));
    let statement = import("{}").unique_id("u").idempotency_key("k").lookup();
    assert_eq!(
        statement.sql,
        format!(
            "SELECT coalesce((SELECT id FROM solid_queue_jobs WHERE idempotency_key = ?1), \
             (SELECT j.id FROM windlass_unique_jobs u JOIN solid_queue_jobs j ON j.id IN (u.job_id, u.after_job_id) \
             WHERE u.unique_id = ?2 ORDER BY j.id = u.job_id DESC LIMIT 1), {newest}) AS id"
        )
    );
    assert_eq!(statement.values, ["k", "u"]);
    assert_eq!(import("{}").insert(Database::Postgres).statements.len(), 1);
}

#[test]
fn jobs_that_differ_in_their_arguments_pass_the_rest_once() {
    let jobs = ["{\"a\":\"\\\\\"}", "[1,\n2]"].map(import);
    let texts = |database| {
        statements_for_all(&jobs, database)
            .remove(0)
            .statements
            .remove(0)
            .values
    };
    let escaped = "\"{\\\"a\\\":\\\"\\\\\\\\\\\"}\",\"[1, 2]\"";
    assert_eq!(
        texts(Database::Postgres),
        ["import", &format!("{{{escaped}}}"), "{}"]
    );
    assert_eq!(
        texts(Database::Sqlite),
        ["import", &format!("[{escaped}]"), "{}"]
    );
}

#[test]
fn a_list_has_the_values_as_json() {
    let policy = Policy::new().delivery(Delivery::AtMostOnce).max_attempts(1);
    let jobs = [
        import(r#"{"a" : 1.50}"#).queue("s\"low").priority(-1),
        import("[ ]")
            .after(SECOND / 2)
            .policy(policy)
            .tag("t")
            .meta("m", 1),
    ];
    let json = r#"[{"arguments":{"a" : 1.50},"priority":-1,"queue":"s\"low"},{"arguments":[ ],"at_most_once":true,"delay_seconds":0.5,"max_attempts":1,"meta":{"m":1},"tags":["t"]}]"#;
    let inserts = statements_for_all(&jobs, Database::Postgres);
    let [insert] = &inserts[..] else {
        panic!("{inserts:?}")
    };
    assert_eq!(
        insert.statements[0].sql,
        "SELECT windlass_enqueue_many_v2(CAST($1 AS text), CAST(CAST($2 AS text) AS json)) AS id"
    );
    assert_eq!(insert.statements[0].values, ["import", json]);
    assert_eq!(insert.ids(vec![8, 5]), [8, 5]);
    let inserts = statements_for_all(&jobs, Database::Sqlite);
    assert_eq!(
        inserts[0].statements[0].sql,
        "INSERT INTO windlass_enqueue_many_v2 (class, jobs) VALUES (?1, ?2)"
    );
    assert_eq!(inserts[0].statements[0].values, ["import", json]);
    assert_eq!(inserts[0].ids(vec![8]), [7, 8]);
}

/// The numbers of jobs of the statements for a list.
fn sizes(jobs: &[NewJob], database: Database) -> Vec<usize> {
    let inserts = statements_for_all(jobs, database).into_iter();
    inserts.map(|insert| insert.jobs).collect()
}

#[test]
fn a_list_is_split_by_class_and_size() {
    let mut jobs = vec![import("1"); 501];
    assert_eq!(sizes(&jobs, Database::Postgres), [500, 1]);
    jobs.insert(2, NewJob::of_class("report", "1"));
    assert_eq!(sizes(&jobs, Database::Postgres), [2, 1, 499]);
    assert_eq!(sizes(&[], Database::Postgres), [0; 0]);
    jobs.truncate(7);
    jobs[4] = import("1").idempotency_key("k");
    assert_eq!(sizes(&jobs, Database::Postgres), [2, 1, 4]);
    assert_eq!(sizes(&jobs, Database::Sqlite), [2, 1, 1, 1, 2]);
}

#[test]
fn arguments_cannot_name_columns_of_a_list() {
    let smuggled = r#"1}, {"arguments": 2, "queue": "admin""#;
    let jobs = [import("1"), import(smuggled), import("3")];
    let inserts = statements_for_all(&jobs, Database::Postgres);
    assert_eq!(inserts.len(), 3);
    assert_eq!(
        inserts[1].statements[0],
        jobs[1].statement(Database::Postgres)
    );
}

#[test]
fn rates_are_a_column() {
    let rates = |job: &NewJob| values_of(job).get("rates").map(|text| (*text).to_owned());
    let job = import("1").rate(Rate::per_second(10));
    assert_eq!(rates(&job).unwrap(), r#"[{"number":10,"period":1000000}]"#);
    let job = job.rate(Rate::per_day(9).key("api").burst(4).cost(2));
    let full = r#"{"burst":4,"cost":2,"key":"api","number":9,"period":86400000000}"#;
    assert_eq!(
        rates(&job).unwrap(),
        format!(r#"[{{"number":10,"period":1000000}},{full}]"#)
    );
    // One with the same key replaces it.
    let job = job.rate(Rate::per_hour(1));
    assert_eq!(
        rates(&job).unwrap(),
        format!(r#"[{full},{{"number":1,"period":3600000000}}]"#)
    );
    let inserts = statements_for_all(&[job.clone(), import("2")], Database::Sqlite);
    let list = &inserts[0].statements[0].values[1];
    assert!(list.contains(r#""rates":[{"burst""#), "{list}");
    assert_eq!(rates(&job.without_rates()).unwrap(), "[]");
}
