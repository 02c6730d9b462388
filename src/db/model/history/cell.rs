//! The record of one series in one bucket of time.

use crate::db::model::history::tally::{Histogram, Tally};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The ready jobs of a queue, as sampled once a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct QueueGauge {
    /// The number of ready jobs; at most 10,000 are counted. Of several samples, the largest.
    pub ready: u32,
    /// The time for which the oldest of them had been ready, in JSON as milliseconds. Of several samples, the longest.
    /// Of more than 10,000 ready jobs, only those that are claimed first are read.
    #[serde(rename = "oldest_ready_ms", serialize_with = "as_millis")]
    pub oldest_ready: Duration,
}

fn as_millis<S: serde::Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*age))
}

impl QueueGauge {
    /// The most ready jobs that are counted.
    pub(crate) const MOST: u32 = 10_000;

    pub(crate) fn merge(&mut self, other: QueueGauge) {
        self.ready = self.ready.max(other.ready);
        self.oldest_ready = self.oldest_ready.max(other.oldest_ready);
    }
}

/// The workers of Windlass, as sampled once a minute: sums over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetGauge {
    pub(crate) samples: u64,
    pub(crate) workers: u64,
    pub(crate) threads: u64,
    pub(crate) busy: u64,
}

impl FleetGauge {
    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.samples.max(1) as f64
    }

    /// Returns how many samples were taken.
    #[doc(hidden)]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns how many workers were registered, on average over the samples.
    pub fn workers(&self) -> f64 {
        self.mean(self.workers)
    }

    /// Returns how many threads they had together, on average over the samples.
    pub fn threads(&self) -> f64 {
        self.mean(self.threads)
    }

    /// Returns how many jobs they held, on average over the samples. It may exceed the threads,
    /// because workers claim ahead.
    pub fn busy(&self) -> f64 {
        self.mean(self.busy)
    }

    pub(crate) fn merge(&mut self, other: FleetGauge) {
        let add = u64::saturating_add;
        self.samples = add(self.samples, other.samples);
        self.workers = add(self.workers, other.workers);
        self.threads = add(self.threads, other.threads);
        self.busy = add(self.busy, other.busy);
    }
}

impl Serialize for FleetGauge {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("FleetGauge", 3)?;
        object.serialize_field("workers", &self.workers())?;
        object.serialize_field("threads", &self.threads())?;
        object.serialize_field("busy", &self.busy())?;
        object.end()
    }
}

/// The stored values of one series in one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    pub tally: Tally,
    /// Processes that were pruned. Only the series of everything has them.
    pub(crate) died: u64,
    /// Only of the series of a queue.
    pub queue: Option<QueueGauge>,
    /// Only of the series of everything.
    pub fleet: Option<FleetGauge>,
}

impl Cell {
    pub(crate) fn of(tally: Tally) -> Self {
        Cell {
            tally,
            ..Cell::default()
        }
    }

    pub(crate) fn merge(&mut self, other: &Cell) {
        self.tally.merge(&other.tally);
        self.died = self.died.saturating_add(other.died);
        if let Some(gauge) = other.queue {
            self.queue.get_or_insert_default().merge(gauge);
        }
        if let Some(gauge) = other.fleet {
            self.fleet.get_or_insert_default().merge(gauge);
        }
    }
}

/// A sample of the queues, the workers and the gates.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeSample {
    /// The queues with ready jobs, by name.
    pub(crate) queues: Vec<(String, QueueGauge)>,
    pub(crate) fleet: FleetGauge,
    /// The gates for which jobs wait, such as `rate/api`: for how long the first jobs have waited.
    pub(crate) gates: BTreeMap<String, Duration>,
}

// --- The bytes in which cells are stored: a version, then the format of `postcard` ---

/// The version that this program writes.
const VERSION: u8 = 1;

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A newer program has written them.
    Newer,
    /// They are damaged.
    Damaged,
}

/// Writes a value as bytes.
pub(crate) fn write<T: Serialize>(value: &T) -> Vec<u8> {
    let written = postcard::to_extend(value, vec![VERSION]);
    written.unwrap_or_else(|error| unreachable!("a vector takes all bytes: {error}"))
}

/// Reads the bytes of [`write`](self::write).
///
/// # Errors
/// If the bytes are damaged, or a newer program has written them.
pub(crate) fn read<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, Unreadable> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            _ => Err(Unreadable::Damaged),
        },
        Some((version, _)) if *version > VERSION => Err(Unreadable::Newer),
        _ => Err(Unreadable::Damaged),
    }
}

/// A cell as it is stored: the counts of its tally up to the last that is not zero, its wait, its run, and what few cells
/// have.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredCell(
    Vec<u64>,
    StoredHistogram,
    StoredHistogram,
    Option<StoredRest>,
);

