//! The size of the history. The sizes of whole databases are measured on request:
//! `WINDLASS_MEASURE_HISTORY=1 cargo test -p windlass-internal-tests how_large_it_is -- --nocapture --test-threads 1`.

use super::number;
use crate::db::DbConnection;
use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::model::history::cell::{self, Cell, Cells, FleetGauge, QueueGauge, Resolution};
use crate::db::model::history::tally::{CountedEnd, RunSpan, Tally};
use crate::db::table::history::series::{self, BucketRow};
use std::collections::BTreeMap;
use std::time::Duration;

/// A number with about this mean, as of events that come by chance.
fn about(mean: f64) -> u64 {
    let sum: f64 = (0..12).map(|_| fastrand::f64()).sum::<f64>() - 6.0;
    (mean + sum * mean.sqrt()).round().max(0.0) as u64
}

/// A duration around this many milliseconds: one in six is more than five times as long.
fn around(ms: f64) -> Duration {
    let sum: f64 = (0..12).map(|_| fastrand::f64()).sum::<f64>() - 6.0;
    Duration::from_secs_f64(ms * (sum * 1.6).exp() / 1_000.0)
}

/// Returns the cell for one bucket of a series in which `rate` jobs end in a minute.
fn cell(rate: f64, resolution: Resolution) -> Cell {
    let minutes = resolution.seconds() as f64 / 60.0;
    let ended = about(rate * minutes);
    let mut tally = Tally::default();
    // Of many, some stand for all.
    let sample = ended.min(200);
    for _ in 0..sample {
        let run = RunSpan {
            waited: Some(around(20.0)),
            ran: around(80.0),
        };
        tally.add_run(CountedEnd::Finished, run);
    }
    for histogram in [&mut tally.wait, &mut tally.run] {
        for count in &mut histogram.counts {
            *count = *count * ended / sample.max(1);
        }
        histogram.micros = histogram.micros / sample.max(1) * ended;
    }
    tally.finished = ended;
    (tally.failed, tally.retried) = (about(ended as f64 / 200.0), about(ended as f64 / 100.0));
    Cell::of(tally)
}

/// Rows that are full, with what only queues and everything have.
fn row(rate: f64, resolution: Resolution, queue: &str, class: &str) -> Cells {
    let count = (resolution.span() / resolution.seconds()) as u16;
    let cell = |_| {
        let mut cell = cell(rate, resolution);
        cell.queue = (!queue.is_empty() && class.is_empty()).then(|| QueueGauge {
            ready: fastrand::u32(0..300),
            oldest_ready: Duration::from_millis(fastrand::u64(0..9_000)),
        });
        cell.fleet = queue.is_empty().then(|| FleetGauge {
            samples: minutes(resolution),
            workers: 8 * minutes(resolution),
            threads: 40 * minutes(resolution),
            busy: fastrand::u64(0..40) * minutes(resolution),
        });
        cell
    };
    (0..count).map(|bucket| (bucket, cell(bucket))).collect()
}

fn minutes(resolution: Resolution) -> u64 {
    resolution.seconds().unsigned_abs() / 60
}

/// The series of so many queues with so many classes each, and their sums.
fn names(queues: usize, classes: usize) -> Vec<(String, String)> {
    let mut names = vec![(String::new(), String::new())];
    for queue in (0..queues).map(|queue| format!("queue_{queue}")) {
        if classes > 1 {
            names.push((queue.clone(), String::new()));
        }
        names.extend((0..classes).map(|class| (queue.clone(), format!("class_number_{class}"))));
    }
    names
}

/// Returns the number of rows of a series that is never idle.
fn rows_of(resolution: Resolution) -> i64 {
    resolution.kept() / resolution.span() + 1
}

/// The rates of the series, in ends a minute.
const RATES: [f64; 4] = [2.0, 10.0, 60.0, 300.0];

/// Some full rows for each rate and resolution, of a series that is a whole queue if it has no class.
struct Samples(BTreeMap<(usize, Resolution, bool), Vec<Vec<u8>>>);

