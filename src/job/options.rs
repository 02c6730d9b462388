//! The options of a job as programs outside of Rust name them.
//!
//! One list serves recurring tasks in a configuration and by `windlass recurring`, the command `windlass enqueue`, and
//! requests over HTTP, whose options are those of enqueues in SQL.

use crate::db::model::extras::On;
use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::job::BatchId;
use crate::job::concurrency::{Concurrency, LimitConflict};
use crate::job::new_job::{LONGEST_DELAY, NewJob};
use crate::job::policy::backoff::Backoff;
use crate::job::policy::{Delivery, Policy};
use crate::job::rate::{self, Rate};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// The columns of the view `windlass_enqueue`, which are the fields of a request over HTTP: the class, the arguments, and
/// options.
pub const COLUMNS: [&str; 33] = [
    "class",
    "arguments",
    "queue",
    "priority",
    "run_at",
    "delay_seconds",
    "unique_id",
    "unique_scope",
    "on_conflict",
    "idempotency_key",
    "concurrency_key",
    "concurrency_group",
    "concurrency_limit",
    "concurrency_on_conflict",
    "max_attempts",
    "max_crashes",
    "at_most_once",
    "traceparent",
    "tags",
    "meta",
    "version",
    "timeout_seconds",
    "backoff_seconds",
    "backoff_cap_seconds",
    "expires_in_seconds",
    "not_after",
    "retry_for_seconds",
    "keep_result_seconds",
    "tenant",
    "batch_id",
    "after_batch",
    "runs_on",
    "rates",
];

/// The options of a job. Those that are not set come from its type.
///
/// The names are those in files and requests. A request can have those in [`COLUMNS`], and a recurring task of a file
/// those in [`NAMES`](crate::recurring::settings::NAMES). The commands `windlass enqueue` and `windlass recurring` have
/// flags for the first part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobOptions {
    /// The queue. Default: the type's, or `default`.
    pub queue: Option<String>,

    /// The priority; a smaller number is more important. Default: the type's, or 0.
    pub priority: Option<i32>,

    /// Use the time from which the job waits as the priority, minus this time.
    #[serde(with = "humane::option")]
    pub ahead_by: Option<Duration>,

    /// Use the time from which the job waits as the priority, plus this time.
    #[serde(with = "humane::option")]
    pub behind_by: Option<Duration>,

    /// The largest number of attempts. Default: the type's, or the worker's.
    pub max_attempts: Option<u32>,

    /// The delay before the next attempt.
    #[serde(skip)]
    pub backoff: Option<Backoff>,

    /// No further attempt so long after the job is due.
    #[serde(with = "humane::option")]
    pub retry_for: Option<Duration>,

    /// No further attempt after this time.
    pub retry_until: Option<DateTime<Utc>>,

    /// Discard the job if it has not started so long after it is due.
    #[serde(with = "humane::option")]
    pub expires_in: Option<Duration>,

    /// The time limit of an attempt.
    #[serde(with = "humane::option")]
    pub timeout: Option<Duration>,

    /// The time for which the result is kept.
    #[serde(with = "humane::option")]
    pub keep_result: Option<Duration>,

    /// The delivery guarantee: how often the job may start. Default: the type's, or at least once.
    pub delivery: Option<Delivery>,

    // Those of one enqueue follow. `windlass enqueue` has some of them under other names.
    /// Run no earlier than at this time.
    pub run_at: Option<DateTime<Utc>>,

    /// Run no earlier than after this time.
    pub delay_seconds: Option<f64>,

    /// Discard the job if it has not started by this time.
    pub not_after: Option<DateTime<Utc>>,

    /// Enqueue a job with this key only once.
    pub idempotency_key: Option<String>,

    /// Only one job may hold this id at a time.
    pub unique_id: Option<String>,

    /// The time for which the job holds its unique id.
    pub unique_scope: Option<UniqueScope>,

    /// The policy if another job holds the unique id.
    pub on_conflict: Option<OnConflict>,

    /// Only so many jobs with this key run at once.
    pub concurrency_key: Option<String>,

    /// Job types with the same group share their keys. Default: the class.
    pub concurrency_group: Option<String>,

    /// The number of jobs with the key that run at once. Default: 1.
    pub concurrency_limit: Option<u32>,

    /// The policy for a job whose key has no free slot.
    pub concurrency_on_conflict: Option<SlotConflict>,

    /// The number of times that the process may die during the job.
    pub max_crashes: Option<u32>,

    /// The same as the delivery `at_most_once` if true, and `at_least_once` if false.
    pub at_most_once: Option<bool>,

    /// The trace context of the enqueue, as the header of W3C Trace Context.
    pub traceparent: Option<String>,

    /// The version of the arguments. Default: 1.
    pub version: Option<u32>,

    /// The time limit of an attempt.
    pub timeout_seconds: Option<f64>,

    /// The delay before the second attempt and, without a cap, before each further one.
    pub backoff_seconds: Option<f64>,

    /// The longest delay between attempts: it doubles from `backoff_seconds` up to this.
    pub backoff_cap_seconds: Option<f64>,

    /// Discard the job if it has not started so long after it is due.
    pub expires_in_seconds: Option<f64>,

    /// No further attempt so long after the job is due.
    pub retry_for_seconds: Option<f64>,

    /// The time for which the result is kept.
    pub keep_result_seconds: Option<f64>,

    /// The tenant of the job: the customer, for example.
    pub tenant: Option<String>,

    /// The batch that the job joins.
    pub batch_id: Option<i64>,

    /// The batch that the job waits for.
    pub after_batch: Option<i64>,

    /// The outcome of that batch on which the job runs. Default: its success.
    pub runs_on: Option<On>,

    /// Tags of the job.
    pub tags: Option<Vec<String>>,

    /// Metadata of the job.
    pub meta: Option<Map<String, Value>>,

    /// The rates at which jobs with their keys start. An empty list: none, whatever its type says.
    #[serde(deserialize_with = "rate::named")]
    pub rates: Option<Vec<Rate>>,
}