/// The processes that died, the ready jobs with the age of the oldest in milliseconds, and the sums of the workers.
type StoredRest = (u64, Option<(u32, u64)>, Option<[u64; 4]>);

/// The first bucket that is not empty, the counts from there to the last such, and the sum in microseconds.
#[derive(Debug, Serialize, Deserialize)]
struct StoredHistogram(u8, Vec<u64>, u64);

impl From<&Cell> for StoredCell {
    fn from(cell: &Cell) -> Self {
        let counts = cell.tally.counts();
        let end = counts.iter().rposition(|count| *count > 0);
        let queue = cell.queue;
        let queue = queue.map(|gauge| (gauge.ready, millis(gauge.oldest_ready)));
        let fleet = cell.fleet;
        let fleet = fleet.map(|sums| [sums.samples, sums.workers, sums.threads, sums.busy]);
        let rest = (cell.died, queue, fleet);
        StoredCell(
            counts[..end.map_or(0, |last| last + 1)].to_vec(),
            (&cell.tally.wait).into(),
            (&cell.tally.run).into(),
            Some(rest).filter(|rest| *rest != StoredRest::default()),
        )
    }
}

impl TryFrom<StoredCell> for Cell {
    type Error = Unreadable;

    fn try_from(stored: StoredCell) -> Result<Self, Unreadable> {
        let StoredCell(counts, wait, run, rest) = stored;
        let (died, queue, fleet) = rest.unwrap_or_default();
        let mut tally = Tally {
            wait: wait.try_into()?,
            run: run.try_into()?,
            ..Tally::default()
        };
        let places = tally.counts_mut();
        if counts.len() > places.len() {
            return Err(Unreadable::Damaged);
        }
        for (place, count) in places.into_iter().zip(counts) {
            *place = count;
        }
        Ok(Cell {
            tally,
            died,
            queue: queue.map(|(ready, oldest)| QueueGauge {
                ready,
                oldest_ready: Duration::from_millis(oldest),
            }),
            fleet: fleet.map(|[samples, workers, threads, busy]| FleetGauge {
                samples,
                workers,
                threads,
                busy,
            }),
        })
    }
}

impl From<&Histogram> for StoredHistogram {
    fn from(histogram: &Histogram) -> Self {
        let is_filled = |count: &u64| *count > 0;
        let first = histogram.counts.iter().position(is_filled).unwrap_or(0);
        let last = histogram.counts.iter().rposition(is_filled);
        let counts = &histogram.counts[first..last.map_or(first, |last| last + 1)];
        StoredHistogram(first as u8, counts.to_vec(), histogram.micros)
    }
}

impl TryFrom<StoredHistogram> for Histogram {
    type Error = Unreadable;

    fn try_from(stored: StoredHistogram) -> Result<Self, Unreadable> {
        let StoredHistogram(first, counts, micros) = stored;
        let mut histogram = Histogram {
            micros,
            ..Histogram::default()
        };
        let first = usize::from(first);
        let filled = histogram.counts.get_mut(first..first + counts.len());
        filled.ok_or(Unreadable::Damaged)?.copy_from_slice(&counts);
        Ok(histogram)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The cells of one row, by the number of their bucket.
pub(crate) type Cells = BTreeMap<u16, Cell>;

/// Writes the cells of a row.
pub(crate) fn pack(cells: &Cells) -> Vec<u8> {
    let cells = cells.iter().map(|(bucket, cell)| (*bucket, cell.into()));
    write(&cells.collect::<Vec<(u16, StoredCell)>>())
}

/// Reads the cells of a row.
///
/// # Errors
/// If the bytes are damaged, or a newer program has written them.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Cells, Unreadable> {
    let cells: Vec<(u16, StoredCell)> = read(bytes)?;
    let cells = cells.into_iter();
    cells
        .map(|(bucket, cell)| Ok((bucket, cell.try_into()?)))
        .collect()
}

// --- The resolutions at which the history is kept ---

/// One of the lengths of the buckets that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    Minute,
    TenMinutes,
    Hour,
    /// The only bucket that has no start: the total of a series, without samples.
    AllTime,
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

impl Resolution {
    /// The resolutions with a bucket for each time.
    pub(crate) const ALL: [Resolution; 3] =
        [Resolution::Minute, Resolution::TenMinutes, Resolution::Hour];

