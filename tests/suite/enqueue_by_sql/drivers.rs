//! The vectors through drivers that know nothing of Windlass.

use crate::support::TestDb;
#[cfg(feature = "postgres")]
use crate::support::enqueue_by_sql::literal;
use crate::support::enqueue_by_sql::{by_rust, vectors};
use crate::support::enqueue_rows::{compare, rows};
use std::path::Path;
use std::process::Command;

/// Enqueues all vectors by Rust, and returns for each job whether it was accepted.
fn accepted_by_rust(db: &TestDb) -> Vec<bool> {
    let conn = &mut db.connect();
    let vectors = vectors();
    let jobs = vectors.iter().flat_map(|vector| &vector.jobs);
    jobs.map(|job| by_rust(conn, job).is_ok()).collect()
}

#[test]
fn python_enqueues_with_its_own_sqlite() {
    let (db, other) = (TestDb::sqlite(), TestDb::sqlite());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = Command::new("python3")
        .arg(here.join("drivers/enqueue_vectors.py"))
        .arg(here.join("enqueue_vectors.json"))
        .arg(other.address())
        .output()
        .expect("install python3");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let accepted: Vec<bool> = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(accepted, accepted_by_rust(&db));
    compare("Python", rows(&other), rows(&db));
}

#[cfg(feature = "postgres")]
#[test]
fn psql_enqueues() {
    use std::fmt::Write as _;
    let (db, other) = (TestDb::postgres(), TestDb::postgres());
    let mut script = String::new();
    for job in vectors().iter().flat_map(|vector| &vector.jobs) {
        let columns: Vec<&str> = job.keys().map(String::as_str).collect();
        let values: Vec<String> = job.values().map(literal).collect();
        let (columns, values) = (columns.join(", "), values.join(", "));
        writeln!(
            script,
            "INSERT INTO windlass_enqueue ({columns}) VALUES ({values});\n\\echo :ERROR"
        )
        .unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vectors.sql");
    std::fs::write(&file, script).unwrap();
    let bin = std::env::var("WINDLASS_TEST_POSTGRES_BIN").expect("run ./bin/test");
    let run = Command::new(Path::new(&bin).join("psql"))
        .args(["--no-psqlrc", "--quiet", "--file"])
        .arg(&file)
        .arg(other.address())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let accepted: Vec<bool> = said.lines().map(|line| line == "false").collect();
    assert_eq!(accepted, accepted_by_rust(&db));
    compare("psql", rows(&other), rows(&db));
}