impl Samples {
    fn new() -> Self {
        let mut samples = BTreeMap::new();
        for (place, rate) in RATES.into_iter().enumerate() {
            for resolution in Resolution::ALL {
                for class in ["", "class"] {
                    let row = |_| cell::pack(&row(rate, resolution, "queue", class));
                    let key = (place, resolution, class.is_empty());
                    samples.insert(key, (0..4).map(row).collect());
                }
            }
        }
        Samples(samples)
    }
}

/// 13 months of series in which something ends every minute.
fn fill(conn: &mut DbConnection, samples: &Samples, queues: usize, classes: usize) {
    series::insert_first(&mut conn.as_conn()).unwrap();
    for (place, (queue, class)) in names(queues, classes).iter().enumerate() {
        let id = match place {
            0 => number(conn, "SELECT min(id) AS n FROM windlass_stats_series"),
            _ => series::insert_series(&mut conn.as_conn(), queue, class).unwrap(),
        };
        for resolution in Resolution::ALL {
            let key = (place % RATES.len(), resolution, class.is_empty());
            let packed = &samples.0[&key];
            let rows = (0..rows_of(resolution)).map(|number| {
                let key = BucketRow {
                    series_id: id,
                    resolution,
                    starts_at: number * resolution.span(),
                };
                (key, packed[number as usize % packed.len()].clone())
            });
            let rows: Vec<_> = rows.collect();
            conn.as_conn()
                .transaction(|conn| {
                    rows.chunks(500)
                        .try_for_each(|rows| series::write(conn, rows.to_vec()))
                })
                .unwrap();
        }
    }
}

fn megabytes(db: &TestDb, conn: &mut DbConnection) -> f64 {
    let bytes = if db.is_postgres() {
        execute(&mut conn.as_conn(), "VACUUM ANALYZE windlass_stats");
        "SELECT CAST(sum(pg_total_relation_size(c.oid)) AS bigint) AS n FROM pg_class c \
         WHERE c.relname IN ('windlass_stats', 'windlass_stats_series', 'windlass_stats_deltas') \
         AND c.relnamespace = current_schema()::regnamespace"
    } else {
        "SELECT page_count * page_size AS n FROM pragma_page_count, pragma_page_size"
    };
    number(conn, bytes) as f64 / 1e6
}

/// Each row is short enough for the page of its table, and the rows of a series for 13 months are short
/// enough that 100 of them take less than 150 MB with all that a database adds.
#[test]
fn rows_are_short() {
    fastrand::seed(11);
    let mut sum = 0.0;
    for (rate, least) in [(2.0, false), (60.0, false), (300.0, true)] {
        for resolution in Resolution::ALL {
            let sizes: Vec<usize> = (0..8)
                .map(|_| cell::pack(&row(rate, resolution, "mail", "send")).len())
                .collect();
            let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
            assert!(mean < 1_500.0, "{rate} a minute, {resolution:?}: {mean}");
            if least {
                sum += mean * rows_of(resolution) as f64;
            }
        }
    }
    assert!(sum < 1_000_000.0, "{sum}");
}

on_each_database!(how_large_it_is_as_measured);

fn how_large_it_is_as_measured(db: &TestDb) {
    if std::env::var("WINDLASS_MEASURE_HISTORY").is_err() {
        return;
    }
    let mut conn = db.connect();
    let empty = megabytes(db, &mut conn);
    let samples = Samples::new();
    for (queues, classes) in [(10, 10), (100, 1), (50, 2), (50, 20), (1_000, 1)] {
        fill(&mut conn, &samples, queues, classes);
        let size = megabytes(db, &mut conn) - empty;
        eprintln!("{queues} queues with {classes} classes each: {size:.0} MB");
        for table in ["windlass_stats", "windlass_stats_series"] {
            execute(&mut conn.as_conn(), &format!("DELETE FROM {table}"));
        }
        execute(
            &mut conn.as_conn(),
            if db.is_postgres() {
                "VACUUM FULL windlass_stats"
            } else {
                "VACUUM"
            },
        );
    }
}
