//! Reads stored recurring tasks.

use crate::db::model::new_row::NewRow;
use crate::db::model::recurring::{Overlap, RecurringTaskRow};
use crate::error::{Error, Result};
use crate::job::arguments::unlisted;
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::policy::{Delivery, Policy, Tick};
use crate::recurring::missed::MissedTicks;
use crate::recurring::schedule::{Schedule, time_zone};
use chrono::NaiveDateTime;
use serde::{Deserialize, Serialize};

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
}

impl Options {
    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A task as stored in its row.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) schedule: Schedule,
    pub(crate) missed: MissedTicks,
    pub(crate) overlap: Overlap,
    policy: Policy,
    concurrency: Option<Concurrency>,
}

impl Stored {
    /// # Errors
    /// If another program wrote options that this version cannot read.
    pub(crate) fn read(row: &RecurringTaskRow) -> Result<Self> {
        let schedule: Schedule = row.schedule.parse()?;
        let options: Options = match row.options.as_str() {
            "" => Options::default(),
            text => serde_json::from_str(text).map_err(|error| Error::RecurringTask {
                key: row.key.clone(),
                reason: format!("has options that this version cannot read: {error}"),
            })?,
        };
        let mut policy = options.policy;
        policy.max_attempts = options.max_attempts;
        policy.max_crashes = options.max_crashes;
        policy.delivery = options.delivery;
        Ok(Stored {
            schedule: schedule.or_in(time_zone(&row.time_zone)?),
            missed: options.missed,
            overlap: options.overlap,
            policy,
            concurrency: options.concurrency,
        })
    }

    /// Returns the job of a tick.
    ///
    /// # Errors
    /// If another program wrote values that no job may have.
    pub(crate) fn job(&self, row: &RecurringTaskRow, tick: NaiveDateTime) -> Result<NewRow> {
        let mut policy = self.policy.clone();
        policy.tick = Some(Tick {
            task: row.key.clone(),
            at: tick.and_utc(),
        });
        NewJob::of_class(&row.class_name, unlisted(&row.arguments))
            .queue(&row.queue_name)
            .priority(row.priority)
            // The size was checked when the task was scheduled.
            .max_arguments(usize::MAX)
            .policy(policy)
            .limited(self.concurrency.clone())
            .into_row()
    }
}
