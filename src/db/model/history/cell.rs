//! The record of one series in one bucket of time.

use crate::db::model::history::tally::{BUCKETS, Histogram, Tally};
use serde::Serialize;
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
    serializer.serialize_u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
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
pub(crate) struct Cell {
    pub(crate) tally: Tally,
    /// Processes that were pruned. Only the series of everything has them.
    pub(crate) died: u64,
    /// Only of the series of a queue.
    pub(crate) queue: Option<QueueGauge>,
    /// Only of the series of everything.
    pub(crate) fleet: Option<FleetGauge>,
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

/// A sample of the queues and workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeSample {
    /// The queues with ready jobs, by name.
    pub(crate) queues: Vec<(String, QueueGauge)>,
    pub(crate) fleet: FleetGauge,
}

// --- The bytes in which cells are stored ---

/// The version that this program writes.
pub(crate) const VERSION: u8 = 1;

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A newer program has written them.
    Newer,
    /// They are damaged.
    Damaged,
}

/// The cells of one row, by the number of their bucket.
pub(crate) type Cells = BTreeMap<u16, Cell>;

/// Writes the cells of a row.
pub(crate) fn pack(cells: &Cells) -> Vec<u8> {
    let mut writer = ByteWriter::new();
    let mut next = 0_u64;
    for (bucket, cell) in cells {
        let bucket = u64::from(*bucket);
        writer.number(bucket.saturating_sub(next));
        writer.cell(cell);
        next = bucket + 1;
    }
    writer.bytes
}

/// Reads the cells of a row.
///
/// # Errors
/// If the bytes are damaged, or a newer program has written them.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Cells, Unreadable> {
    let mut reader = ByteReader::new(bytes)?;
    let (mut cells, mut next) = (Cells::new(), 0_u64);
    while !reader.is_at_end() {
        let bucket = next.saturating_add(reader.number()?);
        let place = u16::try_from(bucket).map_err(|_| Unreadable::Damaged)?;
        cells.insert(place, reader.cell()?);
        next = bucket + 1;
    }
    Ok(cells)
}

/// Writes one cell.
pub(crate) fn pack_one(cell: &Cell) -> Vec<u8> {
    let mut writer = ByteWriter::new();
    writer.cell(cell);
    writer.bytes
}

/// Reads one cell.
///
/// # Errors
/// As for [`unpack`].
pub(crate) fn unpack_one(bytes: &[u8]) -> Result<Cell, Unreadable> {
    let mut reader = ByteReader::new(bytes)?;
    let cell = reader.cell()?;
    if !reader.is_at_end() {
        return Err(Unreadable::Damaged);
    }
    Ok(cell)
}

/// The parts that a cell may have besides its counts, as bits. The commonest are first, so that
/// mostly one byte is enough for all.
const FINISHED: u64 = 1;
const WAIT: u64 = 1 << 1;
const RUN: u64 = 1 << 2;
/// The bits of the other counts, in the order of `Tally::counts`.
const OTHER_COUNTS: [u64; 5] = [1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7];
const QUEUE: u64 = 1 << 8;
const FLEET: u64 = 1 << 9;
const DIED: u64 = 1 << 10;
const KNOWN: u64 = (1 << 11) - 1;

/// Returns the bit of each count of a tally.
fn count_bits() -> impl Iterator<Item = u64> {
    std::iter::once(FINISHED).chain(OTHER_COUNTS)
}

/// Bytes that are being written.
#[derive(Debug)]
pub(crate) struct ByteWriter {
    pub(crate) bytes: Vec<u8>,
}

