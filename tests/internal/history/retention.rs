//! Retention of the history: the rows that are kept, and for how long.

use super::{finished, fold_all, insert_at, number, numbered, rows, total};
use crate::db::DbConnection;
use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::model::history::cell::Resolution;
use crate::db::table::history::{deltas, series};
use crate::db::transition::clear;
use std::collections::BTreeMap;

on_each_database!(
    buckets_go_when_their_time_is_over,
    totals_outlive_buckets,
    a_series_of_the_past_goes,
    contributions_that_are_done_go,
    the_walk_reaches_every_series,
);

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

fn now(conn: &mut DbConnection) -> i64 {
    series::ids(&mut conn.as_conn()).unwrap().now
}

/// Clears all there is to clear, and returns how many rows.
fn clear(conn: &mut DbConnection) -> usize {
    let (mut cleared, mut after) = (0, Some(0));
    while let Some(from) = after {
        let page = clear::old_buckets(&mut conn.as_conn(), from).unwrap();
        cleared += page.cleared;
        after = page.reached;
    }
    cleared + clear::unused(&mut conn.as_conn(), 1_000).unwrap().cleared
}

/// Returns the number of rows of each resolution, by its length in seconds.
fn kept(conn: &mut DbConnection) -> BTreeMap<i64, i64> {
    let count = |conn: &mut DbConnection, seconds: i64| {
        let text = format!("SELECT count(*) AS n FROM windlass_stats WHERE resolution = {seconds}");
        (seconds, number(conn, &text))
    };
    let all = Resolution::ALL.map(|resolution| count(conn, resolution.seconds()));
    all.into_iter().collect()
}

fn buckets_go_when_their_time_is_over(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    // Half a span of the row is left, or everything is over.
    let ages = [
        0,
        23 * HOUR,
        28 * HOUR,
        29 * DAY,
        31 * DAY,
        396 * DAY,
        399 * DAY,
    ];
    for age in ages {
        insert_at(&mut conn.as_conn(), &finished("mail", "send", 1), now - age);
    }
    fold_all(&mut conn.as_conn());
    let all = ages.len() as i64;
    let before = kept(&mut conn);
    assert_eq!(before[&60], 2 * all);
    clear(&mut conn);
    let after = kept(&mut conn);
    assert_eq!(after[&60], 2 * 2);
    assert_eq!(after[&600], 2 * 4);
    assert_eq!(before[&3_600] - after[&3_600], 2);
    assert_eq!(clear(&mut conn), 0);
}

fn totals_outlive_buckets(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 9),
        now - 500 * DAY,
    );
    fold_all(&mut conn.as_conn());
    let buckets = "SELECT count(*) AS n FROM windlass_stats WHERE resolution > 0";
    assert!(number(&mut conn, buckets) > 0);
    clear(&mut conn);
    assert_eq!(number(&mut conn, buckets), 0);
    assert_eq!(total(&mut conn).finished, 9);
}

fn a_series_of_the_past_goes(db: &TestDb) {
    let mut conn = db.connect();
    for queue in ["old", "new", "other"] {
        deltas::insert_with(&mut conn.as_conn(), &finished(queue, "send", 1)).unwrap();
    }
    fold_all(&mut conn.as_conn());
    let age = "UPDATE windlass_stats_series SET folded_at = '2020-01-01 00:00:00.000000' \
         WHERE queue_name IN ('old', 'other')";
    execute(&mut conn.as_conn(), age);
    clear(&mut conn);
    let left = crate::history::totals(&mut conn).unwrap().series;
    let left: Vec<&str> = left.iter().map(|one| &*one.queue).collect();
    assert_eq!(left, ["new", "other"]);
    // The third is that of everything.
    assert_eq!(rows(&mut conn, "windlass_stats_series"), 3);
    let buckets = "SELECT count(*) AS n FROM windlass_stats WHERE resolution > 0";
    assert_eq!(number(&mut conn, buckets), 3 * 3);
}

fn contributions_that_are_done_go(db: &TestDb) {
    let mut conn = db.connect();
    let insert = |conn: &mut DbConnection, source: &str| {
        let delta = numbered(source, 1, &finished("mail", "send", 1));
        deltas::insert_delta(&mut conn.as_conn(), &delta).unwrap();
    };
    insert(&mut conn, "ended");
    insert(&mut conn, "alive");
    fold_all(&mut conn.as_conn());
    insert(&mut conn, "late");
    let age = |conn: &mut DbConnection, source: &str, time: &str| {
        let text = format!(
            "UPDATE windlass_stats_deltas SET created_at = '{time}' WHERE source = '{source}'"
        );
        execute(&mut conn.as_conn(), &text);
    };
    age(&mut conn, "ended", "2020-01-01 00:00:00.000000");
    // Nothing has folded it: all processes were away for years.
    age(&mut conn, "late", "2020-01-01 00:00:00.000000");
    let stale = "UPDATE windlass_stats_series SET folded_at = '2020-01-01 00:00:00.000000' WHERE queue_name = ''";
    execute(&mut conn.as_conn(), stale);
    clear::unused(&mut conn.as_conn(), 1_000).unwrap();
    assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 2);
    fold_all(&mut conn.as_conn());
    assert_eq!(total(&mut conn).finished, 3);
    // One that others were folded beside, day after day, cannot be read.
    insert(&mut conn, "damaged");
    age(&mut conn, "damaged", "2020-01-01 00:00:00.000000");
    age(&mut conn, "late", "2099-01-01 00:00:00.000000");
    clear::unused(&mut conn.as_conn(), 1_000).unwrap();
    assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 2);
}

fn the_walk_reaches_every_series(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    for queue in 0..130 {
        let queue = format!("q{queue}");
        let contribution = finished(&queue, "send", 1);
        insert_at(&mut conn.as_conn(), &contribution, now - 40 * DAY);
    }
    fold_all(&mut conn.as_conn());
    clear(&mut conn);
    let left = kept(&mut conn);
    assert_eq!((left[&60], left[&600], left[&3_600]), (0, 0, 131));
}
