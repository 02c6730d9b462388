//! Limits in time as they are stored.

use crate::db::model::new_row::NewExpiry;
use crate::job::policy::millis;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By when a job has to have started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expiry {
    /// So long after it is due.
    In(#[serde(with = "millis")] Duration),
    At(DateTime<Utc>),
}

/// Until when a job may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RetryLimit {
    /// So long after it is due.
    For(#[serde(with = "millis")] Duration),
    Until(DateTime<Utc>),
}

impl Expiry {
    /// Returns it as the row of a job has it.
    pub(crate) fn to_store(self) -> NewExpiry {
        match self {
            Expiry::In(time) => NewExpiry::In(time),
            Expiry::At(time) => NewExpiry::At(time.naive_utc()),
        }
    }
}
