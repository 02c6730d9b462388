//! Reads buckets and sums.

use crate::db::model::history::cell::{Cell, FleetGauge, QueueGauge, Resolution};
use crate::db::model::history::tally::Tally;
use crate::db::query::history::{self, CellsByTime, Seconds, SeriesCells};
use crate::db::table::history::series::{self, SeriesIds};
use crate::db::{AsConn, Conn, own};
use crate::error::{ErrorContext, Result};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The history of one bucket of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bucket {
    /// The start of the bucket.
    pub starts_at: DateTime<Utc>,
    /// The jobs and runs that ended in it.
    pub tally: Tally,
    /// The ready jobs of the queue. `None` if a class or everything was selected, or if no supervisor
    /// or worker took a sample in this time.
    pub queue: Option<QueueGauge>,
    /// The workers. `None` if a queue or a class was selected, or if no sample was taken.
    pub fleet: Option<FleetGauge>,
    /// The number of processes that died in it. Zero if a queue or a class was selected.
    pub processes_died: u64,
}

/// The sum of a queue, a class or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SeriesTally {
    /// The queue; empty in a sum by class.
    pub queue: String,
    /// The class; empty in a sum by queue.
    pub class: String,
    /// The jobs and runs that ended.
    pub tally: Tally,
}

/// Returns what ended in each bucket of a time range, the oldest first: also empty buckets, and also
/// what is not folded yet.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::history::{self, HistoryFilter, TimeRange};
///
/// for bucket in history::series(&mut conn, &HistoryFilter::all(), TimeRange::Hour)? {
///     println!("{}: {} jobs finished", bucket.starts_at, bucket.tally.finished);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
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

#[doc(hidden)]
pub fn read_ids(conn: &mut Conn<'_>) -> Result<SeriesIds> {
    series::ids(conn).during("read the history")
}

/// Returns what is selected, by the start of each bucket of this resolution.
pub(crate) fn cells(
    conn: &mut Conn<'_>,
    ids: &SeriesIds,
    filter: &HistoryFilter,
    resolution: Resolution,
    span: Seconds,
) -> Result<CellsByTime> {
    let of_queue = filter.queue.is_some() && filter.class.is_none();
    let is_wanted = |queue: &str, class: &str| {
        filter.selects(queue, class) || (of_queue && queue.is_empty() && class.is_empty())
    };
    let read = history::buckets(conn, ids, resolution, span, is_wanted);
    let mut read = read.during("read the history")?;
    let mut cells = CellsByTime::new();
    if of_queue {
        let all = read.remove(&Default::default()).unwrap_or_default();
        // A queue without ready jobs has no sample of its own.
        for (start, _) in all.into_iter().filter(|(_, cell)| cell.fleet.is_some()) {
            cells.entry(start).or_default().queue = Some(QueueGauge::default());
        }
    }
    for (start, mut cell) in read.into_values().flatten() {
        // The series of the only class of a queue has its samples.
        cell.queue = cell.queue.filter(|_| of_queue);
        cells.entry(start).or_default().merge(&cell);
    }
    Ok(cells)
}

/// Returns what ended in a time range by queue, in order of their names.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::history::{self, TimeRange};
///
/// for one in history::by_queue(&mut conn, TimeRange::Day)? {
///     println!("{}: {} jobs failed", one.queue, one.tally.failed);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
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
    let is_wanted = |queue: &str, class: &str| !queue.is_empty() && class.is_empty();
    let queues = history::buckets(conn, ids, resolution, span, is_wanted);
    Ok(sums_by(queues.during("read the history")?, |(queue, _)| {
        queue
    }))
}

/// Returns the sums of series by one of their names, without those in which nothing ended.
fn sums_by(
    series: SeriesCells,
    name: impl Fn((String, String)) -> String,
) -> BTreeMap<String, Tally> {
    let mut sums: BTreeMap<String, Tally> = BTreeMap::new();
    for (names, cells) in series {
        let sum = sums.entry(name(names)).or_default();
        cells.values().for_each(|cell| sum.merge(&cell.tally));
    }
    sums.retain(|_, tally| !tally.is_empty());
    sums
}

