//! The vectors: jobs that are enqueued by Rust and by SQL, and leave the same rows.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::count;
use crate::support::enqueue_by_sql::{by_rust, by_sql, vectors};
use crate::support::enqueue_rows::{compare, rows, rows_after};

on_each_database!(every_vector_leaves_the_same_rows_by_sql_as_by_rust);

fn every_vector_leaves_the_same_rows_by_sql_as_by_rust(db: &TestDb) {
    let other = if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    };
    let (mut by_rust_on, mut by_sql_on) = (db.connect(), other.connect());
    let (mut refused, mut accepted) = (0, 0);
    for vector in vectors() {
        let known = count(
            &mut by_rust_on,
            "SELECT count(*) AS n FROM solid_queue_jobs",
        );
        for (place, job) in vector.jobs.iter().enumerate() {
            let rust = by_rust(&mut by_rust_on, job);
            let sql = by_sql(&mut by_sql_on, job);
            let named = format!("{}, job {place}", vector.name);
            match (&rust, &sql) {
                (Ok(_), Ok(())) => accepted += 1,
                (Err(_), Err(error)) => {
                    assert!(
                        error.contains("cannot enqueue") || db.is_postgres(),
                        "{named}: {error}"
                    );
                    refused += 1;
                }
                _ => panic!("{named}: by Rust {rust:?}, by SQL {sql:?}"),
            }
        }
        compare(
            &vector.name,
            rows_after(&mut by_rust_on, known),
            rows_after(&mut by_sql_on, known),
        );
    }
    compare("all vectors", rows(db), rows(&other));
    assert!(accepted > 120 && refused > 100, "{accepted} and {refused}");
}
