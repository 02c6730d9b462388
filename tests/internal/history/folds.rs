//! A fold moves what it folds, once.

use super::{finished, fold_all, number, numbered, rows, sum_of, total};
use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::model::history::cell::{FleetGauge, GaugeSample, QueueGauge};
use crate::db::model::history::contribution::{Contribution, MOST_SERIES};
use crate::db::table::history::deltas::{self, NumberedDelta};
use crate::db::table::history::series;
use crate::db::transition::fold::{self, CHUNK, FoldWhen, Folded};
use crate::history::{self, HistoryFilter, TimeRange};
use diesel::connection::{Connection as _, InstrumentationEvent};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

on_each_database!(
    what_is_folded_is_moved,
    a_second_class_makes_a_series_of_the_queue,
    a_death_at_any_statement_changes_nothing,
    two_fold_at_once,
    an_insert_without_an_answer_counts_once,
    the_row_of_the_newest_contribution_stays,
    a_fold_takes_a_batch,
    the_series_are_bounded,
    a_fold_is_due_once_a_minute,
    samples_are_recorded,
    a_gate_takes_the_place_of_an_idle_one,
);

fn what_is_folded_is_moved(db: &TestDb) {
    let mut conn = db.connect();
    let counts = [
        ("mail", "send", 3),
        ("mail", "drop", 5),
        ("slow", "send", 7),
    ];
    for (queue, class, count) in counts {
        deltas::insert_with(&mut conn.as_conn(), &finished(queue, class, count)).unwrap();
    }
    let look = |conn: &mut crate::db::DbConnection| {
        let all = HistoryFilter::all();
        let sums = [
            all.clone(),
            all.clone().queue("mail"),
            all.clone().class("send"),
            all.clone().queue("mail").class("drop"),
            all.clone().queue("none"),
        ]
        .map(|filter| sum_of(conn, &filter, TimeRange::Hour));
        let by_queue = history::by_queue(conn, TimeRange::Day).unwrap();
        let by_class = history::by_class(conn, None, TimeRange::Week).unwrap();
        let in_mail = history::by_class(conn, Some("mail"), TimeRange::Week).unwrap();
        (
            history::totals(conn).unwrap(),
            sums,
            by_queue,
            by_class,
            in_mail,
        )
    };
    let before = look(&mut conn);
    let finished = before.1.each_ref().map(|tally| tally.finished);
    assert_eq!(finished, [15, 8, 10, 5, 0]);
    assert_eq!(before.1[0].wait.count(), 15);
    let names: Vec<(&str, u64)> = before
        .2
        .iter()
        .map(|one| (&*one.queue, one.tally.finished))
        .collect();
    assert_eq!(names, [("mail", 8), ("slow", 7)]);
    let names: Vec<(&str, u64)> = before
        .3
        .iter()
        .map(|one| (&*one.class, one.tally.finished))
        .collect();
    assert_eq!(names, [("drop", 5), ("send", 10)]);
    let names: Vec<(&str, u64)> = before
        .4
        .iter()
        .map(|one| (&*one.class, one.tally.finished))
        .collect();
    assert_eq!(names, [("drop", 5), ("send", 3)]);
    fold_all(&mut conn.as_conn());
    assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 0);
    assert_eq!(look(&mut conn), before);
    fold_all(&mut conn.as_conn());
    assert_eq!(look(&mut conn), before);
}

fn a_second_class_makes_a_series_of_the_queue(db: &TestDb) {
    let mut conn = db.connect();
    let series_of_mail =
        "SELECT count(*) AS n FROM windlass_stats_series WHERE queue_name = 'mail'";
    let mut sum = 0;
    let check = |conn: &mut crate::db::DbConnection, sum: u64| {
        let mail = HistoryFilter::all().queue("mail");
        for range in [TimeRange::Hour, TimeRange::Day, TimeRange::Week] {
            assert_eq!(sum_of(conn, &mail, range).finished, sum);
            let queues = history::by_queue(conn, range).unwrap();
            assert_eq!((queues.len(), queues[0].tally.finished), (1, sum));
        }
    };
    // The third comes in one fold with more of the first.
    for (class, count, series) in [("a", 1, 1), ("a", 10, 1), ("b", 100, 3), ("c", 1_000, 4)] {
        for class in ["a", class] {
            deltas::insert_with(&mut conn.as_conn(), &finished("mail", class, count)).unwrap();
            sum += count;
        }
        check(&mut conn, sum);
        fold_all(&mut conn.as_conn());
        check(&mut conn, sum);
        assert_eq!(number(&mut conn, series_of_mail), series, "{class}");
        assert_eq!(total(&mut conn).finished, sum);
    }
    let a = HistoryFilter::all().queue("mail").class("a");
    assert_eq!(
        sum_of(&mut conn, &a, TimeRange::Hour).finished,
        2 + 20 + 100 + 1_000
    );
}

