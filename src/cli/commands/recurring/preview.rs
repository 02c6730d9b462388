//! The next runs of the tasks of a configuration, for `windlass check`.

use crate::cli::words::{jitter, time, why_none};
use crate::clock;
use crate::config::configuration::Config;
use crate::recurring::window::TickTimes;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::time::Duration;

/// The next runs of a task.
#[derive(Debug, Serialize)]
pub(crate) struct RunsOf {
    key: String,
    schedule: String,
    /// By how much at most its jobs are delayed, in seconds.
    jitter: Option<f64>,
    runs: Vec<DateTime<Utc>>,
    #[serde(skip)]
    pub(crate) text: String,
}

impl RunsOf {
    /// Returns the next runs of all tasks of a configuration.
    pub(crate) fn all(config: &Config) -> Vec<Self> {
        let now = clock::calendar();
        let tasks = config.declared_times().into_iter();
        tasks
            .map(|(key, times, delay)| RunsOf::of(key, &times, delay, now))
            .collect()
    }

    fn of(key: String, times: &TickTimes, delay: Option<Duration>, now: DateTime<Utc>) -> Self {
        let schedule = times.schedule.to_string();
        let runs: Vec<_> = times.upcoming(now.naive_utc()).take(5).collect();
        let until = times.window.until;
        let mut text = format!("{key} ({schedule}{})", jitter(delay));
        if runs.is_empty() {
            text.push_str(&format!(
                ": {}",
                why_none(times.schedule.text(), until, now)
            ));
        }
        for (index, run) in runs.iter().enumerate() {
            text.push_str(if index == 0 { ": " } else { ", " });
            text.push_str(&time(*run));
        }
        if let Some(until) = until.filter(|_| (1..5).contains(&runs.len())) {
            text.push_str(&format!("; until {}", time(until)));
        }
        RunsOf {
            key,
            schedule,
            jitter: delay.map(|delay| delay.as_secs_f64()),
            runs,
            text,
        }
    }
}
