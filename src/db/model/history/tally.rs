//! Counts of ended runs and jobs by outcome, and histograms of their times.

use crate::db::model::outcome::{AttemptOutcome, Ending};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// The counts of runs and jobs that ended in a time span, by outcome. Each end is in exactly one of the counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Jobs that finished.
    pub finished: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Runs that failed, after which the job is retried.
    pub retried: u64,
    /// Jobs that ended without success and have not failed: discarded by their code or by an
    /// operator, expired, or without a slot of their concurrency key.
    pub discarded: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Runs that the death of their process ended, after which the job runs again.
    pub crashed: u64,
    /// The times for which ready jobs waited for their runs, by the database's clock. Only runs that a worker itself has
    /// ended are in it.
    pub wait: Histogram,
    /// The durations of the runs. Only runs that a worker itself has ended are in it.
    pub run: Histogram,
}

impl Tally {
    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        for (count, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *count = count.saturating_add(more);
        }
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }

    /// Returns the sum of all counts.
    pub fn ended(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::saturating_add)
    }

    /// Returns whether nothing ended.
    pub fn is_empty(&self) -> bool {
        self.ended() == 0 && self.wait.is_empty() && self.run.is_empty()
    }

    pub(crate) fn counts(&self) -> [u64; 6] {
        [
            self.finished,
            self.failed,
            self.retried,
            self.discarded,
            self.crashed,
            self.cancelled,
        ]
    }

    pub(crate) fn counts_mut(&mut self) -> [&mut u64; 6] {
        [
            &mut self.finished,
            &mut self.failed,
            &mut self.retried,
            &mut self.discarded,
            &mut self.crashed,
            &mut self.cancelled,
        ]
    }

    /// Counts an end.
    pub(crate) fn add(&mut self, end: CountedEnd) {
        let count = match end {
            CountedEnd::Finished => &mut self.finished,
            CountedEnd::Failed => &mut self.failed,
            CountedEnd::Retried => &mut self.retried,
            CountedEnd::Discarded => &mut self.discarded,
            CountedEnd::Cancelled => &mut self.cancelled,
            CountedEnd::Crashed => &mut self.crashed,
        };
        *count = count.saturating_add(1);
    }
}

/// An end that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedEnd {
    Finished,
    Failed,
    Retried,
    Discarded,
    Cancelled,
    Crashed,
}

impl CountedEnd {
    /// Returns how an ending counts. A run that is to be continued is no end.
    pub(crate) fn of(ending: &Ending) -> Option<Self> {
        match ending {
            Ending::Fail(_) => Some(CountedEnd::Failed),
            Ending::Retry(..) => Some(CountedEnd::Retried),
            Ending::Discard(_) | Ending::Expire(_) => Some(CountedEnd::Discarded),
            Ending::Cancel(_) => Some(CountedEnd::Cancelled),
            Ending::Snooze(_)
            | Ending::RateLimited(_)
            | Ending::Park(_)
            | Ending::Release(..)
            | Ending::GiveBack { .. } => None,
        }
    }

    /// Returns how a recorded attempt counts.
    pub(crate) fn of_attempt(outcome: AttemptOutcome) -> Option<Self> {
        Some(match outcome {
            AttemptOutcome::Failed => CountedEnd::Failed,
            AttemptOutcome::Retried => CountedEnd::Retried,
            AttemptOutcome::Discarded => CountedEnd::Discarded,
            AttemptOutcome::Cancelled => CountedEnd::Cancelled,
            AttemptOutcome::Crashed => CountedEnd::Crashed,
            AttemptOutcome::Interrupted | AttemptOutcome::Released => return None,
        })
    }
}

/// The wait of a run for its start, and its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunSpan {
    /// `None` if it is unknown since when the job was ready.
    pub(crate) waited: Option<Duration>,
    pub(crate) ran: Duration,
}

impl Tally {
    /// Counts the end of a run.
    pub(crate) fn add_run(&mut self, end: CountedEnd, run: RunSpan) {
        self.add(end);
        if let Some(waited) = run.waited {
            self.wait.record(waited);
        }
        self.run.record(run.ran);
    }
}

// --- A histogram of durations with fixed buckets ---

/// The limits of each power of ten, in thousandths of it. With more of them, a row of the history would no longer fit into
/// the page of its table.
const STEPS: [u64; 3] = [1_000, 2_000, 5_000];

/// The number of powers of ten: from 1 ms on.
const DECADES: usize = 8;

/// The upper limits of the buckets, in microseconds.
const LIMITS: [u64; STEPS.len() * DECADES + 1] = {
    let mut limits = [0; STEPS.len() * DECADES + 1];
    let (mut place, mut decade) = (0, 1);
    while place < limits.len() {
        limits[place] = STEPS[place % STEPS.len()] * decade;
        place += 1;
        if place % STEPS.len() == 0 {
            decade *= 10;
        }
    }
    limits
};

