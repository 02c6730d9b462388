//! The last section of the migration `windlass`, by which programs enqueue in SQL, is made here: of a text for each
//! database, in which words in braces stand for the constants, columns and rules of Rust.
//!
//! Write it with `WINDLASS_WRITE_MIGRATIONS=1`.

mod policy;
mod postgres;
mod rates;
mod rules;
mod sqlite;

use crate::db::conn::dialect::Dialect;
use crate::db::model::extras::{MAX_LABEL, MAX_TAGS};
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{
    IN_ORDER, ORDERED, UNIQUE_SUCCESSOR, UniqueScope, WAITS_AT_GATE, WAITS_FOR_PARENTS,
};
use crate::db::table::attempts::KEPT;
use crate::db::table::expiries::LATEST;
use crate::db::table::flows::batches::{IS_OPEN, IS_OURS};
use crate::db::table::flows::parents;
use crate::db::table::semaphores::{DOES_NOT_WAIT, NEVER_EXPIRES};
use crate::db::table::wanted_keys::{BATCH, CHILD, EVENT, GATE};
use crate::db::transition::flows::wake;
use crate::db::transition::unique::ROUNDS;
use crate::job::arguments::MAX_DEPTH;
use crate::job::options::COLUMNS;
use crate::queue::MAX_NAME;
use std::path::Path;

/// The migration's directory.
const NAME: &str = "2026-11-28-000002_windlass";

/// A column that a caller may set, and its type on Postgres.
type CallerColumn = (&'static str, &'static str);

/// The columns that a caller may set beside the class.
const OPTIONS: [CallerColumn; 32] = [
    ("arguments", "text"),
    ("queue", "text"),
    ("priority", "integer"),
    ("run_at", "timestamptz"),
    ("delay_seconds", "double precision"),
    ("unique_id", "text"),
    ("unique_scope", "text"),
    ("on_conflict", "text"),
    ("idempotency_key", "text"),
    ("concurrency_key", "text"),
    ("concurrency_group", "text"),
    ("concurrency_limit", "bigint"),
    ("concurrency_on_conflict", "text"),
    ("max_attempts", "bigint"),
    ("max_crashes", "bigint"),
    ("at_most_once", "boolean"),
    ("traceparent", "text"),
    ("tags", "text"),
    ("meta", "text"),
    ("version", "bigint"),
    ("timeout_seconds", "double precision"),
    ("backoff_seconds", "double precision"),
    ("backoff_cap_seconds", "double precision"),
    ("expires_in_seconds", "double precision"),
    ("not_after", "timestamptz"),
    ("retry_for_seconds", "double precision"),
    ("keep_result_seconds", "double precision"),
    ("tenant", "text"),
    ("batch_id", "bigint"),
    ("after_batch", "bigint"),
    ("runs_on", "text"),
    ("rates", "text"),
];

/// Those of them that are times.
const TIMES: [&str; 2] = ["run_at", "not_after"];

/// Returns the type of JSON that a column takes in a list.
fn json_type((name, kind): CallerColumn) -> &'static str {
    match (name, kind) {
        ("tags" | "rates", _) => "array",
        ("meta", _) => "object",
        (_, "boolean") => "boolean",
        (_, "text" | "timestamptz") => "string",
        _ => "number",
    }
}

/// Returns the message about a value in a list that has another type.
fn must_be_json(column: CallerColumn) -> String {
    let name = column.0;
    match json_type(column) {
        "boolean" => format!("its {name} must be true or false"),
        json => format!("its {name} must be a JSON {json}"),
    }
}

/// Words of a text, and what they stand for.
type Words = Vec<(String, String)>;

fn word(name: &str, text: impl Into<String>) -> (String, String) {
    (format!("{{{name}}}"), text.into())
}

