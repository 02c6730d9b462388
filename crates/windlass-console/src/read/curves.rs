//! The buckets of all queues or gates at once, for the small curves of pages.

use std::collections::BTreeMap;
use std::time::Duration;
use windlass::history::{Histogram, TimeRange};
use windlass::internal::db::own;
use windlass::internal::db::query::history::{self, CellsByTime};
use windlass::internal::error::ErrorContext;
use windlass::internal::history::read::read_ids;
use windlass::{AsConn, Result};

/// The activity of a queue in each bucket of a time range, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueueCurve {
    /// The number of jobs and runs that ended, whatever their outcome.
    pub(crate) ended: Vec<u64>,
    /// For how many seconds the oldest ready job had been ready. `None` where no sample was taken.
    pub(crate) oldest_seconds: Vec<Option<f64>>,
}

/// The curves of all queues, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueueCurves {
    queues: BTreeMap<String, QueueCurve>,
    /// True if anything was recorded in this time.
    pub(crate) is_recorded: bool,
}

impl QueueCurves {
    /// Returns the curve of a queue. `None` if nothing was recorded of it.
    pub(crate) fn of(&self, queue: &str) -> Option<&QueueCurve> {
        self.queues.get(queue)
    }

    /// Returns the names of the queues of which something was recorded.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let active = self.queues.iter().filter(|(_, curve)| {
            let is_ended = curve.ended.iter().any(|ended| *ended > 0);
            is_ended || curve.oldest_seconds.iter().flatten().any(|age| *age > 0.0)
        });
        active.map(|(name, _)| name.as_str())
    }
}

/// Returns the curves of all queues in a time range.
///
/// # Errors
/// If the database does not answer or has no tables.
pub(crate) fn queue_curves<C: AsConn + ?Sized>(
    conn: &mut C,
    range: TimeRange,
) -> Result<QueueCurves> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let (span, step) = (range.span(ids.now), range.step());
    let is_wanted = |_: &str, class: &str| class.is_empty();
    let queues = history::buckets(&mut conn, &ids, range.resolution(), span, is_wanted);
    let mut queues = queues.during("read the history")?;
    let position = |start: i64| usize::try_from((start - span.from).div_euclid(step)).ok();
    let all = queues.remove(&Default::default());
    let sampled = samples(&all.unwrap_or_default(), range, position);
    let empty = QueueCurve {
        ended: vec![0; range.buckets()],
        oldest_seconds: sampled,
    };
    let is_recorded = queues.values().any(|cells| !cells.is_empty());
    let curves = queues.into_iter().map(|((queue, _), cells)| {
        let mut curve = empty.clone();
        add(&mut curve, &cells, position);
        (queue, curve)
    });
    Ok(QueueCurves {
        queues: curves.collect(),
        is_recorded,
    })
}

/// Returns zero for each bucket in which a sample was taken: a queue without ready jobs has none of
/// its own.
fn samples(
    all: &CellsByTime,
    range: TimeRange,
    position: impl Fn(i64) -> Option<usize>,
) -> Vec<Option<f64>> {
    let mut sampled = vec![None; range.buckets()];
    for (start, cell) in all {
        let bucket = position(*start).and_then(|position| sampled.get_mut(position));
        if let (Some(bucket), Some(_)) = (bucket, cell.fleet) {
            *bucket = Some(0.0);
        }
    }
    sampled
}

fn add(curve: &mut QueueCurve, cells: &CellsByTime, position: impl Fn(i64) -> Option<usize>) {
    for (start, cell) in cells {
        let Some(position) = position(*start).filter(|position| *position < curve.ended.len())
        else {
            continue;
        };
        curve.ended[position] += cell.tally.ended();
        if let Some(gauge) = cell.queue {
            let oldest = gauge.oldest_ready.as_secs_f64();
            let known = curve.oldest_seconds[position].unwrap_or(0.0);
            curve.oldest_seconds[position] = Some(known.max(oldest));
        }
    }
}

// --- The saturation of gates: concurrency keys, rates and shared queues ---

/// The saturation of a gate in a time range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GateCurve {
    /// `limit`, `rate` or `share`; empty for all the gates that have no curve of their own.
    pub(crate) kind: String,
    pub(crate) key: String,
    /// The part of the samples in each bucket that found waiting jobs, the oldest first. `None` where no sample was taken.
    pub(crate) parts: Vec<Option<f64>>,
    /// The part of all samples.
    pub(crate) part: f64,
    /// The mean time for which the first job had waited at those samples.
    pub(crate) waited: Duration,
}

/// Returns the gates for which jobs waited in a time range, the most saturated first. Returns `None` if no sample was taken.
///
/// # Errors
/// If the database does not answer or has no tables.
pub(crate) fn gate_curves<C: AsConn + ?Sized>(
    conn: &mut C,
    range: TimeRange,
) -> Result<Option<Vec<GateCurve>>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let span = range.span(ids.now);
    let is_gate = |queue: &str, _: &str| queue.is_empty();
    let gates = history::buckets(&mut conn, &ids, range.resolution(), span, is_gate);
    let mut gates = gates.during("read the history")?;
    let all = gates.remove(&Default::default()).unwrap_or_default();
    let taken = all.iter();
    let taken = taken.filter_map(|(start, cell)| Some((start - span.from, cell.fleet?.samples())));
    let taken = by_bucket(range, taken);
    let sum: u64 = taken.iter().sum();
    if sum == 0 {
        return Ok(None);
    }
    let curves = gates.into_iter().filter_map(|((_, name), cells)| {
        let mut waits = Histogram::default();
        cells
            .values()
            .for_each(|cell| waits.merge(&cell.tally.wait));
        let found = cells.iter();
        let found = found.map(|(start, cell)| (start - span.from, cell.tally.wait.count()));
        let parts = by_bucket(range, found).into_iter().zip(&taken);
        let parts = parts.map(|(found, taken)| (*taken > 0).then(|| found as f64 / *taken as f64));
        let (kind, key) = name.split_once('/').unwrap_or(("", &name));
        Some(GateCurve {
            kind: kind.to_owned(),
            key: key.to_owned(),
            parts: parts.collect(),
            part: waits.count() as f64 / sum as f64,
            waited: waits.mean()?,
        })
    });
    let mut curves: Vec<GateCurve> = curves.collect();
    curves.sort_by(|one, other| {
        let most = other.part.total_cmp(&one.part);
        most.then(other.waited.cmp(&one.waited))
    });
    Ok(Some(curves))
}

/// Adds up numbers of samples by the bucket of their time, which is in seconds since the start of the range.
fn by_bucket(range: TimeRange, samples: impl Iterator<Item = (i64, u64)>) -> Vec<u64> {
    let mut sums = vec![0; range.buckets()];
    for (seconds, samples) in samples {
        let place = usize::try_from(seconds.div_euclid(range.step())).ok();
        if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
            *sum += samples;
        }
    }
    sums
}
