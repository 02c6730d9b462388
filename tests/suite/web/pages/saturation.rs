//! The saturation of keys and shared queues over time.

use super::{LONG_AGO, page, row, serve, text};
use crate::support::TestDb;
use crate::support::process::HEARTBEAT;
use crate::support::wait::until;
use windlass::history::{self, HistoryFilter, TimeRange};
use windlass::limits::Rate;
use windlass::{Concurrency, Dispatcher, NewJob, Registry, Worker, enqueue_all};

fn samples(db: &TestDb) -> u64 {
    let all = HistoryFilter::all();
    let buckets = history::series(&mut db.connection(), &all, TimeRange::Hour).unwrap();
    let samples = buckets.iter().filter_map(|bucket| bucket.fleet);
    samples.map(|fleet| fleet.samples()).sum()
}

/// Has a worker take a sample, as it does where no supervisor runs.
fn sample(db: &TestDb) {
    let before = samples(db);
    db.execute(&format!(
        "UPDATE windlass_stats_series SET folded_at = '{LONG_AGO}' WHERE class_name = ''"
    ));
    let worker = Worker::new(&db.database, Registry::new()).heartbeat_interval(HEARTBEAT);
    let worker = worker.start().unwrap();
    until("a sample is taken", || samples(db) > before);
    drop(worker);
}

/// Has blocked jobs wait since a time.
fn wait_since(db: &TestDb, time: &str, blocked: &str) {
    db.execute(&format!(
        "UPDATE solid_queue_blocked_executions SET created_at = '{time}' WHERE {blocked}"
    ));
}

fn limited(number: usize, key: impl ToString) -> impl Iterator<Item = NewJob> {
    let limit = Concurrency::new(key).group("import").limit(1);
    std::iter::repeat_n(NewJob::of_class("import", "{}").concurrency(limit), number)
}

fn saturation_is_shown_over_time(db: &TestDb) {
    let server = serve(&db.database);
    let says = |words: &str| {
        let shown = page(&server, "/limits");
        assert!(text(&shown).contains(words), "{words}: {shown}");
    };
    says("No sample was taken in the last hour.");
    let mut conn = db.connection();
    enqueue_all(&mut conn, limited(1, "7").chain(limited(3, "8"))).unwrap();
    // A promotion may be about to let them through, or they wait for other jobs.
    wait_since(db, "2099-01-01 00:00:00.000000", "true");
    wait_since(db, LONG_AGO, "concurrency_key = 'import/7'");
    db.execute("UPDATE solid_queue_blocked_executions SET concurrency_key = ' ' WHERE concurrency_key = 'import/7'");
    sample(db);
    says("Nothing was saturated in the last hour.");
    crate::shares::seen::two_wait(db);
    let rated = NewJob::of_class("push", "null");
    let both = rated.clone().rate(Rate::per_hour(1).key("a"));
    let both = both.rate(Rate::per_second(1_000).key("b"));
    let alone = rated.rate(Rate::per_hour(1).key("<i>/x"));
    let rated = std::iter::repeat_n(both, 3).chain(std::iter::repeat_n(alone, 3));
    enqueue_all(&mut conn, rated).unwrap();
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the line waits", || db.rows_of("windlass_lines") == 3);
    drop(dispatcher);
    wait_since(db, LONG_AGO, "true");
    sample(db);
    for path in ["/limits", "/limits?range=day", "/limits?range=year"] {
        let shown = page(&server, path);
        for line in [
            "import/8 concurrency key",
            "mail shared queue",
            "a rate",
            "&#60;i&#62;/x rate",
        ] {
            let key = line.split(' ').next().unwrap();
            let row = row(&shown, &format!(">{key}<span"));
            assert!(row.starts_with(&format!("{line} 50.0 % ")), "{path}: {row}");
        }
        assert_eq!(shown.matches("class=\"spark wide\"").count(), 4, "{shown}");
    }
}

fn of_many_keys_some_are_told_apart(db: &TestDb) {
    let jobs = (0..10_000).flat_map(|number| limited(1, number));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    wait_since(db, LONG_AGO, "true");
    let mut hostile = vec![
        format!("'{}'", "a".repeat(1_000)),
        "'<i>\"&amp;'".to_owned(),
    ];
    if !db.is_postgres() {
        hostile.push("CAST(x'61ff62' AS text)".to_owned());
    }
    for (number, key) in hostile.iter().enumerate() {
        let of = format!("concurrency_key = 'import/{}'", 5_000 + number);
        wait_since(db, "2025-01-01 00:00:00.000000", &of);
        db.execute(&format!(
            "UPDATE solid_queue_blocked_executions SET concurrency_key = {key} WHERE {of}"
        ));
    }
    // So many lines of tenants hide no rate.
    let character = if db.is_postgres() { "chr" } else { "char" };
    for (gate, keys) in [
        (
            format!("{character}(29) || 'q' || {character}(28) || concurrency_key"),
            "import/%7",
        ),
        ("'a-rate'".to_owned(), "import/9998"),
    ] {
        db.execute(&format!(
            "UPDATE solid_queue_blocked_executions SET gate = {gate}, concurrency_key = '    ' WHERE concurrency_key LIKE '{keys}'"
        ));
    }
    wait_since(db, "2025-01-01 00:00:00.000000", "gate = 'a-rate'");
    sample(db);
    let series = "SELECT count(*) AS n FROM windlass_stats_series WHERE queue_name = '' AND class_name <> ''";
    assert_eq!(db.count(series), 51);
    let shown = page(&serve(&db.database), "/limits");
    let named = shown.matches("<span class=\"sub\">concurrency key</span>");
    assert_eq!(named.count(), 49, "{shown}");
    let rate = row(&shown, ">a-rate<span");
    assert!(rate.starts_with("a-rate rate 100.0 % "), "{rate}");
    let long = "a".repeat(255 - "limit/".len());
    let keys = ["&#60;i&#62;&#34;&#38;amp;", &long, "a\u{fffd}b"];
    for key in keys.iter().take(hostile.len()) {
        let row = row(&shown, &format!(">{key}<span"));
        assert!(row.contains(" concurrency key 100.0 % "), "{row}");
    }
    let rest = row(&shown, ">other<span");
    assert!(rest.contains(" 100.0 % "), "{rest}");
    assert!(!shown.contains("<i>") && shown.len() < 200_000, "{shown}");
}

crate::on_each_database!(
    saturation_is_shown_over_time,
    of_many_keys_some_are_told_apart,
);
