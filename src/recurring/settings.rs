//! A recurring task as a configuration file holds it.

use crate::db::model::recurring::Overlap;
use crate::error::Result;
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::recurring::missed::MissedTicks;
use crate::recurring::task::RecurringTask;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One recurring task of a configuration file, beside its key:
///
/// ```toml
/// [recurring.cleanup]
/// class = "cleanup"
/// arguments = { days = 30 }
/// schedule = "30 3 * * *"
/// time_zone = "Europe/Berlin"
/// queue = "slow"
/// priority = 5
/// description = "Deletes what is older than a month"
/// missed = "latest"        # or "skip", or { all_within = "3 days" }
/// overlap = "skip"         # or "allow", or "queue_one"
/// max_attempts = 3
/// ```
///
/// Only `class` and `schedule` must be there.
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
    /// Their arguments. Default: none, an empty object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// When it is due; see [`Schedule`](crate::Schedule).
    pub schedule: String,
    /// The time zone of the schedule. Default: the scheduler's, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The queue of its jobs. Default: their type's, where the program knows
    /// it, and else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The priority of its jobs; smaller is more important. Default: their
    /// type's, where the program knows it, and else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What to do with missed ticks. Default: fire the latest.
    #[serde(default)]
    pub missed: MissedTicks,
    /// What to do with a tick while the job before it has not ended. Default:
    /// fire it.
    #[serde(default)]
    pub overlap: Overlap,
    /// How often each of its jobs is tried. Default: as their type or the
    /// worker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

impl RecurringSettings {
    /// The task of this key, whatever its class.
    ///
    /// # Errors
    /// When the key, the schedule or the time zone is none.
    pub fn task(&self, key: &str) -> Result<RecurringTask> {
        let arguments = match &self.arguments {
            Some(arguments) => arguments.to_string(),
            None => "{}".to_owned(),
        };
        let task = RecurringTask::of_class(key, &self.schedule, &self.class, arguments)?;
        self.over(task)
    }

    /// The task of this key, with the queue, the priority and the policy of
    /// its type where nothing else is said here.
    ///
    /// # Errors
    /// As for [`task`](Self::task), and when the class is not registered or
    /// the arguments are not those of its type.
    pub fn task_of(&self, key: &str, registry: &Registry) -> Result<RecurringTask> {
        let arguments = match &self.arguments {
            Some(arguments) => arguments.to_string(),
            None => "null".to_owned(),
        };
        let job = registry.new_job(&self.class, &arguments)?;
        self.over(RecurringTask::of_job(key, &self.schedule, job)?)
    }

    /// A task that is as it is said here.
    fn over(&self, task: RecurringTask) -> Result<RecurringTask> {
        let mut task = task.missed(self.missed).overlap(self.overlap);
        if let Some(priority) = self.priority {
            task = task.priority(priority);
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
        if let Some(attempts) = self.max_attempts {
            task = task.policy(Policy::new().max_attempts(attempts));
        }
        Ok(task)
    }
}
