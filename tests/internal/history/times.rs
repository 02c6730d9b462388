//! The bucket in which each end is counted, and the ranges and rates that are read back.

use super::{finished, fold_all, insert_at, sum_of};
use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::model::history::cell::Resolution;
use crate::db::table::history::series;
use crate::history::{self, HistoryFilter, TimeRange};
use chrono::DateTime;

on_each_database!(
    buckets_begin_at_whole_minutes,
    every_range_sees_what_it_covers,
    what_is_usual_needs_a_week,
    a_typical_run_needs_a_week,
    rates_are_those_of_the_last_minutes,
);

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

fn now(conn: &mut crate::db::DbConnection) -> i64 {
    series::ids(&mut conn.as_conn()).unwrap().now
}

fn buckets_begin_at_whole_minutes(db: &TestDb) {
    let mut conn = db.connect();
    let start = (now(&mut conn) / HOUR - 1) * HOUR;
    let times = [
        (start - 1, 1),
        (start, 10),
        (start + 59, 100),
        (start + 60, 1_000),
    ];
    for (time, count) in times {
        insert_at(&mut conn.as_conn(), &finished("mail", "send", count), time);
    }
    for is_folded in [false, true] {
        if is_folded {
            fold_all(&mut conn.as_conn());
        }
        let at = |range, time: i64, conn: &mut crate::db::DbConnection| {
            let buckets = history::series(conn, &HistoryFilter::all(), range).unwrap();
            let found = buckets.iter().find(|one| one.starts_at.timestamp() == time);
            found.map(|one| one.tally.finished)
        };
        let ten = 10 * MINUTE;
        let day = TimeRange::Day;
        assert_eq!(at(day, start - ten, &mut conn), Some(1), "{is_folded}");
        assert_eq!(at(day, start, &mut conn), Some(1_110), "{is_folded}");
        let week = TimeRange::Week;
        assert_eq!(at(week, start - HOUR, &mut conn), Some(1), "{is_folded}");
        assert_eq!(at(week, start, &mut conn), Some(1_110), "{is_folded}");
    }
    let ids = series::ids(&mut conn.as_conn()).unwrap();
    let cells = crate::db::query::history::buckets(
        &mut conn.as_conn(),
        &ids,
        Resolution::Minute,
        crate::db::query::history::Seconds {
            from: start - HOUR,
            to: start + HOUR,
        },
        |queue, _| queue.is_empty(),
    )
    .unwrap();
    let minutes: Vec<(i64, u64)> = cells
        .into_values()
        .flatten()
        .map(|(time, cell)| (time - start, cell.tally.finished))
        .collect();
    assert_eq!(minutes, [(-60, 1), (0, 110), (60, 1_000)]);
}

fn every_range_sees_what_it_covers(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    let ages = [
        0,
        30 * MINUTE,
        20 * HOUR,
        6 * DAY,
        29 * DAY,
        360 * DAY,
        390 * DAY,
    ];
    for (place, age) in ages.into_iter().enumerate() {
        let contribution = finished("mail", "send", 10_u64.pow(place as u32));
        insert_at(&mut conn.as_conn(), &contribution, now - age);
    }
    for is_folded in [false, true] {
        if is_folded {
            fold_all(&mut conn.as_conn());
        }
        for (range, sum) in [
            (TimeRange::Hour, 11),
            (TimeRange::Day, 111),
            (TimeRange::Week, 1_111),
            (TimeRange::Month, 11_111),
            (TimeRange::Year, 111_111),
        ] {
            let buckets = history::series(&mut conn, &HistoryFilter::all(), range).unwrap();
            assert_eq!(buckets.len(), range.buckets());
            let steps = buckets
                .windows(2)
                .map(|two| two[1].starts_at - two[0].starts_at);
            let step = chrono::TimeDelta::from_std(range.bucket()).unwrap();
            assert!(steps.into_iter().all(|one| one == step), "{range:?}");
            for filter in [
                HistoryFilter::all(),
                HistoryFilter::all().queue("mail"),
                HistoryFilter::all().class("send"),
            ] {
                let found = sum_of(&mut conn, &filter, range).finished;
                assert_eq!(found, sum, "{range:?}, {filter:?}, {is_folded}");
            }
            let queues = history::by_queue(&mut conn, range).unwrap();
            assert_eq!(queues[0].tally.finished, sum, "{range:?}, {is_folded}");
            let classes = history::by_class(&mut conn, None, range).unwrap();
            assert_eq!(classes[0].tally.finished, sum, "{range:?}, {is_folded}");
        }
    }
}

