//! The vectors of enqueues by SQL, sent over HTTP, leave the same rows.

use super::super::client::serve;
use super::Program;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::{by_rust, vectors};
use crate::support::enqueue_rows::{compare, rows};
use serde_json::{Map, Value};
use windlass::jobs::EnqueueOutcome;

/// A body whose arguments stand in it as they are: also those that are no JSON.
fn body(job: &Map<String, Value>) -> String {
    let fields = job
        .iter()
        .map(|(name, value)| match (name.as_str(), value) {
            ("arguments" | "tags" | "meta" | "rates", Value::String(text)) => {
                format!("\"{name}\":{text}")
            }
            _ => format!("{}:{value}", Value::from(name.as_str())),
        });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Returns the job without white space around its arguments, which is not a part of a JSON value.
fn trimmed(job: &Map<String, Value>) -> Map<String, Value> {
    let mut job = job.clone();
    if let Some(Value::String(text)) = job.get_mut("arguments") {
        *text = text.trim_matches([' ', '\t', '\r', '\n']).to_owned();
    }
    job
}

fn the_vectors_leave_the_same_rows(db: &TestDb) {
    let other = if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    };
    let server = serve(&other.database);
    let program = Program::local(&server);
    // Over HTTP, a replacement has no key: it could not be told from an older one.
    let has_both = |job: &Map<String, Value>| {
        job.contains_key("idempotency_key")
            && job.get("on_conflict") == Some(&Value::from("replace"))
    };
    let vectors = vectors();
    let vectors: Vec<_> = vectors
        .iter()
        .filter(|vector| !vector.jobs.iter().any(has_both))
        .collect();
    assert!(vectors.len() > 230, "{}", vectors.len());
    for vector in vectors {
        for (place, job) in vector.jobs.iter().enumerate() {
            let rust = by_rust(&mut db.connection(), &trimmed(job));
            let http = program.post("/v1/jobs", &body(job));
            let named = format!("{}, job {place}: {rust:?}, {http:?}", vector.name);
            // HTTP tells what Rust leaves to its caller: a known key, and another request.
            let is_known = matches!(&rust, Ok(EnqueueOutcome::Existing));
            let is_right = match http.status() {
                200 | 422 if is_known => true,
                202 => rust.is_ok() && !is_known,
                400 | 404 | 409 => rust.is_err(),
                _ => false,
            };
            assert!(is_right, "{named}");
        }
    }
    compare("HTTP", rows(db), rows(&other));
}

on_each_database!(the_vectors_leave_the_same_rows);