/// Makes a connection panic when its n-th statement is sent.
fn die_at(conn: &mut Conn<'_>, statement: i64) -> Arc<AtomicI64> {
    let left = Arc::new(AtomicI64::new(statement));
    let counter = Arc::clone(&left);
    let die = move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event
            && counter.fetch_sub(1, Ordering::SeqCst) == 0
        {
            std::panic::panic_any("dies here");
        }
    };
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => conn.set_instrumentation(die),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(conn) => conn.set_instrumentation(die),
    }
    left
}

fn a_death_at_any_statement_changes_nothing(db: &TestDb) {
    let mut conn = db.connect();
    for seq in 1..=3 {
        let delta = numbered("worker", seq, &finished("mail", "send", 10));
        deltas::insert_delta(&mut conn.as_conn(), &delta).unwrap();
    }
    deltas::insert_with(&mut conn.as_conn(), &finished("slow", "send", 10)).unwrap();
    let before = history::totals(&mut conn).unwrap();
    let mut survived = false;
    for statement in 0.. {
        let mut mortal = db.connect();
        let left = die_at(&mut mortal.as_conn(), statement);
        let folded = catch_unwind(AssertUnwindSafe(|| {
            fold::fold(&mut mortal.as_conn(), FoldWhen::Now, None)
        }));
        // As the end of its process would, this ends its transaction.
        drop(mortal);
        assert_eq!(history::totals(&mut conn).unwrap(), before, "{statement}");
        let sum = sum_of(&mut conn, &HistoryFilter::all(), TimeRange::Hour);
        assert_eq!(sum.finished, 40, "{statement}");
        if let Ok(folded) = folded {
            assert!(matches!(folded, Ok(Folded::Done { count: 4, .. })));
            assert!(left.load(Ordering::SeqCst) >= 0);
            assert!(statement > 8, "only {statement} statements");
            survived = true;
            break;
        }
        assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 4, "{statement}");
        assert_eq!(rows(&mut conn, "windlass_stats"), 0, "{statement}");
    }
    assert!(survived);
}

