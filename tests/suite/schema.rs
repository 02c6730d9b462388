//! The tables of a migrated database, as a Rails app with Solid Queue expects them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::solid_queue;
use std::collections::BTreeSet;

fn every_column_of_solid_queue_is_there(db: &TestDb) {
    let real = db.columns();
    for (table, columns) in solid_queue::tables() {
        let table = format!("solid_queue_{table}");
        let find = |name: &str| {
            real.iter()
                .find(|real| real.table == table && real.name == name)
                .unwrap_or_else(|| panic!("{table}.{name} is missing"))
        };
        assert!(find("id").is_generated, "{table}.id");
        for column in columns {
            let found = find(&column.name);
            let kind = match (&*column.kind, db.is_postgres()) {
                ("string", true) => "character varying",
                ("string", false) => "varchar",
                ("datetime", true) => "timestamp(6)",
                ("datetime", false) => "datetime(6)",
                (other, _) => other,
            };
            let what = format!("{table}.{}", column.name);
            // Rails cuts a recurring task's command at 2048.
            assert_eq!(found.kind.trim_end_matches("(2048)"), kind, "{what}");
            assert_eq!(found.nullable, column.nullable, "{what}");
            // The adapter of Rails for SQLite reads numbers, and no words.
            let default = match column.default.as_deref() {
                Some("true") if !db.is_postgres() => Some("1"),
                other => other,
            };
            assert_eq!(found.default.as_deref(), default, "{what}");
        }
    }
}

fn our_own_columns_ask_nothing_of_rails(db: &TestDb) {
    let theirs: BTreeSet<(String, String)> = solid_queue::tables()
        .into_iter()
        .flat_map(|(table, columns)| {
            columns
                .into_iter()
                .map(move |column| (format!("solid_queue_{table}"), column.name))
        })
        .collect();
    let mut ours = 0;
    for column in db.columns() {
        let is_theirs = column.name == "id"
            || column.table.starts_with("windlass_")
            || theirs.contains(&(column.table.clone(), column.name.clone()));
        if !is_theirs {
            ours += 1;
            let is_optional = column.nullable || column.default.is_some();
            assert!(is_optional, "{}.{}", column.table, column.name);
        }
    }
    assert!(ours > 5, "only {ours} columns of ours were found");
}

fn every_unique_index_of_solid_queue_is_there(db: &TestDb) {
    let real = db.unique_indexes();
    for (table, columns) in solid_queue::unique_indexes() {
        let wanted = format!("solid_queue_{table}: {}", columns.join(","));
        assert!(real.contains(&wanted), "{wanted} is not among {real:?}");
    }
}

/// A job that is deleted takes along what would otherwise point nowhere, and
/// nothing of another's, also when not all that go together have something to
/// take. The hot tables, ready and claimed, are on their own.
fn a_deleted_job_takes_its_executions_along(db: &TestDb) {
    let now = "'2026-11-21 03:36:27.384057'";
    for id in [7, 8, 9_000] {
        db.execute(&format!(
            "INSERT INTO solid_queue_jobs (id, queue_name, class_name, created_at, updated_at) \
             VALUES ({id}, 'default', 'x', {now}, {now})"
        ));
    }
    let tables = [
        (
            "scheduled",
            "queue_name, scheduled_at",
            format!("'q', {now}"),
        ),
        (
            "blocked",
            "queue_name, concurrency_key, expires_at",
            format!("'q', 'k', {now}"),
        ),
        ("failed", "error", "'{}'".to_owned()),
        ("recurring", "task_key, run_at", format!("'t', {now}")),
    ];
    for (table, columns, values) in &tables {
        for id in [7, 9_000] {
            let values = values.replace("'t'", &format!("'t{id}'"));
            db.execute(&format!(
                "INSERT INTO solid_queue_{table}_executions (job_id, {columns}, created_at) VALUES ({id}, {values}, {now})"
            ));
        }
    }
    for (condition, left) in [("id = 7", 1), ("id > 7", 0)] {
        db.execute(&format!("DELETE FROM solid_queue_jobs WHERE {condition}"));
        for (table, ..) in &tables {
            assert_eq!(db.rows(&format!("{table}_executions")), left, "{table}");
        }
    }
}

on_each_database!(
    every_column_of_solid_queue_is_there,
    our_own_columns_ask_nothing_of_rails,
    every_unique_index_of_solid_queue_is_there,
    a_deleted_job_takes_its_executions_along,
);

/// SQLite before 3.53 cannot drop a column behind a comment: it cuts the text of the table off in the comment.
#[test]
fn no_table_of_sqlite_that_loses_a_column_has_a_comment_inside() {
    let folders = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite");
    let mut texts = Vec::new();
    for folder in std::fs::read_dir(folders).unwrap() {
        for file in ["up.sql", "down.sql"] {
            texts
                .push(std::fs::read_to_string(folder.as_ref().unwrap().path().join(file)).unwrap());
        }
    }
    let statements: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.split_inclusive(";\n"))
        .collect();
    let losing = statements
        .iter()
        .filter(|text| text.contains(" DROP COLUMN "));
    let losing: BTreeSet<&str> = losing
        .filter_map(|text| text.split("ALTER TABLE ").nth(1)?.split(' ').next())
        .collect();
    assert!(losing.len() > 3, "{losing:?}");
    for table in losing {
        let of_table = statements
            .iter()
            .filter_map(|text| text.split("CREATE TABLE ").nth(1))
            .filter(|text| {
                text.trim_start_matches("IF NOT EXISTS ")
                    .starts_with(&format!("{table} "))
            });
        for text in of_table {
            assert!(!text.contains("--"), "{table}: {text}");
        }
    }
}
