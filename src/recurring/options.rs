//! The options of a recurring task as its row stores them, and the delay of its jobs.

use crate::db::model::recurring::{Overlap, RecurringTaskRow};
use crate::error::{Error, Result};
use crate::job::concurrency::Concurrency;
use crate::job::options::humane;
use crate::job::policy::{Delivery, Policy};
use crate::recurring::timing::{MissedTicks, TickWindow};
use chrono::{NaiveDateTime, TimeDelta};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// As for a delay of a job.
const LONGEST_JITTER: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// The options of a task that have no column of their own: the contents of the column `options`.
#[doc(hidden)]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOptions {
    pub missed: MissedTicks,
    pub overlap: Overlap,
    #[serde(
        flatten,
        serialize_with = "write_policy",
        deserialize_with = "read_policy"
    )]
    pub policy: Policy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    #[serde(with = "humane::option", skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    #[serde(flatten)]
    pub window: TickWindow,
    /// The place of its declaration, if it is declared in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
}

impl TaskOptions {
    /// # Errors
    /// If another program wrote options that this version cannot read.
    pub(crate) fn read(row: &RecurringTaskRow) -> Result<Self> {
        match row.options.as_str() {
            "" => Ok(TaskOptions::default()),
            text => serde_json::from_str(text).map_err(|error| Error::RecurringTask {
                key: row.key.clone(),
                reason: format!("has options that this version cannot read: {error}"),
            }),
        }
    }

    /// Returns what is wrong with its times.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_long = self.jitter.is_some_and(|jitter| jitter > LONGEST_JITTER);
        let jitter = "has a jitter of more than 1000 years: its jobs would never run";
        let window = self.window.problem();
        window.or_else(|| is_long.then(|| jitter.to_owned()))
    }

    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A policy with the values for which a job has columns, and which the policy's own JSON leaves out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WholePolicy {
    policy: Policy,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_crashes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<Delivery>,
    /// In seconds; negative behind. See [`Policy::ahead_by`].
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead_by: Option<i64>,
}

fn write_policy<S: Serializer>(policy: &Policy, out: S) -> std::result::Result<S::Ok, S::Error> {
    let whole = WholePolicy {
        max_attempts: policy.max_attempts,
        max_crashes: policy.max_crashes,
        delivery: policy.delivery.map(Delivery::as_every_version_knows_it),
        ahead_by: policy.ahead_by,
        policy: policy.clone(),
    };
    whole.serialize(out)
}

fn read_policy<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<Policy, D::Error> {
    let whole = WholePolicy::deserialize(input)?;
    Ok(Policy {
        max_attempts: whole.max_attempts,
        max_crashes: whole.max_crashes,
        delivery: Delivery::refined(whole.delivery, whole.policy.delivery),
        ahead_by: whole.ahead_by,
        ..whole.policy
    })
}

/// Returns when the job of a tick is due, with a jitter.
pub fn starts_at(
    key: &str,
    tick: NaiveDateTime,
    jitter: Option<Duration>,
) -> Option<NaiveDateTime> {
    match jitter.filter(|jitter| !jitter.is_zero()) {
        Some(jitter) => tick.checked_add_signed(delay(key, tick, jitter)),
        None => Some(tick),
    }
}

/// Returns a number that is the same in every process and version: FNV-1a, finished as in
/// `SplitMix64`.
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns the delay of a tick's job: the same for this task and tick whichever process asks, and
/// evenly spread below `jitter` otherwise.
fn delay(key: &str, tick: NaiveDateTime, jitter: Duration) -> TimeDelta {
    let tick = tick.and_utc().timestamp_micros().to_le_bytes();
    let hash = hash(key.bytes().chain(tick));
    let micros = u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX).max(1);
    TimeDelta::microseconds(i64::try_from(hash % micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    #[test]
    fn delays_are_fixed_and_spread() {
        let start = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let jitter = Duration::from_secs(60);
        let of = |key: &str, minute: i64| {
            let tick = start.naive_utc() + TimeDelta::minutes(minute);
            delay(key, tick, jitter).num_milliseconds()
        };
        assert_eq!(of("a", 1), of("a", 1));
        let all: Vec<i64> = (0..1_000).map(|minute| of("a", minute)).collect();
        assert!(all.iter().all(|delay| (0..60_000).contains(delay)));
        for tenth in 0..10 {
            let range = tenth * 6_000..(tenth + 1) * 6_000;
            let within = all.iter().filter(|delay| range.contains(*delay)).count();
            assert!((60..140).contains(&within), "{within} in {range:?}");
        }
        let same = (0..1_000).filter(|minute| of("a", *minute) == of("b", *minute));
        assert!(same.count() < 5);
    }
}
