//! `windlass bench`: every kind runs and is printed, and nothing is left behind. How fast anything
//! is does not matter here: the machine has other work.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use crate::support::wait::until;
use rustix::process::Signal;

on_each_database!(
    drains_are_printed_beside_the_best_batch,
    jobs_that_write_are_printed,
    jobs_with_other_outcomes_are_printed,
    limits_are_printed,
    batches_are_printed,
    waits_are_printed,
    enqueues_are_printed,
    latencies_are_printed,
    scales_are_printed,
    a_table_has_every_column,
    an_unknown_kind_is_refused_with_the_names,
    an_interrupted_one_removes_what_it_made,
);

/// Returns what benchmarks have left: schemas, or directories beside the database.
fn remains(db: &TestDb) -> Vec<String> {
    if db.is_postgres() {
        return db.texts(
            "SELECT nspname::text AS t FROM pg_namespace WHERE nspname LIKE 'windlass_bench_%'",
        );
    }
    let file = db.url.strip_prefix("sqlite://").unwrap();
    let directory = std::path::Path::new(file).parent().unwrap();
    let files = std::fs::read_dir(directory).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains("windlass_bench_"))
        .collect()
}

/// A database in which no other test creates schemas.
fn lone(db: &TestDb) -> TestDb {
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        return TestDb::postgres();
    }
    assert!(!db.is_postgres());
    TestDb::sqlite()
}

/// Sizes so small that only the way is tested.
const TINY: &str = "--rounds 1 --jobs 12 --threads 3 --blocked 20 --backlog 20 --samples 2 --idle 50ms \
     --batched 30 --waiting 20 --workers 1,2 --kept 10,20 --learned 2 --settle 0s --waves 0";

/// Measures these kinds, and returns the rows of the results.
fn measured(db: &TestDb, kinds: &str) -> Vec<serde_json::Value> {
    let mut arguments = vec!["bench", "--json", "--only", kinds];
    arguments.extend(TINY.split(' '));
    let said = windlass(&db.url, &arguments).json();
    assert_eq!(said["rounds"], 1);
    said["rows"].as_array().unwrap().clone()
}

/// Measures kinds, and finds each in the results with a number, and beside a ceiling unless it has
/// none.
fn each_is_printed(db: &TestDb, kinds: &str) {
    let db = &lone(db);
    let rows = measured(db, kinds);
    for kind in kinds.split(',') {
        let of_kind: Vec<_> = rows.iter().filter(|row| row["kind"] == kind).collect();
        assert!(!of_kind.is_empty(), "no `{kind}` in {rows:#?}");
        for row in &of_kind {
            let number = |key: &str| row[key].as_f64().unwrap();
            assert!(number("windlass_min") <= number("windlass"), "{row:#}");
            assert!(number("windlass") <= number("windlass_max"), "{row:#}");
            if row["unit"].as_str().unwrap().ends_with("/s") {
                assert!(number("windlass") > 0.0, "{row:#}");
                assert!(number("ceiling") > 0.0, "{row:#}");
                assert!(number("ratio") > 0.0, "{row:#}");
            }
        }
        let has_ceiling = of_kind.iter().any(|row| row["of"].is_string());
        assert_eq!(has_ceiling, kind != "idle", "{of_kind:#?}");
    }
    assert_eq!(remains(db), [""; 0]);
    let own = db.count("SELECT count(*) AS n FROM solid_queue_jobs");
    assert_eq!(own, 0, "it works on tables of its own");
}

fn drains_are_printed_beside_the_best_batch(db: &TestDb) {
    let rows = measured(&lone(db), "noop");
    for figure in [
        "kept, 1 threads",
        "kept, 3 threads",
        "deleted, 1 threads",
        "deleted, 3 threads",
    ] {
        let found = rows.iter().find(|row| row["figure"] == figure);
        let row = found.unwrap_or_else(|| panic!("no `{figure}` in {rows:#?}"));
        let of = row["of"].as_str().unwrap();
        let batch = of.strip_prefix("plain SQL, batches of ");
        assert!(["1", "10", "100", "1000"].contains(&batch.unwrap()), "{of}");
        for cost in ["statements", "commits", "log written"] {
            let name = format!("{figure}: {cost}");
            let row = rows.iter().find(|row| row["figure"] == name.as_str());
            assert!(row.unwrap()["windlass"].as_f64().unwrap() > 0.0, "{name}");
        }
    }
}

fn jobs_that_write_are_printed(db: &TestDb) {
    each_is_printed(db, "insert,step,finish-in");
}

fn jobs_with_other_outcomes_are_printed(db: &TestDb) {
    each_is_printed(db, "retry,fail,snooze,discard,result,at-most-once");
}

fn limits_are_printed(db: &TestDb) {
    each_is_printed(db, "limit-100x5,limit-1,limit-1-among,limit-enqueue");
}

fn batches_are_printed(db: &TestDb) {
    each_is_printed(db, "batches");
}

fn waits_are_printed(db: &TestDb) {
    each_is_printed(db, "waits");
}

fn enqueues_are_printed(db: &TestDb) {
    each_is_printed(db, "enqueue,unique,scheduled,recurring");
}

fn latencies_are_printed(db: &TestDb) {
    each_is_printed(db, "sleep,pickup,urgent,backlog,idle");
}

fn scales_are_printed(db: &TestDb) {
    each_is_printed(db, "scale");
}

fn a_table_has_every_column(db: &TestDb) {
    let mut arguments = vec!["bench", "--only", "at-most-once,fail"];
    arguments.extend(TINY.split(' '));
    let said = windlass(&lone(db).url, &arguments);
    assert!(said.is_done(), "{said:?}");
    let text = &said.out;
    for word in ["KIND", "WINDLASS", "CEILING", "UNIT", "RATIO", "SPREAD"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(text.contains("no-op drain"), "{text}");
    assert!(text.contains("plain SQL, batches of 1"), "{text}");
}

fn an_unknown_kind_is_refused_with_the_names(db: &TestDb) {
    let said = windlass(&db.url, &["bench", "--only", "noop,nap"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("limit-100x5"), "{said:?}");
}

fn an_interrupted_one_removes_what_it_made(db: &TestDb) {
    let db = &lone(db);
    let arguments = ["bench", "--only", "idle", "--idle", "60s"];
    let bench = Windlass::new(&arguments).env("DATABASE_URL", &db.url);
    let bench = bench.start();
    until("it has begun", || !remains(db).is_empty());
    bench.signal(Signal::TERM);
    let said = bench.said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("the benchmark"), "{said:?}");
    assert_eq!(remains(db), [""; 0]);
}
