//! A quota as an enqueue passes it, and what is left of it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The name of a quota, and its limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    pub(crate) per_second: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_minute: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_day: Option<i64>,
    /// Whether jobs that exceed the quota are discarded, instead of an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shed: bool,
}

impl NewQuota {
    /// Returns the value of the column `quota` of a class.
    pub(crate) fn to_column(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    pub(crate) fn of_column(text: Option<&str>) -> Option<Self> {
        serde_json::from_str(text?).ok()
    }
}

impl QuotaLimits {
    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the limits that are set, in the order in which they are asked.
    pub(crate) fn set(&self) -> impl Iterator<Item = (Per, i64)> {
        let all = [
            (Per::Day, self.per_day),
            (Per::Minute, self.per_minute),
            (Per::Second, self.per_second),
            (Per::Waiting, self.waiting),
        ];
        let set = |(per, limit): (Per, Option<i64>)| Some((per, limit?));
        all.into_iter().filter_map(set)
    }

    pub(crate) fn of_column(text: Option<&str>) -> Self {
        let limits = text.and_then(|text| serde_json::from_str(text).ok());
        limits.unwrap_or_default()
    }
}

/// What a limit of a quota counts. In the order in which they are asked: of several that refuse
/// jobs, the one that refuses them longest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Per {
    Day,
    Minute,
    Second,
    Waiting,
}

impl Per {
    /// Returns the value of the column `per`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Per::Day => "day",
            Per::Minute => "minute",
            Per::Second => "second",
            Per::Waiting => "waiting",
        }
    }

    /// Returns the length of a window, if there are windows.
    pub(crate) fn window(self) -> Option<Duration> {
        match self {
            Per::Day => Some(Duration::from_secs(24 * 3600)),
            Per::Minute => Some(Duration::from_secs(60)),
            Per::Second => Some(Duration::from_secs(1)),
            Per::Waiting => None,
        }
    }

    pub(crate) fn counts(self) -> &'static str {
        match self {
            Per::Day => "enqueues per day",
            Per::Minute => "enqueues per minute",
            Per::Second => "enqueues per second",
            Per::Waiting => "waiting jobs",
        }
    }
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
    /// Returns why `wanted` jobs are refused. `left` is the time to the next window.
    pub(crate) fn new(
        class: &str,
        quota: &NewQuota,
        (per, limit): (Per, i64),
        wanted: i64,
        left: Option<Duration>,
    ) -> Self {
        // Not a moment before the next window starts.
        let after = |left: Duration| Duration::from_secs(left.as_secs() + 1);
        QuotaRefusal {
            class: class.to_owned(),
            quota: quota.name.clone(),
            limit: u64::try_from(limit).unwrap_or(0),
            counts: per.counts(),
            wanted: u64::try_from(wanted).unwrap_or(0),
            retry_after: left.filter(|_| wanted <= limit).map(after),
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
