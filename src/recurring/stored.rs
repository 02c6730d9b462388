//! Reads stored recurring tasks.

use crate::db::model::new_row::NewRow;
use crate::db::model::recurring::{Overlap, RecurringTaskRow};
use crate::db::transition::enqueue::rank::rank;
use crate::error::{Error, Result};
use crate::job::arguments::unlisted;
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::policy::{Delivery, Policy, Tick};
use crate::recurring::schedule::{Schedule, time_zone};
use crate::recurring::timing::{MissedTicks, TickTimes, TickWindow, humane};
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// As for a delay of a job.
const LONGEST_JITTER: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// The contents of the column `options`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    pub(crate) missed: MissedTicks,
    pub(crate) overlap: Overlap,
    pub(crate) policy: Policy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<Concurrency>,
    // Columns of a job, which its policy does not repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_crashes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delivery: Option<Delivery>,
    /// In seconds; negative behind. See [`Policy::ahead_by`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead_by: Option<i64>,
    #[serde(with = "humane::option", skip_serializing_if = "Option::is_none")]
    pub(crate) jitter: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<DateTime<Utc>>,
    /// The place of its declaration, if it is declared in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
}

impl Options {
    /// # Errors
    /// If another program wrote options that this version cannot read.
    pub(crate) fn read(row: &RecurringTaskRow) -> Result<Self> {
        match row.options.as_str() {
            "" => Ok(Options::default()),
            text => serde_json::from_str(text).map_err(|error| Error::RecurringTask {
                key: row.key.clone(),
                reason: format!("has options that this version cannot read: {error}"),
            }),
        }
    }

    pub(crate) fn window(&self) -> TickWindow {
        TickWindow {
            from: self.from,
            until: self.until,
        }
    }

    /// Returns what is wrong with its times.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_long = self.jitter.is_some_and(|jitter| jitter > LONGEST_JITTER);
        let jitter = "has a jitter of more than 1000 years: its jobs would never run";
        let window = self.window().problem();
        window.or_else(|| is_long.then(|| jitter.to_owned()))
    }

    /// Returns the whole policy of its jobs.
    pub(crate) fn whole_policy(&self) -> Policy {
        let mut policy = self.policy.clone();
        policy.max_attempts = self.max_attempts;
        policy.max_crashes = self.max_crashes;
        policy.delivery = Delivery::refined(self.delivery, policy.delivery);
        policy.ahead_by = self.ahead_by;
        policy
    }

    /// Stores the policy of its jobs.
    #[cfg(feature = "cli")]
    pub(crate) fn set_policy(&mut self, policy: &Policy) {
        self.policy = policy.clone();
        self.max_attempts = policy.max_attempts;
        self.max_crashes = policy.max_crashes;
        self.delivery = policy.delivery.map(Delivery::as_every_version_knows_it);
        self.ahead_by = policy.ahead_by;
    }

    /// Stores the version of the arguments of its jobs.
    #[cfg(feature = "cli")]
    pub(crate) fn set_version(&mut self, version: u32) {
        self.policy.set_version(version);
    }

    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A task as stored in its row.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) times: TickTimes,
    pub(crate) missed: MissedTicks,
    pub(crate) overlap: Overlap,
    policy: Policy,
    concurrency: Option<Concurrency>,
    jitter: Option<Duration>,
}

impl Stored {
    /// # Errors
    /// If another program wrote options that this version cannot read.
    pub(crate) fn read(row: &RecurringTaskRow) -> Result<Self> {
        let schedule: Schedule = row.schedule.parse()?;
        let options = Options::read(row)?;
        Ok(Stored {
            times: TickTimes {
                schedule: schedule.or_in(time_zone(&row.time_zone)?),
                window: options.window(),
            },
            missed: options.missed,
            overlap: options.overlap,
            policy: options.whole_policy(),
            concurrency: options.concurrency,
            jitter: options.jitter.filter(|jitter| !jitter.is_zero()),
        })
    }

    /// Returns the job of a tick, which starts later by the task's jitter.
    ///
    /// # Errors
    /// If another program wrote values that no job may have.
    pub(crate) fn job(&self, row: &RecurringTaskRow, tick: NaiveDateTime) -> Result<NewRow> {
        let mut job = self.job_at_once(row, tick)?;
        if self.jitter.is_some() {
            job.at = self.starts_at(&row.key, tick);
        }
        Ok(job)
    }

    /// Returns when the job of a tick is due, with the task's jitter.
    pub(crate) fn starts_at(&self, key: &str, tick: NaiveDateTime) -> Option<NaiveDateTime> {
        starts_at(key, tick, self.jitter)
    }

    /// Returns the job of a tick.
    ///
    /// # Errors
    /// If another program wrote values that no job may have.
    pub(crate) fn job_at_once(
        &self,
        row: &RecurringTaskRow,
        tick: NaiveDateTime,
    ) -> Result<NewRow> {
        let mut policy = self.policy.clone();
        policy.tick = Some(Tick {
            task: row.key.clone(),
            at: tick.and_utc(),
        });
        // The tick's time counts, not that of its enqueue.
        let priority = match policy.ahead_by.take() {
            Some(ahead_by) => rank(tick, ahead_by),
            None => row.priority,
        };
        NewJob::of_class(&row.class_name, unlisted(&row.arguments))
            .queue(&row.queue_name)
            .priority(priority)
            // The size was checked when the task was scheduled.
            .max_arguments(usize::MAX)
            .policy(policy)
            .limited(self.concurrency.clone())
            .into_row()
    }
}

/// Returns when the job of a tick is due, with a jitter.
pub(crate) fn starts_at(
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
