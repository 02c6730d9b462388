//! The laboratory of `benches/laboratory`: every kind runs and is printed, and nothing is left behind. How fast anything
//! is does not matter here: the machine has other work.

use super::db::{TestDb, texts};
use crate::bench::place::Places;
use crate::db::conn::connection::AsConn;
use crate::laboratory::command::{Line, play};
use crate::laboratory::results::Results;
use crate::terminal::Report;
use clap::Parser;
use std::path::Path;

/// Each on both databases. Foreign keys of Rails make no difference: the tables are those of the laboratory.
macro_rules! on_both_databases {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn sqlite() {
                super::$name(&super::TestDb::sqlite());
            }

            #[test]
            fn postgres() {
                super::$name(&super::TestDb::postgres());
            }
        }
    )+};
}

on_both_databases!(
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
);

/// Sizes so small that only the way is tested.
const TINY: &str = "--rounds 1 --jobs 12 --threads 3 --blocked 20 --backlog 20 --samples 2 --idle 50ms \
     --batched 30 --waiting 20 --workers 1,2 --kept 10,20 --learned 2 --settle 0s --waves 0";

/// The other processes of a measurement are this one: the laboratory starts its own program, which is that of the tests.
#[test]
fn plays_a_part_in_a_measurement() {
    play().transpose().unwrap();
}

/// Returns the remains of a measurement: schemas, or directories beside the database.
fn remains(db: &TestDb) -> Vec<String> {
    if db.is_postgres() {
        let left =
            "SELECT nspname::text AS t FROM pg_namespace WHERE nspname LIKE 'windlass_bench_%'";
        return texts(&mut db.connect().as_conn(), left);
    }
    let directory = Path::new(db.url.strip_prefix("sqlite://").unwrap()).parent();
    let files = std::fs::read_dir(directory.unwrap()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains("windlass_bench_"))
        .collect()
}

fn measured(db: &TestDb, kinds: &str) -> Results {
    let line = [
        "windlass-laboratory",
        "--database",
        &db.url,
        "--only",
        kinds,
    ];
    let line = Line::try_parse_from(line.into_iter().chain(TINY.split(' '))).unwrap();
    let results = line.settings.measure(&db.url, Places::of(&db.url)).unwrap();
    assert_eq!(remains(db), [""; 0]);
    let own = "SELECT CAST(count(*) AS text) AS t FROM solid_queue_jobs";
    let own = texts(&mut db.connect().as_conn(), own);
    assert_eq!(own, ["0"], "it works on tables of its own");
    results
}

/// Measures these kinds, and returns the rows of the results.
fn rows(db: &TestDb, kinds: &str) -> Vec<serde_json::Value> {
    let results = serde_json::to_value(measured(db, kinds)).unwrap();
    assert_eq!(results["rounds"], 1);
    results["rows"].as_array().unwrap().clone()
}

/// Measures kinds, and finds each in the results with a number, and beside a ceiling unless it has none.
fn each_is_printed(db: &TestDb, kinds: &str) {
    let rows = rows(db, kinds);
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
}

fn drains_are_printed_beside_the_best_batch(db: &TestDb) {
    let rows = rows(db, "noop");
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
    let text = measured(db, "at-most-once,fail").text(None);
    for word in ["KIND", "WINDLASS", "CEILING", "UNIT", "RATIO", "SPREAD"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(text.contains("no-op drain"), "{text}");
    assert!(text.contains("plain SQL, batches of 1"), "{text}");
}

#[test]
fn an_unknown_kind_is_refused_with_the_names() {
    let line = [
        "windlass-laboratory",
        "--database",
        "a",
        "--only",
        "noop,nap",
    ];
    let refused = Line::try_parse_from(line).unwrap_err();
    assert!(refused.to_string().contains("limit-100x5"), "{refused}");
}
