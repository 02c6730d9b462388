//! Enqueues the vectors of `enqueue_vectors.json` from an async program, with sqlx.
//!
//! Usage: enqueue-vectors VECTORS DATABASE
//! Prints a JSON list: for each job, whether it was accepted.

use serde_json::{Map, Value};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Connection as _, PgConnection, Postgres, Sqlite, SqliteConnection};
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vectors, database] = &arguments[..] else {
        return Err("usage: enqueue-vectors VECTORS DATABASE".into());
    };
    let vectors: Vec<Value> = serde_json::from_slice(&std::fs::read(vectors)?)?;
    let jobs = vectors.iter().flat_map(|vector| vector["jobs"].as_array());
    let jobs: Vec<Map<String, Value>> = jobs
        .flatten()
        .filter_map(|job| job.as_object().map(whole))
        .collect();
    let accepted = match database.starts_with("postgres") {
        true => by_postgres(database, &jobs).await?,
        false => by_sqlite(database, &jobs).await?,
    };
    println!("{}", serde_json::to_string(&accepted)?);
    Ok(())
}

/// A long text is written `{"repeat": text, "times": n}` or `{"concat": [..]}`.
fn whole(job: &Map<String, Value>) -> Map<String, Value> {
    let columns = job.iter().map(|(column, value)| match value.is_object() {
        true => (column.clone(), Value::from(long(value))),
        false => (column.clone(), value.clone()),
    });
    columns.collect()
}

fn long(value: &Value) -> String {
    if let Some(parts) = value["concat"].as_array() {
        return parts.iter().map(long).collect();
    }
    match (value["repeat"].as_str(), value["times"].as_u64()) {
        (Some(text), Some(times)) => (0..times).map(|_| text).collect(),
        _ => value.as_str().unwrap_or_default().to_owned(),
    }
}

/// Returns whether the database accepted a job. An error that is not about the job is returned, and
/// ends the program.
fn verdict<T>(result: Result<T, sqlx::Error>) -> Result<bool, sqlx::Error> {
    let Err(error) = result else { return Ok(true) };
    let refuses = error.as_database_error().is_some_and(|error| {
        // SQLSTATEs of class 22 are about values.
        let of_a_value = error
            .code()
            .is_some_and(|code| code.len() == 5 && code.starts_with("22"));
        of_a_value || error.message().contains("cannot enqueue")
    });
    if refuses { Ok(false) } else { Err(error) }
}

async fn by_sqlite(
    database: &str,
    jobs: &[Map<String, Value>],
) -> Result<Vec<bool>, Box<dyn Error>> {
    let mut conn = SqliteConnection::connect(&format!("sqlite://{database}")).await?;
    let mut accepted = Vec::new();
    for job in jobs {
        let columns: Vec<&str> = job.keys().map(String::as_str).collect();
        let statement = format!(
            "INSERT INTO windlass_enqueue ({}) VALUES ({})",
            columns.join(", "),
            vec!["?"; columns.len()].join(", ")
        );
        let query = job.values().fold(sqlx::query(&statement), bind_sqlite);
        accepted.push(verdict(query.execute(&mut conn).await)?);
    }
    Ok(accepted)
}

fn bind_sqlite<'q>(
    query: Query<'q, Sqlite, SqliteArguments<'q>>,
    value: &'q Value,
) -> Query<'q, Sqlite, SqliteArguments<'q>> {
    match value {
        Value::Bool(value) => query.bind(*value),
        Value::String(text) => query.bind(text.as_str()),
        Value::Number(number) if number.is_f64() => query.bind(number.as_f64()),
        Value::Number(number) => query.bind(number.as_i64()),
        _ => query.bind(None::<String>),
    }
}

async fn by_postgres(
    database: &str,
    jobs: &[Map<String, Value>],
) -> Result<Vec<bool>, Box<dyn Error>> {
    let mut conn = PgConnection::connect(database).await?;
    let mut accepted = Vec::new();
    for job in jobs {
        let columns: Vec<&str> = job.keys().map(String::as_str).collect();
        // Bound as texts, so that the types are the statement's.
        let values = columns.iter().enumerate().map(|(index, column)| {
            let kind = match *column {
                "priority" => "integer",
                "run_at" => "timestamptz",
                "delay_seconds" => "double precision",
                "concurrency_limit" | "max_attempts" | "max_crashes" => "bigint",
                "at_most_once" => "boolean",
                _ => "text",
            };
            format!("CAST(CAST(${} AS text) AS {kind})", index + 1)
        });
        let values: Vec<String> = values.collect();
        let statement = format!(
            "INSERT INTO windlass_enqueue ({}) VALUES ({}) RETURNING id",
            columns.join(", "),
            values.join(", ")
        );
        let query = job.values().fold(sqlx::query(&statement), bind_postgres);
        accepted.push(verdict(query.fetch_one(&mut conn).await)?);
    }
    Ok(accepted)
}

fn bind_postgres<'q>(
    query: Query<'q, Postgres, PgArguments>,
    value: &'q Value,
) -> Query<'q, Postgres, PgArguments> {
    match value {
        Value::Null => query.bind(None::<String>),
        Value::String(text) => query.bind(text.as_str()),
        other => query.bind(other.to_string()),
    }
}
