//! A quota as an enqueue passes it, and what is left of it.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The name of a quota, and its limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NewQuota {
    pub(crate) name: String,
    pub(crate) limits: QuotaLimits,
}

/// The limits of a quota, as they are stored beside its counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QuotaLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_minute: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_day: Option<i64>,
    /// Whether jobs that exceed the quota are discarded, instead of an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shed: bool,
}

impl QuotaLimits {
    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn of_column(text: Option<&str>) -> Self {
        let limits = text.and_then(|text| serde_json::from_str(text).ok());
        limits.unwrap_or_default()
    }
}

/// How many jobs a quota admitted, and how much of it was used before that.
#[derive(Debug, Clone, Copy, PartialEq, QueryableByName)]
pub(crate) struct QuotaUse {
    #[diesel(sql_type = BigInt)]
    pub(crate) admitted: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_minute: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_day: i64,
    /// In seconds.
    #[diesel(sql_type = Double)]
    pub(crate) to_minute: f64,
    #[diesel(sql_type = Double)]
    pub(crate) to_day: f64,
}

/// A limit that an enqueue exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuotaRefusal {
    pub(crate) class: String,
    pub(crate) quota: String,
    pub(crate) limit: u64,
    pub(crate) counts: &'static str,
    pub(crate) wanted: u64,
    pub(crate) retry_after: Option<Duration>,
}

impl QuotaRefusal {
    /// Returns the limit that refuses `wanted` jobs: of several, the one that refuses them longest.
    pub(crate) fn new(class: &str, quota: &NewQuota, wanted: i64, used: QuotaUse) -> Self {
        let QuotaLimits {
            waiting,
            per_minute,
            per_day,
            ..
        } = quota.limits;
        let kinds = [
            (per_day, used.a_day, "enqueues per day", Some(used.to_day)),
            (
                per_minute,
                used.a_minute,
                "enqueues per minute",
                Some(used.to_minute),
            ),
            (waiting, used.waiting, "waiting jobs", None),
        ];
        let exceeded = kinds
            .into_iter()
            .find_map(|(limit, used, counts, seconds)| {
                let limit = limit.filter(|limit| used.saturating_add(wanted) > *limit)?;
                Some((limit, counts, seconds))
            });
        let (limit, counts, seconds) = exceeded.unwrap_or((0, "jobs", None));
        let seconds = seconds.filter(|_| wanted <= limit);
        // Not a moment before the next window starts.
        let whole = |seconds: f64| Duration::from_secs(seconds.max(0.0).ceil() as u64 + 1);
        QuotaRefusal {
            class: class.to_owned(),
            quota: quota.name.clone(),
            limit: u64::try_from(limit).unwrap_or(0),
            counts,
            wanted: u64::try_from(wanted).unwrap_or(0),
            retry_after: seconds.map(whole),
        }
    }
}

/// `the quota `mail` allows 100 enqueues per minute`.
impl fmt::Display for QuotaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaRefusal {
            quota,
            limit,
            counts,
            ..
        } = self;
        write!(f, "the quota `{quota}` allows {limit} {counts}")
    }
}