fn two_fold_at_once(db: &TestDb) {
    let mut conn = db.connect();
    fold_all(&mut conn.as_conn());
    // One that is in the middle of its transaction is not waited for.
    if db.is_postgres() {
        let mut other = db.connect();
        execute(&mut conn.as_conn(), "BEGIN");
        series::lock(&mut conn.as_conn()).unwrap().unwrap();
        let folded = fold::fold(&mut other.as_conn(), FoldWhen::Now, None).unwrap();
        assert_eq!(folded, Folded::NotDue);
        execute(&mut conn.as_conn(), "COMMIT");
    }
    let inserted = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let inserted = &inserted;
            scope.spawn(move || {
                let mut conn = db.connect();
                for seq in 0..60 {
                    let class = format!("c{}", seq % 3);
                    let delta = numbered(&format!("w{writer}"), seq, &finished("mail", &class, 1));
                    deltas::insert_delta(&mut conn.as_conn(), &delta).unwrap();
                    inserted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..3 {
            let inserted = &inserted;
            scope.spawn(move || {
                let mut conn = db.connect();
                let mut last = 0;
                while last < 120 {
                    let least = inserted.load(Ordering::SeqCst).unsigned_abs();
                    fold_all(&mut conn.as_conn());
                    let now = total(&mut conn).finished;
                    assert!(now >= last && now >= least, "{last}, {least}, {now}");
                    last = now;
                }
            });
        }
    });
    fold_all(&mut conn.as_conn());
    assert_eq!(total(&mut conn).finished, 120);
    let sum = sum_of(&mut conn, &HistoryFilter::all(), TimeRange::Day);
    assert_eq!(sum.finished, 120);
}

fn an_insert_without_an_answer_counts_once(db: &TestDb) {
    let mut conn = db.connect();
    let first = numbered("worker", 1, &finished("mail", "send", 10));
    let insert =
        |conn: &mut Conn<'_>, delta: &NumberedDelta| deltas::insert_delta(conn, delta).unwrap();
    insert(&mut conn.as_conn(), &first);
    insert(&mut conn.as_conn(), &first);
    assert_eq!(total(&mut conn).finished, 10);
    fold_all(&mut conn.as_conn());
    insert(&mut conn.as_conn(), &first);
    assert_eq!(
        total(&mut conn).finished,
        10,
        "folded before the repetition"
    );
    fold_all(&mut conn.as_conn());
    insert(&mut conn.as_conn(), &first);
    let second = numbered("worker", 2, &finished("mail", "send", 1));
    insert(&mut conn.as_conn(), &second);
    insert(
        &mut conn.as_conn(),
        &numbered("other", 1, &finished("mail", "send", 100)),
    );
    fold_all(&mut conn.as_conn());
    insert(&mut conn.as_conn(), &second);
    assert_eq!(total(&mut conn).finished, 111);
}

fn the_row_of_the_newest_contribution_stays(db: &TestDb) {
    let mut conn = db.connect();
    for seq in 1..=5 {
        let delta = numbered("worker", seq, &finished("mail", "send", 1));
        deltas::insert_delta(&mut conn.as_conn(), &delta).unwrap();
        if seq % 2 == 0 {
            fold_all(&mut conn.as_conn());
        }
    }
    fold_all(&mut conn.as_conn());
    assert_eq!(rows(&mut conn, "windlass_stats_deltas"), 1);
    let newest = "SELECT seq AS n FROM windlass_stats_deltas WHERE data IS NULL";
    assert_eq!(number(&mut conn, newest), 5);
}

fn a_fold_takes_a_batch(db: &TestDb) {
    let mut conn = db.connect();
    let more = 7;
    conn.as_conn()
        .transaction(|conn| {
            (0..CHUNK + more)
                .try_for_each(|_| deltas::insert_with(conn, &finished("mail", "send", 1)))
        })
        .unwrap();
    let sum = CHUNK as u64 + more as u64;
    assert_eq!(total(&mut conn).finished, sum);
    let folded = fold::fold(&mut conn.as_conn(), FoldWhen::OnceAMinute, None).unwrap();
    let is_full = true;
    assert_eq!(
        folded,
        Folded::Done {
            count: CHUNK,
            is_full
        }
    );
    assert_eq!(total(&mut conn).finished, sum);
    assert_eq!(history::fold(&mut conn).unwrap(), more as u64);
    assert_eq!(total(&mut conn).finished, sum);
}

fn the_series_are_bounded(db: &TestDb) {
    let mut conn = db.connect();
    let mut sum = 0;
    for part in 0..4 {
        let mut contribution = Contribution::default();
        for number in 0..400 {
            let queue = format!("q{}", number % 20);
            contribution.merge(&finished(&queue, &format!("c{part}-{number}"), 1));
            contribution.merge(&finished(&format!("lone{part}-{number}"), "c", 1));
            sum += 2;
        }
        deltas::insert_with(&mut conn.as_conn(), &contribution).unwrap();
    }
    // Before and after, `other` has the same.
    let before = history::totals(&mut conn).unwrap();
    assert!(before.series.len() <= MOST_SERIES);
    fold_all(&mut conn.as_conn());
    assert_eq!(history::totals(&mut conn).unwrap(), before);
    assert_eq!(total(&mut conn).finished, sum);
    let pairs = "SELECT count(*) AS n FROM windlass_stats_series WHERE class_name <> ''";
    assert!(number(&mut conn, pairs) <= MOST_SERIES as i64);
    let filter = HistoryFilter::all().queue("other").class("other");
    assert!(sum_of(&mut conn, &filter, TimeRange::Hour).finished > 0);
    let filter = HistoryFilter::all().queue("q1").class("other");
    assert!(sum_of(&mut conn, &filter, TimeRange::Hour).finished > 0);
}

fn a_fold_is_due_once_a_minute(db: &TestDb) {
    let mut conn = db.connect();
    let overdue = FoldWhen::Overdue(Duration::from_secs(180));
    assert!(fold::is_due(&mut conn.as_conn(), overdue).unwrap());
    let folded = fold::fold(&mut conn.as_conn(), overdue, None).unwrap();
    assert!(matches!(folded, Folded::Done { .. }));
    assert!(!fold::is_due(&mut conn.as_conn(), overdue).unwrap());
    let folded = fold::fold(&mut conn.as_conn(), overdue, None).unwrap();
    assert_eq!(folded, Folded::NotDue);
    let ago = |conn: &mut Conn<'_>, seconds: i64| {
        let micros = Duration::from_secs(seconds.unsigned_abs());
        execute(
            conn,
            "UPDATE windlass_stats_series SET folded_at = folded_at",
        );
        crate::db::test_support::travel(conn, micros).unwrap();
    };
    ago(&mut conn.as_conn(), 60);
    let due = FoldWhen::OnceAMinute;
    assert!(fold::is_due(&mut conn.as_conn(), due).unwrap());
    assert!(!fold::is_due(&mut conn.as_conn(), overdue).unwrap());
    ago(&mut conn.as_conn(), 121);
    assert!(fold::is_due(&mut conn.as_conn(), overdue).unwrap());
    // The clock was set back by a day.
    let text = "UPDATE windlass_stats_series SET folded_at = '2099-01-01 00:00:00.000000'";
    execute(&mut conn.as_conn(), text);
    assert!(fold::is_due(&mut conn.as_conn(), due).unwrap());
    assert!(fold::is_due(&mut conn.as_conn(), overdue).unwrap());
}