/// The policy for a job whose key has no free slot.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotConflict {
    Block,
    Discard,
    /// It waits for its turn in the order of the enqueues.
    Ordered,
}

impl JobOptions {
    /// Returns the options that are set, by their names.
    pub fn set(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(all)) => all
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect(),
            _ => Map::new(),
        }
    }

    /// Returns the policy of these options.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::new();
        policy.max_attempts = self.max_attempts.map(|attempts| attempts.max(1));
        policy.max_crashes = self.max_crashes;
        policy.backoff = self.backoff;
        policy.keep_result = self.keep_result;
        policy.unique_scope = self.unique_scope;
        policy.on_conflict = self.on_conflict;
        policy.rates = self.rates.clone().unwrap_or_default();
        let named = self.at_most_once.map(|at_most_once| match at_most_once {
            true => Delivery::AtMostOnce,
            false => Delivery::AtLeastOnce,
        });
        policy.delivery = self.delivery.or(named);
        if let Some(ahead) = self.ahead_by {
            policy = policy.ahead_by(ahead);
        }
        if let Some(behind) = self.behind_by {
            policy = policy.behind_by(behind);
        }
        if let Some(time) = self.retry_for {
            policy = policy.retry_for(time);
        }
        if let Some(time) = self.retry_until {
            policy = policy.retry_until(time);
        }
        if let Some(time) = self.expires_in {
            policy = policy.expires_in(time);
        }
        if let Some(timeout) = self.timeout {
            policy = policy.timeout(timeout);
        }
        policy
    }
}

// --- Enqueues ---

impl JobOptions {
    /// Returns the job with these options.
    ///
    /// # Errors
    /// The reason, if a value is impossible or two contradict each other.
    pub fn apply(&self, mut job: NewJob) -> Result<NewJob, String> {
        if self.max_attempts == Some(0) {
            return Err("`max_attempts` is 1 or more".to_owned());
        }
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(time) = self.not_after {
            job = job.not_after(time);
        }
        if let Some(key) = &self.idempotency_key {
            job = job.idempotency_key(key);
        }
        if let Some(id) = &self.unique_id {
            job = job.unique_id(id);
        }
        if let Some(header) = &self.traceparent {
            job = job.traceparent(header);
        }
        for (key, value) in self.meta.iter().flatten() {
            job = job.meta(key, value.clone());
        }
        if let Some(version) = self.version {
            if version == 0 {
                return Err("`version` is 1 or more".to_owned());
            }
            job = job.arguments_version(version);
        }
        if let Some(tenant) = &self.tenant {
            job = job.tenant(tenant);
        }
        if let Some(batch) = self.batch_id {
            job = job.batch(BatchId(batch));
        }
        if let Some(batch) = self.after_batch {
            job = job.after(BatchId(batch));
        }
        if let Some(on) = self.runs_on {
            job = job.when(on);
        }
        job = job.tags(self.tags.iter().flatten());
        if self.rates.is_some() {
            job = job.without_rates();
        }
        let policy = self.in_seconds(self.policy())?;
        Ok(self.limited(self.timed(job)?)?.policy(policy))
    }