/// Returns what ended in a time range by class, in order of their names; of all queues, or of one.
///
/// It reads each series of a queue and a class by itself. With many of them, a long range takes
/// time: about a second for a year of 100 series.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::history::{self, TimeRange};
///
/// for one in history::by_class(&mut conn, Some("mail"), TimeRange::Day)? {
///     println!("{}: {} jobs failed", one.class, one.tally.failed);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
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
    let is_of_queue = |name: &str| !name.is_empty() && queue.is_none_or(|queue| queue == name);
    let is_wanted = |name: &str, class: &str| is_of_queue(name) && !class.is_empty();
    let classes = history::buckets(&mut conn, &ids, range.resolution(), span, is_wanted);
    let sums = sums_by(classes.during("read the history")?, |(_, class)| class);
    let sums = sums.into_iter().map(|(class, tally)| SeriesTally {
        queue: queue.unwrap_or_default().to_owned(),
        class,
        tally,
    });
    Ok(sums.collect())
}

// --- The range and filter of a read of the history ---

/// Selects a part of the history: everything, a queue, a class, or a class in a queue.
///
/// At most 1,000 pairs of a queue and a class are told apart. What exceeds this is counted under the
/// class `other` of its queue, or under the queue `other`.
///
/// ```
/// use windlass::history::HistoryFilter;
///
/// let imports = HistoryFilter::all().queue("slow").class("import");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a filter does nothing by itself"]
pub struct HistoryFilter {
    pub(crate) queue: Option<String>,
    pub(crate) class: Option<String>,
}

impl HistoryFilter {
    /// Selects everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Restricts it to a queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Restricts it to a class.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Returns whether the series with these names is selected: both are empty for everything, the class for a whole
    /// queue, and the queue for a gate, which no filter selects.
    fn selects(&self, queue: &str, class: &str) -> bool {
        let is = |wanted: &Option<String>, name| wanted.as_deref().is_none_or(|one| one == name);
        match (&self.queue, &self.class) {
            (None, None) => queue.is_empty() && class.is_empty(),
            (Some(_), None) => !queue.is_empty() && class.is_empty() && is(&self.queue, queue),
            (_, Some(_)) if queue.is_empty() || class.is_empty() => false,
            (_, Some(_)) => is(&self.queue, queue) && is(&self.class, class),
        }
    }
}

// --- The sums of all time ---

/// The sums since the history began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// By queue and class, in order of their names.
    pub series: Vec<SeriesTally>,
    /// The number of processes that were found dead. Each may have lost its counts since its last
    /// heartbeat. Those that had to end, after a time limit or the shutdown timeout, are not counted.
    pub processes_died: u64,
}

/// Returns what ended since the history began, by queue and class. No count ever becomes less, also
/// not when processes end or old buckets are deleted: this is the source of counters.
///
/// A series in which nothing ended for 13 months is deleted.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let totals = windlass::history::totals(&mut conn)?;
/// let failed: u64 = totals.series.iter().map(|one| one.tally.failed).sum();
/// assert_eq!((failed, totals.processes_died), (0, 0));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn totals<C: AsConn + ?Sized>(conn: &mut C) -> Result<Totals> {
    let sums = history::sums(&mut own(conn)).during("read the totals of the history")?;
    let series = sums.series.iter();
    let series = series.map(|(queue, class, tally)| SeriesTally {
        queue: queue.to_owned(),
        class: class.to_owned(),
        tally: tally.clone(),
    });
    Ok(Totals {
        series: series.collect(),
        processes_died: sums.died,
    })
}

// --- The time ranges in which the history is read ---

/// A time range up to now, in buckets of equal length.
///
/// Buckets begin at whole multiples of their length, in UTC. The last one has not ended yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    #[doc(hidden)]
    pub fn step(self) -> i64 {
        match self {
            TimeRange::Hour => 60,
            TimeRange::Day => 600,
            TimeRange::Week => 3_600,
            TimeRange::Month => 6 * 3_600,
            TimeRange::Year => 24 * 3_600,
        }
    }

    /// Returns the resolution at which it is read.
    #[doc(hidden)]
    pub fn resolution(self) -> Resolution {
        match self {
            TimeRange::Hour => Resolution::Minute,
            TimeRange::Day => Resolution::TenMinutes,
            TimeRange::Week | TimeRange::Month | TimeRange::Year => Resolution::Hour,
        }
    }

    /// Returns the time from the start of the first bucket to the end of the last.
    #[doc(hidden)]
    pub fn span(self, now: i64) -> Seconds {
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