fn samples_are_recorded(db: &TestDb) {
    let mut conn = db.connect();
    let sample = |ready, busy| GaugeSample {
        queues: vec![(
            "mail".to_owned(),
            QueueGauge {
                ready,
                oldest_ready: Duration::from_secs(u64::from(ready)),
            },
        )],
        fleet: FleetGauge {
            samples: 1,
            workers: 2,
            threads: 10,
            busy,
        },
        ..GaugeSample::default()
    };
    let record = |conn: &mut Conn<'_>, sample: &GaugeSample| {
        fold::fold(conn, FoldWhen::Now, Some(sample)).unwrap();
    };
    deltas::insert_with(&mut conn.as_conn(), &finished("slow", "send", 1)).unwrap();
    record(&mut conn.as_conn(), &sample(30, 4));
    record(&mut conn.as_conn(), &sample(20, 8));
    let last = |conn: &mut crate::db::DbConnection, filter: &HistoryFilter| {
        let buckets = history::series(conn, filter, TimeRange::Day).unwrap();
        let mut sampled = buckets.into_iter().rev();
        sampled.find(|bucket| bucket.queue.is_some() || bucket.fleet.is_some())
    };
    let all = last(&mut conn, &HistoryFilter::all()).unwrap();
    let fleet = all.fleet.unwrap();
    assert_eq!(
        (fleet.workers(), fleet.threads(), fleet.busy()),
        (2.0, 10.0, 6.0)
    );
    assert_eq!(all.queue, None);
    let mail = last(&mut conn, &HistoryFilter::all().queue("mail")).unwrap();
    let gauge = mail.queue.unwrap();
    assert_eq!(
        (gauge.ready, gauge.oldest_ready),
        (30, Duration::from_secs(30))
    );
    assert_eq!(mail.fleet, None);
    let slow = last(&mut conn, &HistoryFilter::all().queue("slow")).unwrap();
    assert_eq!(
        slow.queue,
        Some(QueueGauge::default()),
        "it had no ready jobs"
    );
    assert_eq!(last(&mut conn, &HistoryFilter::all().class("send")), None);
    assert_eq!(total(&mut conn).finished, 1);
}

fn a_gate_takes_the_place_of_an_idle_one(db: &TestDb) {
    let mut conn = db.connect();
    let record = |conn: &mut Conn<'_>, gates: std::ops::Range<u64>| {
        let gates = gates.map(|number| (format!("rate/{number}"), Duration::from_secs(number)));
        let sample = GaugeSample {
            gates: gates.collect(),
            ..GaugeSample::default()
        };
        fold::fold(conn, FoldWhen::Now, Some(&sample)).unwrap();
    };
    let known = |conn: &mut Conn<'_>| series::ids(conn).unwrap().gates;
    // Those with the longest waits have a series.
    record(&mut conn.as_conn(), 0..60);
    let gates = known(&mut conn.as_conn());
    assert_eq!(gates.len(), 51);
    assert!(gates.contains_key("other") && gates.contains_key("rate/10"));
    record(&mut conn.as_conn(), 0..9);
    assert_eq!(known(&mut conn.as_conn()), gates, "all have waited lately");
    let idle = "UPDATE windlass_stats_series SET folded_at = '2020-01-01 00:00:00.000000' \
         WHERE class_name LIKE 'rate/1_'";
    execute(&mut conn.as_conn(), idle);
    let of_idle = format!(
        "SELECT count(*) AS n FROM windlass_stats WHERE series_id = {}",
        gates["rate/19"]
    );
    assert_eq!(number(&mut conn, &of_idle), 4);
    record(&mut conn.as_conn(), 0..9);
    let now = known(&mut conn.as_conn());
    assert_eq!(now.len(), 51);
    let new: Vec<&String> = now.keys().filter(|key| !gates.contains_key(*key)).collect();
    assert_eq!(new, ["rate/4", "rate/5", "rate/6", "rate/7", "rate/8"]);
    assert_eq!(number(&mut conn, &of_idle), 0);
    // No other read of the history has them.
    for filter in [HistoryFilter::all(), HistoryFilter::all().class("rate/8")] {
        let sum = sum_of(&mut conn, &filter, TimeRange::Hour);
        assert!(sum.is_empty() && sum.wait.is_empty(), "{sum:?}");
    }
    assert!(
        history::by_class(&mut conn, None, TimeRange::Hour)
            .unwrap()
            .is_empty()
    );
    assert!(history::totals(&mut conn).unwrap().series.is_empty());
}
