//! A vector as a job: by the methods of `NewJob` where they can express its columns.

use serde_json::{Map, Value};
use std::time::Duration;
use windlass_enqueue::{
    Concurrency, Delivery, LimitConflict, NewJob, OnConflict, Policy, UniqueScope,
};

pub fn job(columns: &Map<String, Value>) -> NewJob {
    let text = |name: &str| columns.get(name).and_then(long);
    let class = text("class").unwrap_or_default();
    let mut job = NewJob::of_class(class, text("arguments").unwrap_or("null".to_owned()));
    let concurrency = concurrency(columns);
    let is_limited = concurrency.is_some();
    if let Some(concurrency) = concurrency {
        job = job.concurrency(concurrency);
    }
    for (name, value) in columns {
        let is_done = name == "class" || name == "arguments" || value.is_null();
        if !is_done && !(is_limited && name.starts_with("concurrency")) {
            job = with(job, name, value);
        }
    }
    job
}

/// A long text is written `{"repeat": text, "times": n}` or `{"concat": [..]}`.
fn long(value: &Value) -> Option<String> {
    if let Some(parts) = value["concat"].as_array() {
        return parts.iter().map(long).collect();
    }
    match (value["repeat"].as_str(), value["times"].as_u64()) {
        (Some(text), Some(times)) => Some((0..times).map(|_| text).collect()),
        _ => value.as_str().map(str::to_owned),
    }
}

fn with(job: NewJob, name: &str, value: &Value) -> NewJob {
    let text = || long(value).unwrap_or_else(|| value.to_string());
    let policy = Policy::new();
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    match (name, number) {
        ("queue", _) => job.queue(text()),
        ("unique_id", _) => job.unique_id(text()),
        ("idempotency_key", _) => job.idempotency_key(text()),
        ("traceparent", _) => job.traceparent(text()),
        ("priority", _) => match value.as_i64().map(i32::try_from) {
            Some(Ok(priority)) => job.priority(priority),
            _ => job.column(name.to_owned().leak(), text()),
        },
        ("delay_seconds", _) => match value.as_f64().map(Duration::try_from_secs_f64) {
            Some(Ok(delay)) => job.after(delay),
            _ => job.column(name.to_owned().leak(), text()),
        },
        // A policy makes zero attempts one.
        ("max_attempts", Some(1..)) => job.policy(policy.max_attempts(number.unwrap_or_default())),
        ("max_crashes", Some(number)) => job.policy(policy.max_crashes(number)),
        ("at_most_once", _) if value.is_boolean() => job.policy(policy.delivery(match value {
            Value::Bool(true) => Delivery::AtMostOnce,
            _ => Delivery::AtLeastOnce,
        })),
        ("unique_scope" | "on_conflict", _) => match by_word(&text()) {
            Some(policy) => job.policy(policy),
            None => job.column(name.to_owned().leak(), text()),
        },
        _ => job.column(name.to_owned().leak(), text()),
    }
}

fn by_word(word: &str) -> Option<Policy> {
    let policy = Policy::new();
    Some(match word {
        "while_waiting" => policy.unique_scope(UniqueScope::WhileWaiting),
        "until_finished" => policy.unique_scope(UniqueScope::UntilFinished),
        "until_result_expires" => policy.unique_scope(UniqueScope::UntilResultExpires),
        "existing" => policy.on_conflict(OnConflict::Existing),
        "refuse" => policy.on_conflict(OnConflict::Refuse),
        "replace" => policy.on_conflict(OnConflict::Replace),
        "run_again" => policy.on_conflict(OnConflict::RunAgain),
        _ => return None,
    })
}

fn concurrency(columns: &Map<String, Value>) -> Option<Concurrency> {
    let mut concurrency = Concurrency::new(columns.get("concurrency_key").and_then(long)?);
    if let Some(limit) = columns.get("concurrency_limit") {
        concurrency = concurrency.limit(u32::try_from(limit.as_u64()?).ok()?);
    }
    if let Some(group) = columns.get("concurrency_group") {
        concurrency = concurrency.group(long(group)?);
    }
    match columns.get("concurrency_on_conflict").map(Value::as_str) {
        None | Some(Some("block")) => Some(concurrency),
        Some(Some("discard")) => Some(concurrency.on_conflict(LimitConflict::Discard)),
        Some(Some("ordered")) => Some(concurrency.ordered()),
        _ => None,
    }
}