impl ByteWriter {
    pub(crate) fn new() -> Self {
        ByteWriter {
            bytes: vec![VERSION],
        }
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn cell(&mut self, cell: &Cell) {
        let tally = &cell.tally;
        let counts = || tally.counts().into_iter().zip(count_bits());
        let has = |is_there: bool, bit: u64| if is_there { bit } else { 0 };
        let parts = counts().fold(0, |all, (count, bit)| all | has(count > 0, bit))
            | has(!tally.wait.is_empty(), WAIT)
            | has(!tally.run.is_empty(), RUN)
            | has(cell.queue.is_some(), QUEUE)
            | has(cell.fleet.is_some(), FLEET)
            | has(cell.died > 0, DIED);
        self.number(parts);
        for (count, _) in counts().filter(|(count, _)| *count > 0) {
            self.number(count);
        }
        for histogram in [&tally.wait, &tally.run] {
            self.histogram(histogram);
        }
        if let Some(gauge) = cell.queue {
            self.number(u64::from(gauge.ready));
            self.number(millis(gauge.oldest_ready));
        }
        if let Some(gauge) = cell.fleet {
            for number in [gauge.samples, gauge.workers, gauge.threads, gauge.busy] {
                self.number(number);
            }
        }
        if cell.died > 0 {
            self.number(cell.died);
        }
    }

    fn histogram(&mut self, histogram: &Histogram) {
        let is_filled = |count: &u64| *count > 0;
        let first = histogram.counts.iter().position(is_filled);
        let last = histogram.counts.iter().rposition(is_filled);
        let (Some(first), Some(last)) = (first, last) else {
            return;
        };
        self.bytes.extend([first as u8, last as u8]);
        for count in &histogram.counts[first..=last] {
            self.number(*count);
        }
        self.number(histogram.micros);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes that are being read.
#[derive(Debug)]
pub(crate) struct ByteReader<'b> {
    rest: &'b [u8],
}

impl<'b> ByteReader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(ByteReader { rest }),
            Some((version, _)) if *version > VERSION => Err(Unreadable::Newer),
            _ => Err(Unreadable::Damaged),
        }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (byte, rest) = self.rest.split_first().ok_or(Unreadable::Damaged)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unreadable::Damaged)
    }

    pub(crate) fn text(&mut self) -> Result<&'b str, Unreadable> {
        let length = usize::try_from(self.number()?).map_err(|_| Unreadable::Damaged)?;
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Unreadable::Damaged)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| Unreadable::Damaged)
    }

    pub(crate) fn cell(&mut self) -> Result<Cell, Unreadable> {
        let parts = self.number()?;
        if parts & !KNOWN != 0 {
            return Err(Unreadable::Damaged);
        }
        let has = |bit: u64| parts & bit != 0;
        let mut cell = Cell::default();
        for (count, bit) in cell.tally.counts_mut().into_iter().zip(count_bits()) {
            if has(bit) {
                *count = self.number()?;
            }
        }
        if has(WAIT) {
            cell.tally.wait = self.histogram()?;
        }
        if has(RUN) {
            cell.tally.run = self.histogram()?;
        }
        if has(QUEUE) {
            cell.queue = Some(QueueGauge {
                ready: u32::try_from(self.number()?).unwrap_or(u32::MAX),
                oldest_ready: Duration::from_millis(self.number()?),
            });
        }
        if has(FLEET) {
            cell.fleet = Some(FleetGauge {
                samples: self.number()?,
                workers: self.number()?,
                threads: self.number()?,
                busy: self.number()?,
            });
        }
        if has(DIED) {
            cell.died = self.number()?;
        }
        Ok(cell)
    }

    fn histogram(&mut self) -> Result<Histogram, Unreadable> {
        let (first, last) = (usize::from(self.byte()?), usize::from(self.byte()?));
        if first > last || last >= BUCKETS {
            return Err(Unreadable::Damaged);
        }
        let mut histogram = Histogram::default();
        for count in &mut histogram.counts[first..=last] {
            *count = self.number()?;
        }
        histogram.micros = self.number()?;
        Ok(histogram)
    }
}

// --- The resolutions at which the history is kept ---

/// One of the lengths of the buckets that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resolution {
    Minute,
    TenMinutes,
    Hour,
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

impl Resolution {
    pub(crate) const ALL: [Resolution; 3] =
        [Resolution::Minute, Resolution::TenMinutes, Resolution::Hour];

    /// Returns the length of a bucket in seconds, which is also stored as the resolution of a row.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Resolution::Minute => 60,
            Resolution::TenMinutes => 600,
            Resolution::Hour => HOUR,
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
        }
    }

    /// Returns for how many seconds the buckets are kept: 24 hours, 30 days, or 13 months of 31 days
    /// at most, which is a year and the month to compare with.
    pub(crate) fn kept(self) -> i64 {
        match self {
            Resolution::Minute => DAY,
            Resolution::TenMinutes => 30 * DAY,
            Resolution::Hour => 397 * DAY,
        }
    }

    /// Returns the row that has the bucket of this time: its start in seconds since 1970, and the
    /// number of the bucket in it.
    pub(crate) fn row_and_bucket(self, seconds: i64) -> (i64, u16) {
        let start = seconds.div_euclid(self.span()) * self.span();
        let bucket = (seconds - start) / self.seconds();
        (start, u16::try_from(bucket).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::history::tally::Tally;

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
