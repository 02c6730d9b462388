//! Reads buckets and sums.

use crate::db::model::history::cell::{Cell, FleetGauge, QueueGauge, Resolution};
use crate::db::model::history::tally::Tally;
use crate::db::query::history::{self, CellsByTime, Seconds};
use crate::db::table::history::series::{self, SeriesIds};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Result};
use crate::history::filter::HistoryFilter;
use crate::history::range::TimeRange;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;

/// What happened in one bucket of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bucket {
    /// When it starts.
    pub starts_at: DateTime<Utc>,
    /// What ended in it.
    pub tally: Tally,
    /// The ready jobs of the queue. `None` if a class or everything was selected, or if no supervisor
    /// or worker took a sample in this time.
    pub queue: Option<QueueGauge>,
    /// The workers. `None` if a queue or a class was selected, or if no sample was taken.
    pub fleet: Option<FleetGauge>,
    /// How many processes died in it. Zero if a queue or a class was selected.
    pub processes_died: u64,
}

/// What a queue, a class or both added up to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeriesTally {
    /// The queue; empty in a sum by class.
    pub queue: String,
    /// The class; empty in a sum by queue.
    pub class: String,
    /// What ended.
    pub tally: Tally,
}

/// Returns what ended in each bucket of a time range, the oldest first: also empty buckets, and also
/// what is not folded yet.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn series<C: AsConn + ?Sized>(
    conn: &mut C,
    filter: &HistoryFilter,
    range: TimeRange,
) -> Result<Vec<Bucket>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let span = range.span(ids.now);
    let cells = cells(&mut conn, &ids, filter, range.resolution(), span)?;
    let step = range.step();
    let mut buckets: BTreeMap<i64, Cell> = BTreeMap::new();
    for start in (span.from..span.to).step_by(range.bucket().as_secs() as usize) {
        buckets.insert(start, Cell::default());
    }
    for (start, cell) in cells {
        let start = start.div_euclid(step) * step;
        buckets.entry(start).or_default().merge(&cell);
    }
    Ok(buckets.into_iter().filter_map(bucket).collect())
}

fn bucket((start, cell): (i64, Cell)) -> Option<Bucket> {
    Some(Bucket {
        starts_at: DateTime::from_timestamp(start, 0)?,
        tally: cell.tally,
        queue: cell.queue,
        fleet: cell.fleet,
        processes_died: cell.died,
    })
}

pub(crate) fn read_ids(conn: &mut Conn<'_>) -> Result<SeriesIds> {
    series::ids(conn).doing("read the history")
}

/// Returns what is selected, by the start of each bucket of this resolution.
pub(crate) fn cells(
    conn: &mut Conn<'_>,
    ids: &SeriesIds,
    filter: &HistoryFilter,
    resolution: Resolution,
    span: Seconds,
) -> Result<CellsByTime> {
    let (queue, class) = (filter.queue.as_deref(), filter.class.as_deref());
    let mut wanted = ids.of(queue, class);
    let of_queue = queue.is_some() && class.is_none();
    wanted.extend(ids.all.filter(|_| of_queue));
    let mut part = history::part(conn, &wanted, resolution, span).doing("read the history")?;
    // A queue without ready jobs has no sample of its own.
    let sampled = ids.all.filter(|_| of_queue);
    let sampled = sampled.and_then(|all| part.folded.remove(&all));
    let mut cells = CellsByTime::new();
    for (start, cell) in sampled.unwrap_or_default() {
        if cell.fleet.is_some() {
            cells.entry(start).or_default().queue = Some(QueueGauge::default());
        }
    }
    for (start, mut cell) in part.folded.into_values().flatten() {
        // The series of the only class of a queue has its samples.
        cell.queue = cell.queue.filter(|_| of_queue);
        cells.entry(start).or_default().merge(&cell);
    }
    for (start, more) in part.unfolded {
        let is_all = queue.is_none() && class.is_none();
        let died = if is_all { more.died } else { 0 };
        for (queue, class, tally) in more.series.iter() {
            let (queue, class) = ids.pairs.place(queue, class);
            if filter.selects(queue, class) {
                cells.entry(start).or_default().tally.merge(tally);
            }
        }
        if died > 0 {
            let cell = cells.entry(start).or_default();
            cell.died = cell.died.saturating_add(died);
        }
    }
    Ok(cells)
}

/// Returns what ended in a time range by queue, in order of their names.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn by_queue<C: AsConn + ?Sized>(conn: &mut C, range: TimeRange) -> Result<Vec<SeriesTally>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let span = range.span(ids.now);
    let sums = queue_sums(&mut conn, &ids, range.resolution(), span)?;
    let sums = sums.into_iter().map(|(queue, tally)| SeriesTally {
        queue,
        class: String::new(),
        tally,
    });
    Ok(sums.collect())
}

/// Returns what ended by queue.
pub(crate) fn queue_sums(
    conn: &mut Conn<'_>,
    ids: &SeriesIds,
    resolution: Resolution,
    span: Seconds,
) -> Result<BTreeMap<String, Tally>> {
    let queues = ids.queues();
    let wanted: Vec<i64> = queues.values().copied().collect();
    let mut part = history::part(conn, &wanted, resolution, span).doing("read the history")?;
    let mut sums: BTreeMap<String, Tally> = BTreeMap::new();
    for (queue, id) in &queues {
        for cell in part
            .folded
            .remove(id)
            .into_iter()
            .flat_map(CellsByTime::into_values)
        {
            if !cell.tally.is_empty() {
                sums.entry((*queue).to_owned())
                    .or_default()
                    .merge(&cell.tally);
            }
        }
    }
    for (queue, class, tally) in part.unfolded.values().flat_map(|more| more.series.iter()) {
        let (queue, _) = ids.pairs.place(queue, class);
        sums.entry(queue.to_owned()).or_default().merge(tally);
    }
    Ok(sums)
}

/// Returns what ended in a time range by class, in order of their names; of all queues, or of one.
///
/// It reads each series of a queue and a class by itself. With many of them, a long range takes
/// time: about a second for a year of 100 series.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn by_class<C: AsConn + ?Sized>(
    conn: &mut C,
    queue: Option<&str>,
    range: TimeRange,
) -> Result<Vec<SeriesTally>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let span = range.span(ids.now);
    let is_wanted = |name: &str| queue.is_none_or(|queue| queue == name);
    let pairs = ids.pairs.iter().filter(|(name, ..)| is_wanted(name));
    let classes: BTreeMap<i64, &str> = pairs.map(|(_, class, id)| (*id, class)).collect();
    let wanted: Vec<i64> = classes.keys().copied().collect();
    let part = history::part(&mut conn, &wanted, range.resolution(), span);
    let part = part.doing("read the history")?;
    let mut sums: BTreeMap<&str, Tally> = BTreeMap::new();
    for (id, cells) in &part.folded {
        let class = classes.get(id).copied().unwrap_or_default();
        for cell in cells.values() {
            sums.entry(class).or_default().merge(&cell.tally);
        }
    }
    for (queue, class, tally) in part.unfolded.values().flat_map(|more| more.series.iter()) {
        let (queue, class) = ids.pairs.place(queue, class);
        if is_wanted(queue) {
            sums.entry(class).or_default().merge(tally);
        }
    }
    let sums = sums.into_iter().filter(|(_, tally)| !tally.is_empty());
    let sums = sums.map(|(class, tally)| SeriesTally {
        queue: queue.unwrap_or_default().to_owned(),
        class: class.to_owned(),
        tally,
    });
    Ok(sums.collect())
}
