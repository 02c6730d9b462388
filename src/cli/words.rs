//! Words that several commands about recurring tasks print.

use crate::clock;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// In UTC, as the database has it.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Returns `, jitter 5m`, or nothing if there is none.
pub(crate) fn jitter(jitter: Option<Duration>) -> String {
    let jitter = jitter.filter(|jitter| !jitter.is_zero());
    jitter.map_or(String::new(), |jitter| {
        format!(", jitter {}", clock::in_units(jitter))
    })
}

/// Returns what is said of a task that no scheduler declares any more.
pub(crate) fn undeclared(deleted_at: DateTime<Utc>) -> String {
    format!(
        "no longer declared, deleted on {}",
        deleted_at.format("%Y-%m-%d")
    )
}

/// Returns why a task has no upcoming run.
pub(crate) fn why_none(schedule: &str, until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    match until {
        Some(until) if until <= now => format!("it ended at {}", time(until)),
        _ if schedule == "@start" => "it is due when a new deployment starts".to_owned(),
        _ if schedule.starts_with("@timing") => "only its program can compute its runs".to_owned(),
        Some(until) => format!("its schedule has none before {}", time(until)),
        None => "its schedule has none".to_owned(),
    }
}
