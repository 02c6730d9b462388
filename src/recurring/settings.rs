//! A recurring task in a configuration file.

use crate::db::model::recurring::Overlap;
use crate::error::Result;
use crate::job::policy::{Delivery, Policy};
use crate::job::registry::Registry;
use crate::recurring::task::RecurringTask;
use crate::recurring::timing::{MissedTicks, humane};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// One recurring task of a configuration file, without its key:
///
/// ```toml
/// [recurring.cleanup]
/// class = "cleanup"
/// arguments = { days = 30 }
/// schedule = "30 3 * * *"
/// time_zone = "Europe/Berlin"
/// queue = "slow"
/// priority = 5             # or ahead_by = "10 min", or behind_by = "1 hour"
/// description = "Deletes what is older than a month"
/// missed = "latest"        # or "skip", or { all_within = "3 days" }
/// overlap = "skip"         # or "allow", or "queue_one"
/// jitter = "5 min"
/// from = "2026-12-01T00:00:00Z"
/// until = "2027-01-01T00:00:00+01:00"
/// max_attempts = 3
/// delivery = "at_most_once" # or "at_least_once", or "after_known_outcome"
/// expires_in = "1 hour"    # discarded if it has not started by then
/// retry_for = "1 day"
/// ```
///
/// Only `class` and `schedule` are required.
///
/// ```
/// let settings: windlass::RecurringSettings =
///     serde_json::from_str(r#"{"class": "cleanup", "schedule": "@daily"}"#).unwrap();
/// let task = settings.task("cleanup")?;
/// # assert_eq!(task.key(), "cleanup");
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecurringSettings {
    /// The class of its jobs.
    pub class: String,
    /// The arguments of its jobs. Default: none, an empty object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The schedule as text; see [`Schedule`](crate::Schedule).
    pub schedule: String,
    /// The time zone of the schedule. Default: the scheduler's, which is UTC unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The queue of its jobs. Default: that of their type if its class is registered, otherwise
    /// `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The priority of its jobs; a smaller number is more important. Default: that of their type if
    /// its class is registered, otherwise 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The tick's time as the priority, minus this; see [`Policy::ahead_by`]. Default: none.
    #[serde(
        default,
        with = "humane::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ahead_by: Option<Duration>,
    /// The tick's time as the priority, plus this; see [`Policy::behind_by`]. Default: none.
    #[serde(
        default,
        with = "humane::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub behind_by: Option<Duration>,
    /// A description for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The handling of missed ticks. Default: fire the latest.
    #[serde(default)]
    pub missed: MissedTicks,
    /// The handling of a tick if the previous job has not ended. Default: fire it.
    #[serde(default)]
    pub overlap: Overlap,
    /// The longest delay of the job of each tick; see [`RecurringTask::jitter`]. Default: none.
    #[serde(
        default,
        with = "humane::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Duration>,
    /// The first time at which it may be due, with its zone; see [`RecurringTask::from`]. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<DateTime<Utc>>,
    /// The time from which on it is no longer due; see [`RecurringTask::until`]. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// The number of attempts of each job. Default: that of their type or the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The delivery guarantee of each job. Default: that of their type, or at least once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The time after which a due job is discarded if it has not started; see
    /// [`Policy::expires_in`]. Default: that of their type, or never.
    #[serde(
        default,
        with = "humane::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_in: Option<Duration>,
    /// The time for which a due job is tried again; see [`Policy::retry_for`]. Default: that of their
    /// type, or only the number of attempts counts.
    #[serde(
        default,
        with = "humane::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_for: Option<Duration>,
}

impl RecurringSettings {
    /// Returns the task with this key, whatever its class.
    ///
    /// # Errors
    /// If the key, the schedule or the time zone is invalid.
    pub fn task(&self, key: &str) -> Result<RecurringTask> {
        let arguments = match &self.arguments {
            Some(arguments) => arguments.to_string(),
            None => "{}".to_owned(),
        };
        let task = RecurringTask::of_class(key, &self.schedule, &self.class, arguments)?;
        self.apply_settings(task)
    }

    /// Returns the task with this key, with the queue, priority and policy of its type where they
    /// are not set here.
    ///
    /// # Errors
    /// As for [`task`](Self::task), and if the class is not registered or the arguments do not
    /// match its type.
    pub fn task_of(&self, key: &str, registry: &Registry) -> Result<RecurringTask> {
        let arguments = match &self.arguments {
            Some(arguments) => arguments.to_string(),
            None => "null".to_owned(),
        };
        let job = registry.trusted_job(&self.class, &arguments, None)?;
        self.apply_settings(RecurringTask::of_job(key, &self.schedule, job)?)
    }

    /// Applies these settings to a task.
    fn apply_settings(&self, task: RecurringTask) -> Result<RecurringTask> {
        let mut task = task.missed(self.missed).overlap(self.overlap);
        if let Some(priority) = self.priority {
            task = task.priority(priority);
        }
        if let Some(ahead) = self.ahead_by {
            task = task.policy(Policy::new().ahead_by(ahead));
        }
        if let Some(behind) = self.behind_by {
            task = task.policy(Policy::new().behind_by(behind));
        }
        if let Some(zone) = &self.time_zone {
            task = task.time_zone(zone)?;
        }
        if let Some(queue) = &self.queue {
            task = task.queue(queue);
        }
        if let Some(text) = &self.description {
            task = task.description(text);
        }
        if let Some(jitter) = self.jitter {
            task = task.jitter(jitter);
        }
        if let Some(time) = self.from {
            task = task.from(time);
        }
        if let Some(time) = self.until {
            task = task.until(time);
        }
        if let Some(attempts) = self.max_attempts {
            task = task.policy(Policy::new().max_attempts(attempts));
        }
        if let Some(delivery) = self.delivery {
            task = task.policy(Policy::new().delivery(delivery));
        }
        if let Some(time) = self.expires_in {
            task = task.policy(Policy::new().expires_in(time));
        }
        if let Some(time) = self.retry_for {
            task = task.policy(Policy::new().retry_for(time));
        }
        Ok(task)
    }
}
