//! The vectors of enqueues, and how Rust and SQL enqueue them.

use super::TestDb;
use chrono::{DateTime, Utc};
use diesel::RunQueryDsl as _;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;
use windlass::jobs::EnqueueOutcome;
use windlass::limits::{LimitConflict, Rate};
use windlass::{AsConn, Backoff, BatchId, Concurrency, Conn, NewJob, Policy};

/// Jobs that are enqueued one after the other.
#[derive(Debug, Deserialize)]
pub struct Vector {
    pub name: String,
    pub jobs: Vec<Map<String, Value>>,
}

/// All vectors. A value is written `{"repeat": text, "times": n}` or `{"concat": [..]}` where it is
/// long.
pub fn vectors() -> Vec<Vector> {
    let mut vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../enqueue_vectors.json")).unwrap();
    for job in vectors.iter_mut().flat_map(|vector| &mut vector.jobs) {
        for value in job.values_mut().filter(|value| value.is_object()) {
            *value = Value::from(long(value));
        }
    }
    vectors
}

fn long(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    match value["concat"].as_array() {
        Some(parts) => parts.iter().map(long).collect(),
        None => {
            let times = value["times"].as_u64().unwrap();
            let text = value["repeat"].as_str().unwrap();
            text.repeat(usize::try_from(times).unwrap())
        }
    }
}

/// The statement that shares the threads of most queues of the vectors between tenants. Those of one are shared no more.
pub const SHARE_QUEUES: &str = "INSERT INTO windlass_fair_queues (queue_name, is_ending, created_at) \
     VALUES ('default', FALSE, '2026-11-29 00:00:00.000000'), ('slow', FALSE, '2026-11-29 00:00:00.000000'), \
     ('nightly', FALSE, '2026-11-29 00:00:00.000000'), ('mail', TRUE, '2026-11-29 00:00:00.000000')";

/// Enqueues a job as Rust does. What Rust has no words for is refused.
pub fn by_rust<C: AsConn>(
    conn: &mut C,
    job: &Map<String, Value>,
) -> Result<EnqueueOutcome, String> {
    let text = |column: &str| job.get(column).and_then(Value::as_str);
    let mut new = NewJob::of_class(
        text("class").ok_or("no class")?,
        text("arguments").unwrap_or("null"),
    );
    if let Some(queue) = text("queue") {
        new = new.queue(queue);
    }
    if let Some(priority) = job.get("priority").and_then(Value::as_i64) {
        new = new.priority(i32::try_from(priority).map_err(|error| error.to_string())?);
    }
    if let Some(key) = text("idempotency_key") {
        new = new.idempotency_key(key);
    }
    if let Some(id) = text("unique_id") {
        new = new.unique_id(id);
    }
    if let Some(header) = text("traceparent") {
        new = new.traceparent(header);
    }
    if let Some(tenant) = text("tenant") {
        new = new.tenant(tenant);
    }
    new = rated(limited(timed(new, job)?, job)?, job)?;
    new = described(new, job)?.policy(policy(job)?);
    let done = new.enqueue(conn).map_err(|error| error.to_string())?;
    Ok(done.outcome)
}

fn timed(new: NewJob, job: &Map<String, Value>) -> Result<NewJob, String> {
    let at = job.get("run_at").and_then(Value::as_str);
    let delay = job.get("delay_seconds").and_then(Value::as_f64);
    match (at, delay) {
        (Some(_), Some(_)) => Err("a time and a delay".to_owned()),
        (Some(at), None) => {
            let at: DateTime<Utc> = at.parse().map_err(|_| "no time".to_owned())?;
            Ok(new.at(at))
        }
        (None, Some(delay)) => {
            let delay = Duration::try_from_secs_f64(delay).map_err(|error| error.to_string())?;
            Ok(new.after(delay))
        }
        (None, None) => Ok(new),
    }
}