/// The number of buckets: one for each limit, and one for durations beyond the last.
pub(crate) const BUCKETS: usize = LIMITS.len() + 1;

/// A histogram of durations with 26 fixed buckets.
///
/// The upper limits of the buckets are 1 ms, 2 ms, 5 ms and so on, each at most 2.5 times the one before, up to
/// 100,000 s (almost 28 hours). A limit belongs to the bucket below it. The last bucket
/// holds everything longer. The sum is exact to a microsecond.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    pub(crate) counts: [u64; BUCKETS],
    pub(crate) micros: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: [0; BUCKETS],
            micros: 0,
        }
    }
}

impl Histogram {
    /// Returns the upper limits of the buckets, ascending. The last bucket has none.
    pub fn limits() -> impl ExactSizeIterator<Item = Duration> {
        LIMITS.iter().map(|limit| Duration::from_micros(*limit))
    }

    /// Returns how many durations are in each bucket: one number for each of the
    /// [`limits`](Self::limits), and a last one for what is longer.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Records a duration.
    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = LIMITS.partition_point(|limit| *limit < micros);
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
    /// It is interpolated within its bucket. The true value is in the same bucket, so it is at most
    /// 2.5 times as long. If all durations are in one bucket, the result is their mean, which is exact if they are
    /// all the same. Below 1 ms it is between 0 and 1 ms. Above 100,000 s, the result is 100,000 s.
    pub fn quantile(&self, p: f64) -> Option<Duration> {
        let mut filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        if let (Some((bucket, count)), None) = (filled.next(), filled.next())
            && *count < u64::MAX
        {
            let (low, high) = limits_of(bucket);
            let mean = (self.micros / count).clamp(low, high.max(low));
            return Some(Duration::from_micros(mean));
        }
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
        let (low, high) = limits_of(bucket);
        let micros = low as f64 + (high - low) as f64 * share;
        Some(Duration::from_secs_f64(micros / 1_000_000.0))
    }
}

/// Returns the lowest and the highest duration of a bucket, in microseconds; the last has only one.
fn limits_of(bucket: usize) -> (u64, u64) {
    let low = bucket.checked_sub(1).map_or(0, |below| LIMITS[below]);
    (low, LIMITS.get(bucket).copied().unwrap_or(low))
}

impl Serialize for Histogram {
    /// `{"count":4,"sum_seconds":0.837,"counts":[0,0,2,..]}`
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("Histogram", 3)?;
        object.serialize_field("count", &self.count())?;
        object.serialize_field("sum_seconds", &self.sum().as_secs_f64())?;
        object.serialize_field("counts", self.counts.as_slice())?;
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
        let histogram = of(&[0, 1, 5, 10, 100_000_000, 100_000_001]);
        let of_millis = |millis: u64| LIMITS.iter().position(|limit| *limit == millis * 1_000);
        let filled = histogram
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let filled: Vec<(usize, u64)> = filled.map(|(place, count)| (place, *count)).collect();
        let place = |millis| of_millis(millis).unwrap();
        assert_eq!(
            filled,
            [
                (0, 2),
                (place(5), 1),
                (place(10), 1),
                (place(100_000_000), 1),
                (BUCKETS - 1, 1)
            ]
        );
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
                let (low, high) = limits_of(bucket);
                let found = histogram.quantile(p).unwrap().as_secs_f64() * 1_000_000.0;
                assert!(
                    found >= low as f64 - 1.0 && found <= high as f64 + 1.0,
                    "{p} of {count}: {found} is not within {low} to {high}"
                );
            }
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(Histogram::default().mean(), None);
        assert_eq!(of(&[10, 20]).mean(), Some(Duration::from_millis(15)));
    }

    #[test]
    fn each_limit_is_at_most_two_and_a_half_times_the_one_before() {
        assert_eq!(
            (LIMITS[0], LIMITS[LIMITS.len() - 1]),
            (1_000, 100_000_000_000)
        );
        for pair in LIMITS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 2 <= pair[0] * 5, "{pair:?}");
        }
    }

    /// Whatever a job takes: its run times are not shown as twice as long.
    #[test]
    fn durations_that_are_all_the_same_are_exact() {
        for micros in [7, 999, 1_000, 1_003_217, 5_000_000, 86_400_000_000] {
            let mut histogram = Histogram::default();
            for _ in 0..40 {
                histogram.record(Duration::from_micros(micros));
            }
            for p in [0.5, 0.99] {
                assert_eq!(histogram.quantile(p), Some(Duration::from_micros(micros)));
            }
        }
        // On both sides of a limit, they are not far off.
        let mut two = Histogram::default();
        (0..50).for_each(|_| two.record(Duration::from_micros(999_000)));
        (0..50).for_each(|_| two.record(Duration::from_micros(1_001_000)));
        assert!(two.quantile(0.99).unwrap() <= Duration::from_millis(2_000));
    }
}
