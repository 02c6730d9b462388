//! The time ranges in which the history is read.

use crate::db::model::history::cell::Resolution;
use crate::db::query::history::Seconds;
use std::time::Duration;

/// A time range up to now, in buckets of equal length.
///
/// Buckets begin at whole multiples of their length, in UTC. The last one has not ended yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeRange {
    /// 60 buckets of a minute.
    Hour,
    /// 144 buckets of ten minutes.
    Day,
    /// 168 buckets of an hour.
    Week,
    /// 120 buckets of six hours: 30 days.
    Month,
    /// 365 buckets of a day.
    Year,
}

impl TimeRange {
    /// Returns the length of a bucket.
    pub fn bucket(self) -> Duration {
        Duration::from_secs(self.step().unsigned_abs())
    }

    /// Returns how many buckets there are.
    pub fn buckets(self) -> usize {
        match self {
            TimeRange::Hour => 60,
            TimeRange::Day => 144,
            TimeRange::Week => 168,
            TimeRange::Month => 120,
            TimeRange::Year => 365,
        }
    }

    /// Returns the length of a bucket in seconds.
    pub(crate) fn step(self) -> i64 {
        match self {
            TimeRange::Hour => 60,
            TimeRange::Day => 600,
            TimeRange::Week => 3_600,
            TimeRange::Month => 6 * 3_600,
            TimeRange::Year => 24 * 3_600,
        }
    }

    /// Returns the resolution at which it is read.
    pub(crate) fn resolution(self) -> Resolution {
        match self {
            TimeRange::Hour => Resolution::Minute,
            TimeRange::Day => Resolution::TenMinutes,
            TimeRange::Week | TimeRange::Month | TimeRange::Year => Resolution::Hour,
        }
    }

    /// Returns the time from the start of the first bucket to the end of the last.
    pub(crate) fn span(self, now: i64) -> Seconds {
        let step = self.step();
        let to = (now.div_euclid(step) + 1) * step;
        Seconds {
            from: to - step * self.buckets() as i64,
            to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bucket_has_the_present() {
        for range in [
            TimeRange::Hour,
            TimeRange::Day,
            TimeRange::Week,
            TimeRange::Month,
            TimeRange::Year,
        ] {
            for now in [0, 59, 60, 86_399, 1_795_514_400, 1_795_514_399] {
                let span = range.span(now);
                assert!(span.to > now && span.to - range.step() <= now);
                assert_eq!(span.from % range.step(), 0);
            }
        }
    }
}
