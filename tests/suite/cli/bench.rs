//! `windlass bench`: every kind runs and is printed, and nothing is left behind. How fast anything
//! is does not matter here: the machine has other work. The other kinds of the laboratory have their tests in
//! `tests/internal/laboratory.rs`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Said, Windlass, windlass};
use crate::support::wait::until;
use rustix::process::Signal;
use serde_json::Value;

on_each_database!(
    each_kind_is_printed,
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

/// Measures a little, beside a job of the application, which is not touched: not even one of the same class.
fn measured(db: &TestDb, options: &str) -> Said {
    let mine = ["enqueue", "windlass_bench_no_op", "{\"number\":1}"];
    assert!(windlass(&db.url, &mine).is_done());
    let tiny = "bench --rounds 2 --jobs 1200 --threads 3 --samples 2";
    let arguments: Vec<&str> = tiny.split(' ').chain(options.split(' ')).collect();
    let said = windlass(&db.url, &arguments);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(remains(db), [""; 0]);
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (1, 1));
    said
}

fn each_kind_is_printed(db: &TestDb) {
    let said = measured(&lone(db), "--json").json();
    assert_eq!(said["rounds"], 2);
    let database = if db.is_postgres() {
        "Postgres "
    } else {
        "SQLite "
    };
    assert!(said["database"].as_str().unwrap().starts_with(database));
    let rows = said["rows"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let names = rows
        .iter()
        .map(|row| ["kind", "figure", "unit"].map(|key| text(row, key)));
    let names: Vec<String> = names.map(|names| names.join("|")).collect();
    assert_eq!(
        names,
        [
            "enqueue||jobs/s",
            "enqueue-all||jobs/s",
            "drain||jobs/s",
            "pickup|p50|ms",
            "pickup|p99|ms"
        ]
    );
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("least") <= number("median"), "{row:#}");
        assert!(number("median") <= number("most"), "{row:#}");
        assert!(number("least") > 0.0 || row["unit"] == "ms", "{row:#}");
    }
}

fn a_table_has_every_column(db: &TestDb) {
    let text = measured(&lone(db), "--only pickup,enqueue").out;
    for word in [
        "KIND", "FIGURE", "MEDIAN", "LEAST", "MOST", "UNIT", "2 rounds",
    ] {
        assert!(text.contains(word), "{text}");
    }
    let kinds = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let kinds: Vec<&str> = kinds.skip_while(|word| *word != "KIND").skip(1).collect();
    assert_eq!(kinds, ["enqueue", "pickup", "pickup"], "{text}");
}

fn an_unknown_kind_is_refused_with_the_names(db: &TestDb) {
    let said = windlass(&db.url, &["bench", "--only", "drain,nap"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("enqueue-all"), "{said:?}");
}

fn an_interrupted_one_removes_what_it_made(db: &TestDb) {
    let db = &lone(db);
    for options in ["enqueue --jobs 1000000000", "pickup --samples 1000000000"] {
        let arguments: Vec<&str> = "bench --only"
            .split(' ')
            .chain(options.split(' '))
            .collect();
        let bench = Windlass::new(&arguments).env("DATABASE_URL", &db.url);
        let bench = bench.start();
        until("it has begun", || !remains(db).is_empty());
        bench.signal(Signal::TERM);
        let said = bench.said();
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("the benchmark"), "{said:?}");
        assert_eq!(remains(db), [""; 0]);
    }
}