/// Adds the tags, the metadata and the version of the arguments.
fn described(mut new: NewJob, job: &Map<String, Value>) -> Result<NewJob, String> {
    let json = |column: &str| {
        let text = job.get(column).and_then(Value::as_str);
        let read = text.map(serde_json::from_str::<Value>);
        read.transpose().map_err(|error| error.to_string())
    };
    if let Some(tags) = json("tags")? {
        for tag in tags.as_array().ok_or("no list of tags")? {
            new = new.tag(tag.as_str().ok_or("no text")?);
        }
    }
    if let Some(meta) = json("meta")? {
        for (key, value) in meta.as_object().ok_or("no metadata")? {
            new = new.meta(key, value.clone());
        }
    }
    if let Some(version) = job.get("version").and_then(Value::as_i64) {
        let version = u32::try_from(version).map_err(|error| error.to_string())?;
        if version == 0 {
            return Err("no version".to_owned());
        }
        new = new.arguments_version(version);
    }
    if let Some(time) = job.get("not_after").and_then(Value::as_str) {
        if job.contains_key("expires_in_seconds") {
            return Err("two expiries".to_owned());
        }
        let time: DateTime<Utc> = time.parse().map_err(|_| "no time".to_owned())?;
        new = new.not_after(time);
    }
    let id = |column: &str| job.get(column).and_then(Value::as_i64);
    if let Some(batch) = id("batch_id") {
        new = new.batch(BatchId(batch));
    }
    if let Some(batch) = id("after_batch") {
        new = new.after(BatchId(batch));
    }
    if let Some(on) = job.get("runs_on") {
        new = new.when(serde_json::from_value(on.clone()).map_err(|error| error.to_string())?);
    }
    Ok(new)
}

fn limited(new: NewJob, job: &Map<String, Value>) -> Result<NewJob, String> {
    let text = |column: &str| job.get(column).and_then(Value::as_str);
    let Some(key) = text("concurrency_key") else {
        let others = [
            "concurrency_group",
            "concurrency_limit",
            "concurrency_on_conflict",
        ];
        return match others.iter().any(|column| job.contains_key(*column)) {
            true => Err("a limit without a key".to_owned()),
            false => Ok(new),
        };
    };
    let mut limit = Concurrency::new(key);
    if let Some(group) = text("concurrency_group") {
        limit = limit.group(group);
    }
    if let Some(slots) = job.get("concurrency_limit").and_then(Value::as_i64) {
        limit = limit.limit(u32::try_from(slots).map_err(|error| error.to_string())?);
    }
    limit = match text("concurrency_on_conflict") {
        None | Some("block") => limit,
        Some("discard") => limit.on_conflict(LimitConflict::Discard),
        Some("ordered") => limit.ordered(),
        Some(other) => return Err(format!("no way {other}")),
    };
    Ok(new.concurrency(limit))
}

/// Adds the rates.
fn rated(new: NewJob, job: &Map<String, Value>) -> Result<NewJob, String> {
    let Some(text) = job.get("rates").and_then(Value::as_str) else {
        return Ok(new);
    };
    let rates: Vec<Map<String, Value>> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let (mut new, mut keys) = (new.without_rates(), Vec::new());
    for rate in &rates {
        let parts = ["number", "period", "burst", "key", "cost"];
        if rate.keys().any(|part| !parts.contains(&part.as_str())) {
            return Err("no part".to_owned());
        }
        let number = |part: &str| {
            let value = rate.get(part).filter(|value| !value.is_null());
            let number = value
                .map(|value| value.as_u64().ok_or("no number"))
                .transpose()?;
            number
                .map(u32::try_from)
                .transpose()
                .map_err(|_| "too large")
        };
        let count = number("number")?.ok_or("no number")?;
        let mut made = match rate.get("period") {
            Some(period) if period == "second" => Rate::per_second(count),
            Some(period) if period == "minute" || *period == 60_000_000 => Rate::per_minute(count),
            Some(period) if period == "hour" => Rate::per_hour(count),
            Some(period) if period == "day" => Rate::per_day(count),
            other => return Err(format!("no period {other:?}")),
        };
        if let Some(burst) = number("burst")? {
            made = made.burst(burst);
        }
        if let Some(cost) = number("cost")? {
            made = made.cost(cost);
        }
        let key = rate.get("key").filter(|key| !key.is_null());
        if let Some(key) = key {
            made = made.key(key.as_str().ok_or("no key")?);
        }
        // Another rate with the key would replace it.
        if keys.contains(&key) {
            return Err("twice".to_owned());
        }
        keys.push(key);
        new = new.rate(made);
    }
    Ok(new)
}

