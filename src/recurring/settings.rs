//! A recurring task as a configuration file and the commands describe it.

use crate::db::model::recurring::Overlap;
use crate::error::Result;
use crate::job::options::{JobOptions, humane};
use crate::job::registry::Registry;
use crate::recurring::task::RecurringTask;
use crate::recurring::timing::MissedTicks;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use std::time::Duration;

/// The settings of a recurring task, in the order in which they are shown.
pub const NAMES: [&str; 18] = [
    "class",
    "arguments",
    "schedule",
    "time_zone",
    "queue",
    "priority",
    "ahead_by",
    "behind_by",
    "description",
    "missed",
    "overlap",
    "jitter",
    "from",
    "until",
    "max_attempts",
    "delivery",
    "expires_in",
    "retry_for",
];

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
/// Only `class` and `schedule` are required. The queue, the priority and the policy of its jobs are those of their type
/// where they are not set, if its class is registered.
///
/// ```
/// let settings: windlass::recurring::RecurringSettings =
///     serde_json::from_str(r#"{"class": "cleanup", "schedule": "@daily"}"#).unwrap();
/// let task = settings.task("cleanup")?;
/// # assert_eq!(task.key(), "cleanup");
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecurringSettings {
    /// The class of its jobs.
    pub class: String,
    /// The arguments of its jobs. Default: none, an empty object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The schedule as text; see [`Schedule`](crate::recurring::Schedule).
    pub schedule: String,
    /// The time zone of the schedule. Default: the scheduler's, which is UTC unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    #[serde(
        flatten,
        serialize_with = "write_options",
        deserialize_with = "read_options"
    )]
    #[doc(hidden)]
    pub job: JobOptions,
    /// A description for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The handling of missed ticks. Default: fire the latest.
    #[serde(default, serialize_with = "or_default")]
    pub missed: Option<MissedTicks>,
    /// The handling of a tick if the previous job has not ended. Default: fire it.
    #[serde(default, serialize_with = "or_default")]
    pub overlap: Option<Overlap>,
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
}

/// Writes the options that are set.
fn write_options<S: Serializer>(
    options: &JobOptions,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    options.set().serialize(out)
}

/// Reads options, and refuses those that recurring tasks do not have.
fn read_options<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<JobOptions, D::Error> {
    let options = JobOptions::deserialize(input)?;
    match options.set().keys().find(|name| !NAMES.contains(&&***name)) {
        Some(name) => Err(D::Error::unknown_field(name, &NAMES)),
        None => Ok(options),
    }
}

fn or_default<T: Copy + Default + Serialize, S: Serializer>(
    value: &Option<T>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    value.unwrap_or_default().serialize(out)
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

    /// Returns the task with the settings that are set here, but for its class, its arguments and its schedule.
    #[doc(hidden)]
    pub fn apply_settings(&self, mut task: RecurringTask) -> Result<RecurringTask> {
        if let Some(zone) = &self.time_zone {
            task = task.time_zone(zone)?;
        }
        if let Some(queue) = &self.job.queue {
            task = task.queue(queue);
        }
        if let Some(priority) = self.job.priority {
            task = task.priority(priority);
        }
        if let Some(text) = &self.description {
            task = task.description(text);
        }
        let mut task = task.policy(self.job.policy());
        let options = &mut task.options;
        options.missed = self.missed.unwrap_or(options.missed);
        options.overlap = self.overlap.unwrap_or(options.overlap);
        options.jitter = self.jitter.or(options.jitter);
        options.window.from = self.from.or(options.window.from);
        options.window.until = self.until.or(options.window.until);
        Ok(task)
    }
}
