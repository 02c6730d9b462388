//! The options of a policy, as `windlass enqueue` takes them.

use crate::cli::values;
use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::job::policy::Policy;
use crate::job::policy::backoff::Backoff;
use crate::job::policy::delivery::Delivery;
use chrono::{DateTime, Utc};
use clap::ValueEnum;
use std::time::Duration;

/// What overrides the policy of the type.
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyOptions {
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
    #[arg(long, value_name = "TIME", value_parser = values::above_zero,
        conflicts_with = "not_after")]
    expires_in: Option<Duration>,

    /// How long an attempt may take
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,

    /// How long the result is kept
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_result: Option<Duration>,

    /// How many times the job may start [default: the type's, or at-least-once]
    #[arg(long, value_name = "HOW")]
    delivery: Option<DeliveryName>,

    /// What happens if another job holds the unique id [default: the type's, or existing]
    #[arg(long, value_name = "WHAT")]
    on_conflict: Option<OnConflictName>,

    /// How long the job holds its unique id [default: the type's, or until-finished]
    #[arg(long, value_name = "HOW")]
    unique_scope: Option<UniqueScopeName>,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnConflictName {
    /// The existing job stays as it is
    Existing,
    /// It is an error
    Refuse,
    /// A waiting job is replaced
    Replace,
    /// A running job is followed by this one
    RunAgain,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UniqueScopeName {
    /// Until a worker has claimed it
    WhileWaiting,
    /// Until it has finished or failed
    UntilFinished,
    /// Until its result expires
    UntilResultExpires,
}

impl PolicyOptions {
    /// Returns the policy with the options that were given.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::new();
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
        if let Some(what) = self.on_conflict {
            policy = policy.on_conflict(match what {
                OnConflictName::Existing => OnConflict::Existing,
                OnConflictName::Refuse => OnConflict::Refuse,
                OnConflictName::Replace => OnConflict::Replace,
                OnConflictName::RunAgain => OnConflict::RunAgain,
            });
        }
        if let Some(scope) = self.unique_scope {
            policy = policy.unique_scope(match scope {
                UniqueScopeName::WhileWaiting => UniqueScope::WhileWaiting,
                UniqueScopeName::UntilFinished => UniqueScope::UntilFinished,
                UniqueScopeName::UntilResultExpires => UniqueScope::UntilResultExpires,
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
    match text.split_once("..") {
        None => time(text).map(Backoff::Fixed),
        Some((first, cap)) => {
            let (first, cap) = (time(first)?, time(cap)?);
            if first > cap {
                return Err("the first delay is above the longest; \
                     a doubling delay is written as `10s..1h`"
                    .to_owned());
            }
            Ok(Backoff::Exponential { first, cap })
        }
    }
}
