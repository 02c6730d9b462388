//! The vectors: jobs that are enqueued by Rust and by SQL, and leave the same rows.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::count;
use crate::support::enqueue_by_sql::{SHARE_QUEUES, by_rust, by_sql, run_on, vectors};
use crate::support::enqueue_rows::{compare, rows, rows_after};
use std::collections::BTreeMap;

on_each_database!(
    every_vector_leaves_the_same_rows_by_sql_as_by_rust,
    so_it_does_where_its_class_is_known,
    so_it_does_where_its_class_runs_at_most_once,
    so_it_does_where_its_class_has_rates,
    so_it_does_where_there_are_batches,
    so_it_does_where_tenants_take_turns,
    so_it_does_where_they_take_turns_in_the_queue_of_the_class,
);

fn every_vector_leaves_the_same_rows_by_sql_as_by_rust(db: &TestDb) {
    let (accepted, refused) = compare_all(db, &[]);
    assert!(accepted > 120 && refused > 100, "{accepted} and {refused}");
}

/// Stores the class of most vectors.
fn class(columns: &str, values: &str) -> String {
    format!(
        "INSERT INTO windlass_classes (class_name, queue_name, redact, seen_at, {columns}) \
         VALUES ('import', 'nightly', '[]', '2026-11-29 00:00:00.000000', {values})"
    )
}

fn so_it_does_where_its_class_is_known(db: &TestDb) {
    let known = class(
        "priority, max_attempts, max_crashes, max_arguments, policy",
        "7, 5, 1, 70000, \
         '{\"delivery\":\"after_known_outcome\",\"backoff\":{\"fixed\":1500},\"keep_finished\":true,\"timeout\":9000,\"expiry\":{\"in\":3000}, \
         \"extras\":{\"tags\":[\"of the class\",\"night\"],\"meta\":{\"request\":\"of the class\",\"more\":[1]}}}'",
    );
    let (accepted, refused) = compare_all(db, &[&known]);
    assert!(accepted > 120 && refused > 100, "{accepted} and {refused}");
    let rows = rows(db);
    let filled = |part: &str| rows.iter().filter(|row| row.contains(part)).count();
    assert!(
        filled("nightly|import") > 50 && filled("|7|") > 50 && filled("of the class") > 50,
        "{rows:#?}"
    );
}

fn so_it_does_where_its_class_runs_at_most_once(db: &TestDb) {
    let known = class("at_most_once, max_arguments", "TRUE, 30");
    let (accepted, refused) = compare_all(db, &[&known]);
    // Some have more attempts than one, or larger arguments.
    assert!(accepted > 100 && refused > 110, "{accepted} and {refused}");
}

fn so_it_does_where_its_class_has_rates(db: &TestDb) {
    let known = class(
        "policy, rates",
        "'{\"timeout\":9000}', '[{\"key\":\"of the class\",\"number\":9,\"period\":1000000,\"burst\":4,\"cost\":2}, \
         {\"key\":\"import\",\"number\":9,\"period\":60000000,\"burst\":1}]'",
    );
    let known = known.replace(", {", ",{");
    let (accepted, refused) = compare_all(db, &[&known]);
    assert!(accepted > 140 && refused > 150, "{accepted} and {refused}");
    let of_class = "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE gate LIKE 'of the class_import%'";
    assert!(db.count(of_class) > 50);
    // Two say that they have none.
    let free = "SELECT count(*) AS n FROM solid_queue_ready_executions WHERE class_name = 'import'";
    assert_eq!(db.count(free), 2);
}

fn so_it_does_where_there_are_batches(db: &TestDb) {
    let (accepted, refused) = compare_all(db, &[&batches()]);
    assert!(accepted > 150 && refused > 130, "{accepted} and {refused}");
    assert!(db.rows_of("solid_queue_batch_executions") >= 5);
    assert!(db.rows_of("windlass_edges") >= 4);
}

/// Adds batches: the first is open, the second is over, the third is of Ruby.
fn batches() -> String {
    let batch = |name: &str, finished: &str| {
        format!(
            "('{name}', {finished}, '2026-11-29 00:00:00.000000', '2026-11-29 00:00:00.000000', '2026-11-29 00:00:00.000000')"
        )
    };
    let batches = [
        batch("windlass-1", "NULL"),
        batch("windlass-2", "'2026-11-30 00:00:00.000000'"),
        batch("ruby", "NULL"),
    ];
    format!(
        "INSERT INTO solid_queue_batches (active_job_batch_id, finished_at, enqueued_at, created_at, updated_at) VALUES {}",
        batches.join(", ")
    )
}

fn so_it_does_where_tenants_take_turns(db: &TestDb) {
    compare_all(db, &[SHARE_QUEUES, &batches()]);
    let count = |table: &str, line: &str| {
        db.count(&format!("SELECT count(*) AS n FROM {table} WHERE {line}"))
    };
    let blocked = "solid_queue_blocked_executions";
    let mut lines = BTreeMap::new();
    for line in [
        "\u{1d}default\u{1c}acme",
        "\u{1d}slow\u{1c}acme",
        "\u{1d}default\u{1c}acme\u{1f}l\u{1f}m",
        "\u{1d}default\u{1c}acme\u{1f}l\u{1f}m\u{1e}import/t/3",
        "\u{1d}default\u{1c}acme\u{1e}import/t/2",
        "\u{1e}import/t/4",
        "\u{1e}import/t/5",
    ] {
        lines.insert(line, count(blocked, &format!("gate = '{line}'")));
    }
    assert!(lines.values().all(|jobs| *jobs > 0), "{lines:?}");
    // No job of a tenant is ready, except in a queue that is shared no more.
    let ready = "solid_queue_ready_executions e JOIN solid_queue_jobs j ON j.id = e.job_id";
    assert_eq!(
        count(ready, "j.tenant IS NOT NULL AND j.queue_name <> 'mail'"),
        0
    );
    assert_eq!(
        count(ready, "j.tenant IS NOT NULL AND j.queue_name = 'mail'"),
        1
    );
}

fn so_it_does_where_they_take_turns_in_the_queue_of_the_class(db: &TestDb) {
    let known = class(
        "policy, rates",
        "'{\"timeout\":9000}', '[{\"key\":\"c\",\"number\":9,\"period\":1000000,\"burst\":4}]'",
    );
    compare_all(db, &[SHARE_QUEUES, &known]);
    let lines = "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE gate = '\u{1d}nightly\u{1c}acme\u{1f}c'";
    assert!(db.count(lines) > 0);
}

/// Enqueues each job by Rust and by SQL, compares the rows, and returns how many were accepted, and refused.
fn compare_all(db: &TestDb, prepare: &[&str]) -> (usize, usize) {
    let other = if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    };
    let (mut by_rust_on, mut by_sql_on) = (db.connect(), other.connect());
    for text in prepare {
        run_on(&mut by_rust_on, text).unwrap();
        run_on(&mut by_sql_on, text).unwrap();
    }
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
    (accepted, refused)
}
