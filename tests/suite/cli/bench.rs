//! `windlass bench`: that it measures what it says and leaves nothing behind.
//! How fast it is says nothing here: the machine has other work.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use crate::support::wait::until;
use rustix::process::Signal;

on_each_database!(
    every_figure_stands_beside_its_ceiling,
    an_interrupted_one_removes_what_it_made,
);

/// What benchmarks have left: schemas, or directories beside the database.
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

/// A database in which nobody else makes schemas.
fn lone(db: &TestDb) -> TestDb {
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        return TestDb::lone_postgres();
    }
    assert!(!db.is_postgres());
    TestDb::sqlite()
}

fn every_figure_stands_beside_its_ceiling(db: &TestDb) {
    let db = &lone(db);
    let sizes =
        "bench --json --rounds 1 --jobs 60 --singles 3 --backlog 50 --samples 3 --idle 50ms";
    let arguments: Vec<&str> = sizes.split(' ').collect();
    let said = windlass(&db.url, &arguments).json();
    let figures = said["figures"].as_array().unwrap();
    let find = |name: &str| {
        let found = figures.iter().find(|figure| figure["name"] == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {said:#}"))
    };
    let clients = if db.is_postgres() { 2 } else { 1 };
    for (name, ceiling) in [
        (
            "enqueue one at a time, 8 threads",
            "plain SQL: enqueue one at a time, 8 threads".to_owned(),
        ),
        (
            "enqueue 1000 at a time",
            "plain SQL: enqueue 1000 at a time".to_owned(),
        ),
        (
            "plain SQL with Solid Queue's indexes: enqueue 1000 at a time",
            "plain SQL: enqueue 1000 at a time".to_owned(),
        ),
        (
            "pick-up after the enqueue was answered, p99",
            "plain SQL: heard of and claimed, p99".to_owned(),
        ),
        (
            "drain, kept, 1 x 16 threads",
            format!("plain SQL: drain, kept, batches of 100, {clients} clients"),
        ),
        (
            "drain, deleted, 2 x 8 threads",
            format!("plain SQL: drain, deleted, batches of 100, {clients} clients"),
        ),
        (
            "drain, kept, 1 x 16 threads, 50 jobs waiting",
            "drain, kept, 1 x 16 threads, nothing beside".to_owned(),
        ),
    ] {
        let figure = find(name);
        assert_eq!(figure["ceiling"], ceiling.as_str(), "{figure:#}");
        let number = |key: &str| figure[key].as_f64().unwrap();
        // A job may have begun before the caller has heard the answer to its enqueue.
        let may_be_zero = name == "pick-up after the enqueue was answered, p99";
        assert!(number("ratio") > 0.0 || may_be_zero, "{figure:#}");
        assert!(number("min") <= number("median") && number("median") <= number("max"));
        assert!(find(&ceiling)["ratio"].is_null());
    }
    for name in [
        "drain, kept, 1 x 1 threads: statements",
        "drain, kept, 1 x 1 threads: commits",
        "drain, kept, 1 x 1 threads: log written",
        "pick-up after the enqueue was called, p99",
    ] {
        assert!(find(name)["median"].as_f64().unwrap() > 0.0, "{name}");
    }
    find("idle worker: processor");
    assert_eq!(said["rounds"], 1);
    assert_eq!(remains(db), [""; 0]);
    let own = db.count("SELECT count(*) AS n FROM solid_queue_jobs");
    assert_eq!(own, 0, "it works on tables of its own");
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