/// Returns the words that are the same for both databases.
fn constants(dialect: Dialect) -> Words {
    let version: String = NAME.split('_').next().unwrap_or_default().replace('-', "");
    let keys = OPTIONS.map(|(name, _)| format!("'{name}'"));
    vec![
        word("now", dialect.render("{now}")),
        word("cautious", dialect.render("{cautious}")),
        word("max_depth", MAX_DEPTH.to_string()),
        word("max_name", MAX_NAME.to_string()),
        word("max_integer", i32::MAX.to_string()),
        word("rounds", ROUNDS.to_string()),
        word("ordered", ORDERED),
        word("in_order", IN_ORDER.to_string()),
        word("unique_successor", UNIQUE_SUCCESSOR),
        word("never_expires", NEVER_EXPIRES),
        word("does_not_wait", DOES_NOT_WAIT),
        word("kept_attempts", KEPT.to_string()),
        word("is_undo", parents::IS_UNDO),
        word("child", CHILD),
        word("event", EVENT),
        word("event rounds", wake::ROUNDS.to_string()),
        word("waits for parents", WAITS_FOR_PARENTS),
        word("waits at gate", WAITS_AT_GATE),
        word("gate", GATE),
        word("batch", BATCH),
        word("batch is ours", IS_OURS),
        word("batch is open", IS_OPEN),
        word("latest expiry", LATEST),
        word("most tags", MAX_TAGS.to_string()),
        word("longest tag", MAX_LABEL.to_string()),
        word("default_queue", "default"),
        word("default_scope", UniqueScope::default().column()),
        word("version", version),
        word("keys", keys.join(", ")),
        word("open_brackets", "[{"),
        word("braces", "{}"),
    ]
}

/// Returns `text`, a list of values or assignments made of `columns`, with what `source` says in
/// place of each parameter.
fn with_sources(
    dialect: Dialect,
    columns: &JobColumns,
    text: &str,
    source: &dyn Fn(&str) -> String,
) -> String {
    let mut text = dialect.render(text);
    let inputs: Vec<&str> = columns.inputs().collect();
    for (index, name) in inputs.iter().enumerate().rev() {
        text = text.replace(&format!("${}", index + 1), &source(name));
    }
    text
}

/// Returns a condition: a job in a state holds its unique id, by its scope.
fn holds(scope: &str, place: &str) -> String {
    format!(
        "({place} <= 2 OR {place} = 3 AND {scope} <> 'while_waiting' OR {place} = 4 AND {scope} = 'until_result_expires')"
    )
}

/// Returns the statements of a migration.
fn migration(template: &str, words: &Words) -> String {
    let made = words
        .iter()
        .fold(template.to_owned(), |text, (word, meaning)| {
            text.replace(word, meaning)
        });
    // Text in braces that is not a quantifier of a pattern would be a word without a meaning.
    let words = made
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let left: Vec<&str> = words
        .filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()))
        .collect();
    assert!(left.is_empty(), "words without a meaning: {left:?}");
    made
}

/// Compares the last section of the migration in the repository, from its heading, with what is made here.
fn compare(directory: &str, made: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root
        .ancestors()
        .map(|directory| directory.join("migrations"))
        .find(|migrations| migrations.is_dir())
        .unwrap()
        .join(directory)
        .join(NAME)
        .join("up.sql");
    let (heading, _) = made.split_once("\n\n").unwrap();
    let found = std::fs::read_to_string(&file).unwrap();
    let (above, section) = found.split_at(found.find(heading).unwrap());
    if std::env::var_os("WINDLASS_WRITE_MIGRATIONS").is_some() {
        std::fs::write(&file, format!("{above}{made}")).unwrap();
        return;
    }
    assert!(
        section == made,
        "{} is not what the constants of Rust make of it: run WINDLASS_WRITE_MIGRATIONS=1 bin/test enqueue_by_sql",
        file.display()
    );
}

#[test]
fn the_columns_are_the_options_of_a_job() {
    assert_eq!(OPTIONS.map(|(name, _)| name), COLUMNS[1..]);
}

#[test]
fn the_migration_of_postgres_follows_the_rules_of_rust() {
    let made = migration(include_str!("postgres.sql"), &postgres::words());
    compare("postgres", &made);
}

#[test]
fn the_migration_of_sqlite_follows_the_rules_of_rust() {
    let made = migration(include_str!("sqlite.sql"), &sqlite::words());
    compare("sqlite", &made);
}