fn policy(job: &Map<String, Value>) -> Result<Policy, String> {
    let mut policy = Policy::new();
    if let Some(scope) = job.get("unique_scope") {
        let scope = serde_json::from_value(scope.clone()).map_err(|error| error.to_string())?;
        policy = policy.unique_scope(scope);
    }
    if let Some(conflict) = job.get("on_conflict") {
        let conflict =
            serde_json::from_value(conflict.clone()).map_err(|error| error.to_string())?;
        policy = policy.on_conflict(conflict);
    }
    let number = |column: &str| job.get(column).and_then(Value::as_i64);
    if let Some(attempts) = number("max_attempts") {
        if attempts < 1 {
            return Err("no attempt".to_owned());
        }
        policy = policy.max_attempts(u32::try_from(attempts).map_err(|error| error.to_string())?);
    }
    if let Some(crashes) = number("max_crashes") {
        policy = policy.max_crashes(u32::try_from(crashes).map_err(|error| error.to_string())?);
    }
    let seconds = |column: &str| {
        let seconds = job.get(column).and_then(Value::as_f64);
        let time = seconds.map(Duration::try_from_secs_f64).transpose();
        match time.map_err(|error| error.to_string())? {
            Some(time) if time > Duration::from_secs(1_000 * 366 * 86_400) => {
                Err(format!("{column} is too long"))
            }
            time => Ok(time),
        }
    };
    if let Some(time) = seconds("timeout_seconds")? {
        policy = policy.timeout(time);
    }
    if let Some(time) = seconds("expires_in_seconds")? {
        policy = policy.expires_in(time);
    }
    if let Some(time) = seconds("retry_for_seconds")? {
        policy = policy.retry_for(time);
    }
    if let Some(time) = seconds("keep_result_seconds")? {
        policy = policy.keep_result(time);
    }
    policy = match (seconds("backoff_seconds")?, seconds("backoff_cap_seconds")?) {
        (Some(first), Some(cap)) => policy.backoff(Backoff::Exponential { first, cap }),
        (Some(delay), None) => policy.backoff(Backoff::Fixed(delay)),
        (None, Some(_)) => return Err("a cap without a first delay".to_owned()),
        (None, None) => policy,
    };
    policy = match job.get("at_most_once").and_then(Value::as_bool) {
        Some(true) => policy.delivery(windlass::Delivery::AtMostOnce),
        Some(false) => policy.delivery(windlass::Delivery::AtLeastOnce),
        None => policy,
    };
    Ok(policy)
}

/// Enqueues a job by an insert into the view.
pub fn by_sql<C: AsConn>(conn: &mut C, job: &Map<String, Value>) -> Result<(), String> {
    run_on(conn, &insert(job))
}

/// Returns the insert of a job into the view.
pub fn insert(job: &Map<String, Value>) -> String {
    let columns: Vec<&str> = job.keys().map(String::as_str).collect();
    let values: Vec<String> = job.values().map(literal).collect();
    let (columns, values) = (columns.join(", "), values.join(", "));
    format!("INSERT INTO windlass_enqueue ({columns}) VALUES ({values})")
}

/// Runs a statement on a new connection, and returns the database's message if it fails.
pub fn run(db: &TestDb, text: &str) -> Result<(), String> {
    run_on(&mut db.connection(), text)
}

/// Runs a statement, and returns the database's message if it fails.
pub fn run_on<C: AsConn>(conn: &mut C, text: &str) -> Result<(), String> {
    let done = match conn.as_conn() {
        Conn::Sqlite(conn) => diesel::sql_query(text).execute(conn),
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => diesel::sql_query(text).execute(conn),
        _ => unreachable!(),
    };
    done.map(drop).map_err(|error| error.to_string())
}

/// Returns a value as a literal of SQL.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}
