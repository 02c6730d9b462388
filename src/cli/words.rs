//! Words that several commands about recurring tasks print.

use crate::admin::explain::words::age;
use crate::clock;
use crate::db::model::audit::{Actor, Via};
use crate::terminal::printable;
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

// --- `--by` and `--reason`: who changes something, and why ---

/// By whom and why something is changed.
#[derive(Debug, clap::Args)]
pub(crate) struct SaidBy {
    /// The reason, which `windlass audit` shows
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,

    /// The name to record [default: the user of this process, at this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl SaidBy {
    pub(crate) fn actor(&self) -> Actor {
        let actor = Actor::named(self.by.as_deref().unwrap_or_default());
        actor.via(Via::Cli).reason(&*self.reason)
    }
}

/// Returns ` 3m ago by ada: the provider is down`, as far as it is known.
pub(crate) fn said(seconds: Option<f64>, by: Option<&str>, reason: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(seconds) = seconds {
        text.push_str(&format!(" {} ago", age(seconds)));
    }
    if let Some(by) = by {
        text.push_str(&format!(" by {}", printable(by)));
    }
    if let Some(reason) = reason {
        text.push_str(&format!(": {}", printable(reason)));
    }
    text
}
