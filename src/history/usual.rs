//! What is usual at some time.

use crate::db::model::history::cell::{Cell, Resolution};
use crate::db::model::history::tally::Histogram;
use crate::db::query::history::Seconds;
use crate::db::{AsConn, own};
use crate::error::Result;
use crate::history::filter::HistoryFilter;
use crate::history::read::{cells, read_ids};
use chrono::{DateTime, Utc};
use serde::Serialize;

const HOUR: i64 = 3_600;
const WEEK: i64 = 7 * 24 * HOUR;

/// How many weeks are compared.
const WEEKS: i64 = 8;

/// What is usual in an hour of the week.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usual {
    /// How many weeks were compared, at least one and at most eight.
    pub weeks: u32,
    /// Finished jobs per hour, on average over the weeks.
    pub finished_per_hour: f64,
    /// The least and the most finished jobs in that hour of one week.
    pub finished_range: (u64, u64),
    /// Permanently failed jobs per hour, on average over the weeks.
    pub failed_per_hour: f64,
    /// How long jobs waited, in all weeks together.
    pub wait: Histogram,
    /// How long runs took, in all weeks together.
    pub run: Histogram,
}

/// Returns what is usual in the hour of the week in which `at` is, in UTC.
///
/// That is what happened in that hour of each of the eight weeks before. Returns `None` if the history began less than a week before
/// `at`, so that there is nothing to compare with.
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
