//! The bytes in which cells are stored.
//!
//! A row starts with the version of the format. Numbers are written seven bits to a byte, the lowest
//! first; the eighth bit says that more follow. A count that is zero is not written at all, and of a
//! histogram only the buckets from the first to the last that is not empty: a bucket of time takes
//! 20 to 70 bytes.

use crate::db::model::history::cell::{Cell, FleetGauge, QueueGauge};
use crate::db::model::history::histogram::{BUCKETS, Histogram};
use std::collections::BTreeMap;
use std::time::Duration;

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
