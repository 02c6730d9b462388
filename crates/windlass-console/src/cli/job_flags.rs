//! The flags of a job's options, for `windlass enqueue` and `windlass recurring`, and their values.

use chrono::{DateTime, Utc};
use std::time::Duration;
use windlass::internal::job::options::JobOptions;
use windlass::{Backoff, Delivery};

/// The options of a job. Those that are not given come from its type.
#[derive(Debug, clap::Args)]
pub(crate) struct JobFlags {
    /// The queue [default: the type's, or `default`]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// The priority; a smaller number is more important [default: the type's, or 0]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    priority: Option<i32>,

    /// Use the time from which the job waits as the priority, minus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "priority")]
    ahead_by: Option<Duration>,

    /// Use the time from which the job waits as the priority, plus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with_all = ["priority", "ahead_by"])]
    behind_by: Option<Duration>,

    /// The largest number of attempts [default: the type's, or the worker's]
    #[arg(long = "attempts", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,

    /// The delay before the next attempt, as `30s`, or doubling as `10s..1h`
    #[arg(long, value_name = "TIME", value_parser = backoff)]
    backoff: Option<Backoff>,

    /// No further attempt so long after the job is due
    #[arg(long, value_name = "TIME", value_parser = above_zero, conflicts_with = "retry_until")]
    retry_for: Option<Duration>,

    /// No further attempt after this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    retry_until: Option<DateTime<Utc>>,

    /// Discard the job if it has not started so long after it is due
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    expires_in: Option<Duration>,

    /// The time limit of an attempt
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    timeout: Option<Duration>,

    /// The time for which the result is kept
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_result: Option<Duration>,

    /// The delivery guarantee: how often the job may start [default: the type's, or at-least-once]
    #[arg(long, value_name = "HOW", value_parser = word::<Delivery, 3>([
        ("at-least-once", "A run that was cut short is repeated"),
        ("at-most-once", "A run that was cut short makes the job fail, and so does an error"),
        ("after-known-outcome", "A run that was cut short makes the job fail; errors may be retried"),
    ]))]
    delivery: Option<Delivery>,
}

impl JobFlags {
    /// Returns the options that were given.
    pub(crate) fn options(&self) -> JobOptions {
        JobOptions {
            queue: self.queue.clone(),
            priority: self.priority,
            ahead_by: self.ahead_by,
            behind_by: self.behind_by,
            max_attempts: self.max_attempts,
            backoff: self.backoff,
            retry_for: self.retry_for,
            retry_until: self.retry_until,
            expires_in: self.expires_in,
            timeout: self.timeout,
            keep_result: self.keep_result,
            delivery: self.delivery,
            ..JobOptions::default()
        }
    }
}

// --- Values on the command line, whose default error messages would not help ---

/// Parses a time with its zone.
pub(crate) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    text.parse().map_err(|error| {
        format!("{error}; a time is written with its date and zone, as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+02:00")
    })
}

/// Parses a time span that is not empty.
pub(crate) fn above_zero(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Err("it must be above zero".to_owned()),
        false => Ok(time),
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

/// Parses one of these words, each of which has its help, to the value that has this name in JSON.
pub(crate) fn word<T, const N: usize>(
    words: [(&'static str, &'static str); N],
) -> impl clap::builder::TypedValueParser<Value = T>
where
    T: serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    let words = words.map(|(word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words)
        .try_map(|word| serde_json::from_value(word.replace('-', "_").into()))
}