    /// Adds what is given in seconds.
    fn in_seconds(&self, mut policy: Policy) -> Result<Policy, String> {
        if let Some(time) = seconds("timeout_seconds", self.timeout_seconds)? {
            policy = policy.timeout(time);
        }
        let first = seconds("backoff_seconds", self.backoff_seconds)?;
        let cap = seconds("backoff_cap_seconds", self.backoff_cap_seconds)?;
        match (first, cap) {
            (Some(delay), None) => policy = policy.backoff(Backoff::Fixed(delay)),
            (Some(first), Some(cap)) => {
                policy = policy.backoff(Backoff::Exponential { first, cap })
            }
            (None, Some(_)) => {
                return Err(
                    "`backoff_cap_seconds` needs `backoff_seconds`, the first delay".to_owned(),
                );
            }
            (None, None) => {}
        }
        if let Some(time) = seconds("expires_in_seconds", self.expires_in_seconds)? {
            if self.not_after.is_some() {
                return Err("`not_after` and `expires_in_seconds` are two expiries for one job: send one of them".to_owned());
            }
            policy = policy.expires_in(time);
        }
        if let Some(time) = seconds("retry_for_seconds", self.retry_for_seconds)? {
            policy = policy.retry_for(time);
        }
        if let Some(time) = seconds("keep_result_seconds", self.keep_result_seconds)? {
            policy = policy.keep_result(time);
        }
        Ok(policy)
    }

    fn timed(&self, job: NewJob) -> Result<NewJob, String> {
        match (self.run_at, self.delay_seconds) {
            (Some(_), Some(_)) => Err(
                "`run_at` and `delay_seconds` are two times for one job: send one of them"
                    .to_owned(),
            ),
            (Some(time), None) => Ok(job.at(time)),
            (None, Some(seconds)) => match Duration::try_from_secs_f64(seconds) {
                Ok(delay) => Ok(job.after(delay)),
                Err(_) => Err(format!(
                    "`delay_seconds` is a number of seconds from now, 0 or more; it is {seconds}"
                )),
            },
            (None, None) => Ok(job),
        }
    }

    fn limited(&self, job: NewJob) -> Result<NewJob, String> {
        let Some(key) = &self.concurrency_key else {
            let is_alone = self.concurrency_group.is_some()
                || self.concurrency_limit.is_some()
                || self.concurrency_on_conflict.is_some();
            return match is_alone {
                true => Err("a concurrency limit needs a `concurrency_key`".to_owned()),
                false => Ok(job),
            };
        };
        let mut limit = Concurrency::new(key).limit(self.concurrency_limit.unwrap_or(1));
        if let Some(group) = &self.concurrency_group {
            limit = limit.group(group);
        }
        Ok(job.concurrency(match self.concurrency_on_conflict {
            None | Some(SlotConflict::Block) => limit,
            Some(SlotConflict::Discard) => limit.on_conflict(LimitConflict::Discard),
            Some(SlotConflict::Ordered) => limit.ordered(),
        }))
    }
}

/// Returns a number of seconds as a time.
fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>, String> {
    const MOST: f64 = (LONGEST_DELAY / 1_000_000) as f64;
    match value {
        Some(seconds) if (0.0..=MOST).contains(&seconds) => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        Some(seconds) => Err(format!(
            "`{name}` is a number of seconds, 0 or more and at most 1000 years; it is {seconds}"
        )),
        None => Ok(None),
    }
}

// --- Values in text ---

/// Durations as users write them: `6h`, `2 days`.
pub(crate) mod humane {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&crate::clock::in_units(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(input)?;
        humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format!(
                "`{}` is not a duration such as `6h`: {error}",
                text.escape_default()
            ))
        })
    }

    /// The same for a value that may be missing.
    pub(crate) mod option {
        use super::{Deserializer, Duration, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            value: &Option<Duration>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, out),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            input: D,
        ) -> Result<Option<Duration>, D::Error> {
            super::deserialize(input).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_an_option() {
        let all = serde_json::to_value(JobOptions::default()).unwrap();
        for column in &COLUMNS[2..] {
            assert!(all.get(column).is_some(), "{column}");
        }
    }
}
