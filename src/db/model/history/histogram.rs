//! A histogram of durations with fixed buckets.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// The upper limits of the buckets, in milliseconds.
const LIMITS: [u64; 25] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// How many buckets there are: one for each limit, and one for what exceeds the last.
pub(crate) const BUCKETS: usize = LIMITS.len() + 1;

/// How often durations of certain lengths occurred: a histogram with 26 fixed buckets.
///
/// The upper limits of the buckets are 1 ms, 2 ms, 5 ms, 10 ms and so on, in steps of 1, 2 and 5,
/// up to 100,000 s (almost 28 hours). A limit belongs to the bucket below it. The last bucket holds
/// everything longer. The sum is exact to a microsecond.
///
/// Two histograms can be added with [`merge`](Self::merge): the result is that of recording all
/// durations of both.
///
/// ```
/// use std::time::Duration;
/// use windlass::history::Histogram;
///
/// let mut waits = Histogram::default();
/// for ms in [3, 4, 30, 800] {
///     waits.record(Duration::from_millis(ms));
/// }
/// assert_eq!(waits.count(), 4);
/// assert_eq!(waits.sum(), Duration::from_millis(837));
/// let p50 = waits.quantile(0.5).unwrap();
/// assert!(p50 > Duration::from_millis(2) && p50 <= Duration::from_millis(5));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    pub(crate) counts: [u64; BUCKETS],
    pub(crate) micros: u64,
}

impl Histogram {
    /// Returns the upper limits of the buckets, ascending. The last bucket has none.
    pub fn limits() -> impl ExactSizeIterator<Item = Duration> {
        LIMITS.iter().map(|limit| Duration::from_millis(*limit))
    }

    /// Returns how many durations are in each bucket: one number for each of the
    /// [`limits`](Self::limits), and a last one for what is longer.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Records a duration.
    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = LIMITS.partition_point(|limit| limit * 1_000 < micros);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.micros = self.micros.saturating_add(micros);
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.micros = self.micros.saturating_add(other.micros);
    }

    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Returns whether no duration was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns the mean, or `None` if no duration was recorded.
    pub fn mean(&self) -> Option<Duration> {
        let micros = self.micros.checked_div(self.count())?;
        Some(Duration::from_micros(micros))
    }

    /// Returns the duration that a share `p` of all durations does not exceed, or `None` if none was
    /// recorded: `0.5` is the median, `0.99` the 99th percentile. `p` is limited to 0 to 1.
    ///
    /// It is interpolated within its bucket. The true value is in the same bucket, so the two differ
    /// by less than the width of that: by a factor of 2.5 at most, and of 2 in two of three buckets.
    /// Below 1 ms it is between 0 and 1 ms. Above 100,000 s, the result is 100,000 s.
    pub fn quantile(&self, p: f64) -> Option<Duration> {
        let rank = p.clamp(0.0, 1.0) * self.count() as f64;
        let mut before = 0.0;
        let mut found = None;
        for (bucket, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let count = *count as f64;
            found = Some((bucket, ((rank - before) / count).clamp(0.0, 1.0)));
            before += count;
            if before >= rank {
                break;
            }
        }
        let (bucket, share) = found?;
        let low = bucket.checked_sub(1).map_or(0, |below| LIMITS[below]);
        let high = LIMITS.get(bucket).copied().unwrap_or(low);
        let millis = low as f64 + (high - low) as f64 * share;
        Some(Duration::from_secs_f64(millis / 1_000.0))
    }
}

impl Serialize for Histogram {
    /// `{"count":4,"sum_seconds":0.837,"counts":[0,0,2,..]}`
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("Histogram", 3)?;
        object.serialize_field("count", &self.count())?;
        object.serialize_field("sum_seconds", &self.sum().as_secs_f64())?;
        object.serialize_field("counts", &self.counts)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for one in millis {
            histogram.record(Duration::from_millis(*one));
        }
        histogram
    }

    #[test]
    fn a_limit_belongs_to_the_bucket_below_it() {
        let histogram = of(&[0, 1, 2, 3, 100_000_000, 100_000_001]);
        assert_eq!(histogram.counts[..3], [2, 1, 1]);
        assert_eq!(histogram.counts[24..], [1, 1]);
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.counts().len(), Histogram::limits().len() + 1);
    }

    #[test]
    fn a_merge_is_the_record_of_both() {
        let (mut one, two) = (of(&[1, 7, 900]), of(&[8, 1_000_000_000]));
        one.merge(&two);
        assert_eq!(one, of(&[1, 7, 900, 8, 1_000_000_000]));
        let mut full = Histogram {
            counts: [u64::MAX; BUCKETS],
            micros: u64::MAX,
        };
        full.merge(&two);
        full.record(Duration::MAX);
        assert_eq!((full.count(), full.micros), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_quantile_is_in_the_bucket_of_the_true_value() {
        fastrand::seed(7);
        for _ in 0..200 {
            let count = fastrand::usize(1..300);
            let mut all: Vec<u64> = (0..count)
                .map(|_| 10_f64.powf(fastrand::f64() * 9.0) as u64)
                .collect();
            let histogram = of(&all);
            all.sort_unstable();
            for p in [0.0, 0.25, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((p * count as f64).ceil() as usize).max(1);
                let mut only = Histogram::default();
                only.record(Duration::from_millis(all[rank - 1]));
                let bucket = only.counts.iter().position(|count| *count == 1).unwrap();
                let low = bucket.checked_sub(1).map_or(0, |below| LIMITS[below]);
                let high = LIMITS.get(bucket).copied().unwrap_or(low);
                let found = histogram.quantile(p).unwrap().as_secs_f64() * 1_000.0;
                assert!(
                    found >= low as f64 - 1e-6 && found <= high as f64 + 1e-6,
                    "{p} of {count}: {found} is not within {low} to {high}"
                );
            }
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(Histogram::default().mean(), None);
        assert_eq!(of(&[10, 20]).mean(), Some(Duration::from_millis(15)));
    }
}
