//! A vector as a job: by the methods of `NewJob` where they can express its columns.

use serde_json::{Map, Value};
use std::time::Duration;
use windlass_enqueue::{
    Backoff, Concurrency, Delivery, LimitConflict, NewJob, OnConflict, Policy, UniqueScope,
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
    let backoff = backoff(columns);
    for (name, value) in columns {
        let is_done = name == "class" || name == "arguments" || value.is_null();
        let is_limit = is_limited && name.starts_with("concurrency");
        let is_backoff = backoff.is_some() && name.starts_with("backoff");
        if !is_done && !is_limit && !is_backoff {
            job = with(job, name, value);
        }
    }
    match backoff {
        Some(backoff) => job.policy(Policy::new().backoff(backoff)),
        None => job,
    }
}

fn backoff(columns: &Map<String, Value>) -> Option<Backoff> {
    let first = time(columns.get("backoff_seconds")?)?;
    Some(match columns.get("backoff_cap_seconds") {
        Some(cap) => Backoff::Exponential {
            first,
            cap: time(cap)?,
        },
        None => Backoff::Fixed(first),
    })
}

/// Returns a number of seconds, unless a policy would shorten it.
fn time(value: &Value) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(value.as_f64()?).ok()?;
    (time < Duration::from_secs(31_622_400_000)).then_some(time)
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
    if let Some(policy) = policy(name, value) {
        return job.policy(policy);
    }
    match (name, value.as_i64()) {
        ("queue", _) => return job.queue(text()),
        ("unique_id", _) => return job.unique_id(text()),
        ("idempotency_key", _) => return job.idempotency_key(text()),
        ("traceparent", _) => return job.traceparent(text()),
        ("tenant", _) => return job.tenant(text()),
        ("priority", Some(number)) => {
            if let Ok(priority) = i32::try_from(number) {
                return job.priority(priority);
            }
        }
        ("version", Some(number)) => {
            if let Ok(version) = u32::try_from(number) {
                return job.arguments_version(version);
            }
        }
        ("delay_seconds", _) => {
            if let Some(delay) = time(value) {
                return job.after(delay);
            }
        }
        ("tags", _) => {
            if let Ok(tags) = serde_json::from_str::<Vec<String>>(&text()) {
                return job.tags(tags);
            }
        }
        ("rates", _) if text() == "[]" => return job.without_rates(),
        ("meta", _) => {
            let meta: Map<String, Value> = serde_json::from_str(&text()).unwrap_or_default();
            if !meta.is_empty() {
                let meta = meta.into_iter();
                return meta.fold(job, |job, (key, value)| job.meta(key, value));
            }
        }
        _ => {}
    }
    job.column(name.to_owned().leak(), text())
}

/// Returns the policy with this column, if a policy can express its value.
fn policy(name: &str, value: &Value) -> Option<Policy> {
    let policy = Policy::new();
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    Some(match (name, value.as_str()) {
        // A policy makes zero attempts one.
        ("max_attempts", _) => policy.max_attempts(number.filter(|number| *number > 0)?),
        ("max_crashes", _) => policy.max_crashes(number?),
        ("at_most_once", _) => policy.delivery(match value.as_bool()? {
            true => Delivery::AtMostOnce,
            false => Delivery::AtLeastOnce,
        }),
        ("timeout_seconds", _) => policy.timeout(time(value)?),
        ("retry_for_seconds", _) => policy.retry_for(time(value)?),
        ("keep_result_seconds", _) => policy.keep_result(time(value)?),
        ("expires_in_seconds", _) => policy.expires_in(time(value)?),
        ("unique_scope", Some("while_waiting")) => policy.unique_scope(UniqueScope::WhileWaiting),
        ("unique_scope", Some("until_finished")) => policy.unique_scope(UniqueScope::UntilFinished),
        ("unique_scope", Some("until_result_expires")) => {
            policy.unique_scope(UniqueScope::UntilResultExpires)
        }
        ("on_conflict", Some("existing")) => policy.on_conflict(OnConflict::Existing),
        ("on_conflict", Some("refuse")) => policy.on_conflict(OnConflict::Refuse),
        ("on_conflict", Some("replace")) => policy.on_conflict(OnConflict::Replace),
        ("on_conflict", Some("run_again")) => policy.on_conflict(OnConflict::RunAgain),
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
