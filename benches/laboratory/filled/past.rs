//! The history of thirteen months.

use crate::db::model::history::cell::{self, Cell, Cells, FleetGauge, QueueGauge, Resolution};
use crate::db::model::history::tally::{CountedEnd, RunSpan, Tally};
use crate::db::table::history::series::{self, BucketRow};
use crate::db::{Conn, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::filled::sizes::{self, CLASSES, QUEUES};
use diesel::prelude::*;
use std::time::Duration;

/// Rows of one transaction.
const BATCH: usize = 2_000;

/// The subject of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeriesOf {
    Everything,
    Queue,
    Class,
}

/// Stores the history of all classes: a full row for every day, and those of shorter buckets.
/// `progress` is told how many rows there are.
pub(crate) fn fill(connection: &mut DbConnection, progress: &dyn Fn(usize)) -> Result<()> {
    let (all, now) = connection.with_write_lock(create).during("store series")?;
    let samples: Vec<Tally> = (0..16).map(sample).collect();
    let mut rows = Vec::new();
    let mut count = 0;
    for (id, of) in all {
        for resolution in Resolution::ALL {
            let (mut start, _) = resolution.row_and_bucket(now - resolution.kept());
            while start <= now {
                let key = BucketRow {
                    series_id: id,
                    resolution,
                    starts_at: start,
                };
                rows.push((key, cell::pack(&cells(key, of, now, &samples))));
                start += resolution.span();
                if rows.len() >= BATCH {
                    count += rows.len();
                    write(connection, std::mem::take(&mut rows))?;
                    progress(count);
                }
            }
        }
    }
    write(connection, rows)
}

fn write(connection: &mut DbConnection, rows: Vec<(BucketRow, Vec<u8>)>) -> Result<()> {
    connection
        .with_write_lock(|conn| conn.transaction(|conn| series::write(conn, rows)))
        .during("store the history")
}

/// Creates the series, and returns them with the time now in seconds since 1970.
fn create(conn: &mut Conn<'_>) -> QueryResult<(Vec<(i64, SeriesOf)>, i64)> {
    series::insert_first(conn)?;
    let mut all = Vec::new();
    for number in 0..QUEUES {
        let id = series::insert_series(conn, &sizes::queue(number), "")?;
        all.push((id, SeriesOf::Queue));
    }
    for number in 0..CLASSES {
        let id = series::insert_series(conn, &sizes::queue(number), &sizes::class_name(number))?;
        all.push((id, SeriesOf::Class));
    }
    let ids = series::ids(conn)?;
    all.extend(ids.all.map(|id| (id, SeriesOf::Everything)));
    series::note_folded(conn, &Vec::from_iter(ids.all))?;
    Ok((all, ids.now))
}

/// Returns what ended in a bucket, one of some that differ.
fn sample(number: u64) -> Tally {
    let mut tally = Tally::default();
    for run in 0..60 + number * 7 {
        let end = match run % 50 {
            7 => CountedEnd::Retried,
            13 => CountedEnd::Failed,
            29 if number.is_multiple_of(4) => CountedEnd::Discarded,
            _ => CountedEnd::Finished,
        };
        let mixed = (run * 2_654_435_761 + number * 97) % 4_096;
        let span = RunSpan {
            waited: Some(Duration::from_micros(200 + mixed * mixed / 8)),
            ran: Duration::from_micros(500 + mixed * 300),
        };
        tally.add_run(end, span);
    }
    tally
}

/// Returns the buckets of a row until now.
fn cells(row: BucketRow, of: SeriesOf, now: i64, samples: &[Tally]) -> Cells {
    let mut cells = Cells::new();
    let step = row.resolution.seconds();
    for number in 0..row.resolution.span() / step {
        let at = row.starts_at + number * step;
        if at > now {
            break;
        }
        let mixed = sizes::mixed(at / step + row.series_id).unsigned_abs() as usize;
        let mut cell = Cell::of(samples[mixed % samples.len()].clone());
        if of == SeriesOf::Queue {
            cell.queue = Some(QueueGauge {
                ready: (mixed % 5_000) as u32,
                oldest_ready: Duration::from_millis((mixed % 90_000) as u64),
            });
        }
        if of == SeriesOf::Everything {
            let samples = (step / 60).unsigned_abs();
            cell.fleet = Some(FleetGauge {
                samples,
                workers: 160 * samples,
                threads: 800 * samples,
                busy: (mixed as u64 % 800) * samples,
            });
        }
        cells.insert(u16::try_from(number).unwrap_or(0), cell);
    }
    cells
}
