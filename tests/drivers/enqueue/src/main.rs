//! Enqueues the vectors of `enqueue_vectors.json` with the crate `windlass-enqueue`, through one of its drivers.
//!
//! Usage: enqueue-vectors DRIVER VECTORS DATABASE
//! Prints a JSON list: for each job, whether it was accepted.
//!
//! Usage: enqueue-vectors DRIVER --list DATABASE
//! Enqueues a list of jobs at once, and prints their ids.

mod drivers;
mod vector;

use drivers::Failure;
use serde_json::Value;
use std::error::Error;
use windlass_enqueue::NewJob;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [driver, vectors, database] = &arguments[..] else {
        return Err("usage: enqueue-vectors DRIVER VECTORS|--list DATABASE".into());
    };
    let mut driver = drivers::open(driver, database)?;
    if vectors == "--list" {
        let ids = driver.enqueue_all(&list())?;
        println!("{}", serde_json::to_string(&ids)?);
        return Ok(());
    }
    let vectors: Vec<Value> = serde_json::from_slice(&std::fs::read(vectors)?)?;
    let jobs = vectors
        .iter()
        .filter_map(|vector| vector["jobs"].as_array());
    let jobs = jobs.flatten().filter_map(Value::as_object);
    let accepted: Result<Vec<bool>, Failure> = jobs
        .map(|columns| match driver.enqueue(&vector::job(columns)) {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_refusal() => Ok(false),
            Err(failure) => Err(failure),
        })
        .collect();
    println!("{}", serde_json::to_string(&accepted?)?);
    Ok(())
}

/// Jobs of two classes, with one that exists already: the fifth is the second.
fn list() -> Vec<NewJob> {
    let named = || NewJob::of_class("import", "2").unique_id("import/2");
    vec![
        NewJob::of_class("import", "1"),
        named(),
        NewJob::of_class("import", "3").priority(3),
        NewJob::of_class("import", "4"),
        named(),
        NewJob::of_class("report", "6"),
        NewJob::of_class("report", "7").idempotency_key("report/7"),
    ]
}
