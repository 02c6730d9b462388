//! The rates of the queues, and the usual figures of an hour of the week.

use crate::db::model::history::cell::{Cell, Resolution};
use crate::db::model::history::tally::Histogram;
use crate::db::query::history::Seconds;
use crate::db::{AsConn, own};
use crate::error::Result;
use crate::history::read::{HistoryFilter, cells, queue_sums, read_ids};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::time::Duration;

/// The rates and waiting times of a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueRate {
    /// The queue.
    pub queue: String,
    /// Finished jobs per minute.
    pub finished_per_minute: f64,
    /// Permanently failed jobs per minute.
    pub failed_per_minute: f64,
    /// The seconds that half of the jobs waited at most.
    pub wait_p50_seconds: Option<f64>,
    /// The seconds that 99 % of the jobs waited at most.
    pub wait_p99_seconds: Option<f64>,
}

/// Returns how fast each queue moved within the last minutes, in order of their names.
///
/// A queue in
/// which nothing ended is left out. `over` is the time to look back, 1 minute to 24 hours; it is
/// extended to whole minutes.
///
/// Processes store what they count with their heartbeats, every 10 s by default: the newest 10 s are
/// not complete.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use std::time::Duration;
///
/// for rate in windlass::history::rates(&mut conn, Duration::from_secs(300))? {
///     println!("{}: {} jobs a minute", rate.queue, rate.finished_per_minute);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn rates<C: AsConn + ?Sized>(conn: &mut C, over: Duration) -> Result<Vec<QueueRate>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let over = i64::try_from(over.as_secs()).unwrap_or(i64::MAX);
    let from = ids.now - over.clamp(60, 86_400);
    let span = Seconds {
        from: from.div_euclid(60) * 60,
        to: ids.now + 60,
    };
    let minutes = (ids.now - span.from) as f64 / 60.0;
    let sums = queue_sums(&mut conn, &ids, Resolution::Minute, span)?;
    let rates = sums.into_iter().map(|(queue, tally)| {
        let wait = |p| tally.wait.quantile(p).map(|wait| wait.as_secs_f64());
        QueueRate {
            queue,
            finished_per_minute: tally.finished as f64 / minutes,
            failed_per_minute: tally.failed as f64 / minutes,
            wait_p50_seconds: wait(0.5),
            wait_p99_seconds: wait(0.99),
        }
    });
    Ok(rates.collect())
}

// --- The usual figures of a time of day ---

const HOUR: i64 = 3_600;
const WEEK: i64 = 7 * 24 * HOUR;

/// The number of weeks that are compared.
const WEEKS: i64 = 8;

/// The usual figures of an hour of the week.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usual {
    /// The number of weeks that were compared, from one to eight.
    pub weeks: u32,
    /// Finished jobs per hour, on average over the weeks.
    pub finished_per_hour: f64,
    /// The least and the most finished jobs in that hour of one week.
    pub finished_range: (u64, u64),
    /// Permanently failed jobs per hour, on average over the weeks.
    pub failed_per_hour: f64,
    /// The waiting times of jobs, in all weeks together.
    pub wait: Histogram,
    /// The durations of runs, in all weeks together.
    pub run: Histogram,
}

/// Returns what is usual in the hour of the week in which `at` is, in UTC.
///
/// That is what happened in that hour of each of the eight weeks before. Returns `None` if the history began less than a week before
/// `at`, so that there is nothing to compare with.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::history::{self, HistoryFilter};
///
/// # let now = std::time::SystemTime::now().into();
/// match history::usual(&mut conn, &HistoryFilter::all(), now)? {
///     Some(usual) => println!("{} jobs finish in such an hour", usual.finished_per_hour),
///     None => println!("the history is too short"),
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn usual<C: AsConn + ?Sized>(
    conn: &mut C,
    filter: &HistoryFilter,
    at: DateTime<Utc>,
) -> Result<Option<Usual>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let hour = at.timestamp().div_euclid(HOUR) * HOUR;
    let span = Seconds {
        from: hour - WEEKS * WEEK,
        to: hour - WEEK + HOUR,
    };
    let all = cells(
        &mut conn,
        &ids,
        &HistoryFilter::all(),
        Resolution::Hour,
        span,
    )?;
    let Some((begin, _)) = all.first_key_value() else {
        return Ok(None);
    };
    let mut selected = cells(&mut conn, &ids, filter, Resolution::Hour, span)?;
    let weeks = (1..=WEEKS).map(|weeks| hour - weeks * WEEK);
    let weeks = weeks.filter(|start| start >= begin);
    // Nothing recorded since the history began means that nothing ended.
    let hours: Vec<Cell> = weeks
        .map(|start| selected.remove(&start).unwrap_or_default())
        .collect();
    if hours.is_empty() {
        return Ok(None);
    }
    Ok(Some(of_hours(&hours)))
}

fn of_hours(hours: &[Cell]) -> Usual {
    let mut sum = Cell::default();
    hours.iter().for_each(|hour| sum.merge(hour));
    let finished = || hours.iter().map(|hour| hour.tally.finished);
    let mean = |count: u64| count as f64 / hours.len().max(1) as f64;
    Usual {
        weeks: u32::try_from(hours.len()).unwrap_or(0),
        finished_per_hour: mean(sum.tally.finished),
        finished_range: (finished().min().unwrap_or(0), finished().max().unwrap_or(0)),
        failed_per_hour: mean(sum.tally.failed),
        wait: sum.tally.wait,
        run: sum.tally.run,
    }
}

/// Returns how long runs typically take: those of the last 7 days.
///
/// Its
/// [`quantile`](Histogram::quantile) gives p50 and p99. Returns `None` if there was none, or if the
/// history began less than a week ago.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::history::{self, HistoryFilter};
///
/// if let Some(runs) = history::typical_run(&mut conn, &HistoryFilter::all())? {
///     println!("p99: {:?}", runs.quantile(0.99));
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn typical_run<C: AsConn + ?Sized>(
    conn: &mut C,
    filter: &HistoryFilter,
) -> Result<Option<Histogram>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let span = Seconds {
        from: ids.now - WEEK - 24 * HOUR,
        to: ids.now + HOUR,
    };
    let all = cells(
        &mut conn,
        &ids,
        &HistoryFilter::all(),
        Resolution::Hour,
        span,
    )?;
    if all
        .keys()
        .next()
        .is_none_or(|begin| *begin > ids.now - WEEK)
    {
        return Ok(None);
    }
    let mut run = Histogram::default();
    let mut selected = cells(&mut conn, &ids, filter, Resolution::Hour, span)?;
    for cell in selected.split_off(&(ids.now - WEEK)).into_values() {
        run.merge(&cell.tally.run);
    }
    Ok(Some(run).filter(|run| !run.is_empty()))
}
