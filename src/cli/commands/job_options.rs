//! The options of jobs that `windlass enqueue` and `windlass recurring` share.

use crate::cli::values;
use crate::job::new_job::NewJob;
use crate::job::policy::backoff::Backoff;
use crate::job::policy::{Delivery, Policy};
use chrono::{DateTime, Utc};
use clap::ValueEnum;
use std::time::Duration;

/// What overrides the queue, priority and policy of the type.
#[derive(Debug, clap::Args)]
pub(crate) struct JobOptions {
    /// The queue [default: the type's, or `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// The priority; a smaller number is more important [default: the type's, or 0]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(crate) priority: Option<i32>,

    /// Use the time from which the job waits as the priority, minus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "priority")]
    ahead_by: Option<Duration>,

    /// Use the time from which the job waits as the priority, plus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with_all = ["priority", "ahead_by"])]
    behind_by: Option<Duration>,

    /// How many attempts the job has [default: the type's, or the worker's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,

    /// The delay before the next attempt, as `30s`, or doubling as `10s..1h`
    #[arg(long, value_name = "TIME", value_parser = backoff)]
    backoff: Option<Backoff>,

    /// No further attempt so long after the job is due
    #[arg(long, value_name = "TIME", value_parser = values::above_zero,
        conflicts_with = "retry_until")]
    retry_for: Option<Duration>,

    /// No further attempt after this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    retry_until: Option<DateTime<Utc>>,

    /// Discard the job if it has not started so long after it is due
    #[arg(long, value_name = "TIME", value_parser = values::above_zero)]
    expires_in: Option<Duration>,

    /// How long an attempt may take
    #[arg(long, value_name = "TIME", value_parser = values::above_zero)]
    timeout: Option<Duration>,

    /// How long the result is kept
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_result: Option<Duration>,

    /// How many times the job may start [default: the type's, or at-least-once]
    #[arg(long, value_name = "HOW")]
    delivery: Option<DeliveryName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DeliveryName {
    /// A run that was cut short is repeated
    AtLeastOnce,
    /// A run that was cut short makes the job fail, and so does an error
    AtMostOnce,
    /// A run that was cut short makes the job fail; errors may be retried
    AfterKnownOutcome,
}

impl JobOptions {
    /// Returns the job with the options that were given.
    pub(crate) fn apply(&self, mut job: NewJob) -> NewJob {
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        job.policy(self.policy())
    }

    /// Returns the policy with the options that were given.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::new();
        if let Some(ahead) = self.ahead_by {
            policy = policy.ahead_by(ahead);
        }
        if let Some(behind) = self.behind_by {
            policy = policy.behind_by(behind);
        }
        if let Some(attempts) = self.attempts {
            policy = policy.max_attempts(attempts);
        }
        if let Some(backoff) = self.backoff {
            policy = policy.backoff(backoff);
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
        if let Some(time) = self.keep_result {
            policy = policy.keep_result(time);
        }
        if let Some(delivery) = self.delivery {
            policy = policy.delivery(match delivery {
                DeliveryName::AtLeastOnce => Delivery::AtLeastOnce,
                DeliveryName::AtMostOnce => Delivery::AtMostOnce,
                DeliveryName::AfterKnownOutcome => Delivery::AfterKnownOutcome,
            });
        }
        policy
    }
}

/// Parses a delay, or the first and the longest of delays that double.
fn backoff(text: &str) -> Result<Backoff, String> {
    let time = |text: &str| {
        humantime::parse_duration(text.trim()).map_err(|error| {
            format!("{error}; a delay is written as `30s`, or `10s..1h` if it doubles")
        })
    };
    let Some((first, cap)) = text.split_once("..") else {
        return time(text).map(Backoff::Fixed);
    };
    let (first, cap) = (time(first)?, time(cap)?);
    if cap < first {
        return Err(
            "the first delay is longer than the longest; write the shorter one first, as `10s..1h`"
                .to_owned(),
        );
    }
    Ok(Backoff::Exponential { first, cap })
}