    /// Returns the length of a bucket in seconds, which is also stored as the resolution of a row; 0 for all time.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Resolution::Minute => 60,
            Resolution::TenMinutes => 600,
            Resolution::Hour => HOUR,
            Resolution::AllTime => 0,
        }
    }

    /// Returns how many seconds of buckets are packed into one row.
    ///
    /// A fold writes the newest row of a series anew at each resolution, so a row is short: 30
    /// minutes, 24 times ten minutes, or 12 hours, which is about 1 KiB when it is full. Several fit
    /// into a page of either database, Postgres keeps them out of its other table for large values,
    /// and three such rows, half full on average, are all that is written for a series and minute. A
    /// row of a whole day of minutes would be 50 KiB, and would be written 1,440 times.
    pub(crate) fn span(self) -> i64 {
        match self {
            Resolution::Minute => HOUR / 2,
            Resolution::TenMinutes => 4 * HOUR,
            Resolution::Hour => 12 * HOUR,
            Resolution::AllTime => 0,
        }
    }

    /// Returns for how many seconds the buckets are kept: 24 hours, 30 days, or 13 months of 31 days
    /// at most, which is a year and the month to compare with.
    pub(crate) fn kept(self) -> i64 {
        match self {
            Resolution::Minute => DAY,
            Resolution::TenMinutes => 30 * DAY,
            Resolution::Hour => 397 * DAY,
            Resolution::AllTime => i64::MAX,
        }
    }

    /// Returns the row that has the bucket of this time: its start in seconds since 1970, and the
    /// number of the bucket in it.
    pub(crate) fn row_and_bucket(self, seconds: i64) -> (i64, u16) {
        if self == Resolution::AllTime {
            return (0, 0);
        }
        let start = seconds.div_euclid(self.span()) * self.span();
        let bucket = (seconds - start) / self.seconds();
        (start, u16::try_from(bucket).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::history::tally::{BUCKETS, Tally};

    fn pack_one(cell: &Cell) -> Vec<u8> {
        write(&StoredCell::from(cell))
    }

    fn unpack_one(bytes: &[u8]) -> Result<Cell, Unreadable> {
        read::<StoredCell>(bytes)?.try_into()
    }

    fn some_number() -> u64 {
        fastrand::u64(..) >> fastrand::u32(0..64)
    }

    fn some_histogram() -> Histogram {
        let mut histogram = Histogram::default();
        for _ in 0..fastrand::usize(0..5) {
            histogram.counts[fastrand::usize(..BUCKETS)] = some_number();
        }
        if !histogram.is_empty() {
            histogram.micros = some_number();
        }
        histogram
    }

    fn some_cell() -> Cell {
        let mut tally = Tally::default();
        for count in tally.counts_mut() {
            *count = if fastrand::bool() { some_number() } else { 0 };
        }
        tally.wait = some_histogram();
        tally.run = some_histogram();
        Cell {
            tally,
            died: if fastrand::bool() { some_number() } else { 0 },
            queue: fastrand::bool().then(|| QueueGauge {
                ready: fastrand::u32(..),
                oldest_ready: Duration::from_millis(some_number()),
            }),
            fleet: fastrand::bool().then(|| FleetGauge {
                samples: some_number(),
                workers: some_number(),
                threads: some_number(),
                busy: some_number(),
            }),
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        fastrand::seed(3);
        for _ in 0..2_000 {
            let cells: Cells = (0..fastrand::usize(0..4))
                .map(|_| (fastrand::u16(..), some_cell()))
                .collect();
            assert_eq!(unpack(&pack(&cells)), Ok(cells));
            let cell = some_cell();
            assert_eq!(unpack_one(&pack_one(&cell)), Ok(cell));
        }
        assert_eq!(unpack(&pack(&Cells::new())), Ok(Cells::new()));
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        fastrand::seed(4);
        for _ in 0..20_000 {
            let mut bytes = pack(&Cells::from([(3, some_cell()), (9, some_cell())]));
            bytes.truncate(fastrand::usize(0..=bytes.len()));
            for _ in 0..fastrand::usize(0..4) {
                if !bytes.is_empty() {
                    let place = fastrand::usize(..bytes.len());
                    bytes[place] = fastrand::u8(..);
                }
            }
            let _ = (unpack(&bytes), unpack_one(&bytes));
        }
        assert_eq!(unpack(&[]), Err(Unreadable::Damaged));
        assert_eq!(unpack(&[0]), Err(Unreadable::Damaged));
        assert_eq!(unpack(&[VERSION + 1, 0, 0]), Err(Unreadable::Newer));
    }

    #[test]
    fn a_usual_bucket_is_small() {
        let mut tally = Tally {
            finished: 60,
            ..Tally::default()
        };
        for ms in [1, 3, 6, 15, 30, 60].repeat(10) {
            tally.wait.record(Duration::from_millis(ms));
            tally.run.record(Duration::from_millis(ms * 3));
        }
        assert!(pack_one(&Cell::of(tally)).len() < 30);
    }
}