fn what_is_usual_needs_a_week(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    let at = DateTime::from_timestamp(now, 0).unwrap();
    let mail = HistoryFilter::all().queue("mail");
    let usual = |conn: &mut crate::db::DbConnection, filter: &HistoryFilter| {
        history::usual(conn, filter, at).unwrap()
    };
    insert_at(&mut conn.as_conn(), &finished("mail", "send", 500), now);
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 500),
        now - DAY,
    );
    fold_all(&mut conn.as_conn());
    assert_eq!(usual(&mut conn, &mail), None);
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 30),
        now - WEEK,
    );
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 10),
        now - 3 * WEEK,
    );
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "send", 800),
        now - 3 * WEEK + 2 * HOUR,
    );
    fold_all(&mut conn.as_conn());
    let found = usual(&mut conn, &mail).unwrap();
    // Two weeks ago, nothing ended in this hour.
    assert_eq!(found.weeks, 3);
    assert_eq!(found.finished_range, (0, 30));
    assert!((found.finished_per_hour - 40.0 / 3.0).abs() < 1e-9);
    assert_eq!(found.run.count(), 40);
    let other = usual(&mut conn, &HistoryFilter::all().queue("other")).unwrap();
    assert_eq!((other.weeks, other.finished_range), (3, (0, 0)));
    let of_class = usual(&mut conn, &HistoryFilter::all().class("send")).unwrap();
    assert_eq!(of_class.finished_range, (0, 30));
}

fn a_typical_run_needs_a_week(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    let send = HistoryFilter::all().class("send");
    insert_at(&mut conn.as_conn(), &finished("mail", "send", 3), now - DAY);
    fold_all(&mut conn.as_conn());
    assert_eq!(history::typical_run(&mut conn, &send).unwrap(), None);
    insert_at(
        &mut conn.as_conn(),
        &finished("mail", "drop", 3),
        now - WEEK - HOUR,
    );
    fold_all(&mut conn.as_conn());
    let found = history::typical_run(&mut conn, &send).unwrap().unwrap();
    assert_eq!(found.count(), 3);
    let p50 = found.quantile(0.5).unwrap().as_millis();
    assert!((50..=100).contains(&p50), "{p50}");
    let drop = HistoryFilter::all().class("drop");
    assert_eq!(history::typical_run(&mut conn, &drop).unwrap(), None);
}

fn rates_are_those_of_the_last_minutes(db: &TestDb) {
    let mut conn = db.connect();
    let now = now(&mut conn);
    for (age, count) in [(0, 10), (2 * MINUTE, 20), (20 * MINUTE, 1_000)] {
        insert_at(
            &mut conn.as_conn(),
            &finished("mail", "send", count),
            now - age,
        );
    }
    for is_folded in [false, true] {
        if is_folded {
            fold_all(&mut conn.as_conn());
        }
        let over = std::time::Duration::from_secs(300);
        let rates = history::rates(&mut conn, over).unwrap();
        let [mail] = &rates[..] else {
            panic!("{rates:?}")
        };
        // 30 in 5 to 6 minutes.
        let rate = mail.finished_per_minute;
        assert!((4.9..=6.1).contains(&rate), "{rate}, {is_folded}");
        let wait = mail.wait_p99_seconds.unwrap();
        assert!((0.005..=0.01).contains(&wait), "{wait}");
        assert_eq!(mail.queue, "mail");
    }
}
