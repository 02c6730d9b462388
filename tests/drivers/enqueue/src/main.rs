//! Enqueues the vectors of `enqueue_vectors.json` with the crate `windlass-enqueue`, through one of its drivers.
//!
//! Usage: enqueue-vectors DRIVER VECTORS DATABASE
//! Prints a JSON list: for each job, whether it was accepted.
//!
//! Usage: enqueue-vectors DRIVER --list DATABASE
//! Enqueues a list of jobs at once, and prints their ids.

mod vector;

use enqueue_vectors::drivers::{self, Failure};
use serde_json::Value;
use std::error::Error;
use std::time::{Duration, UNIX_EPOCH};
use windlass_enqueue::{Backoff, Concurrency, Delivery, NewJob, Policy};

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
        .map(
            |columns| match driver.enqueue_each(&[vector::job(columns)]) {
                Ok(_) => Ok(true),
                Err(failure) if failure.is_refusal() => Ok(false),
                Err(failure) => Err(failure),
            },
        )
        .collect();
    println!("{}", serde_json::to_string(&accepted?)?);
    Ok(())
}

/// Jobs of two classes. The fifth exists already, as the second. The last two have every setting: one is in a list, and
/// one has a statement of its own.
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
        with_settings(NewJob::of_class("report", "8")),
        NewJob::of_class("report", "9"),
        with_settings(NewJob::of_class("count", "10")),
    ]
}

fn with_settings(job: NewJob) -> NewJob {
    let second = Duration::from_secs(1);
    let backoff = Backoff::Exponential {
        first: second,
        cap: 60 * second,
    };
    let policy = Policy::new().max_attempts(5).max_crashes(2);
    let policy = policy.backoff(backoff).delivery(Delivery::AtLeastOnce);
    let policy = policy.timeout(second / 2).retry_for(3600 * second);
    let due = UNIX_EPOCH + 4_000_000_000 * second;
    job.queue("slow")
        .priority(-3)
        .at(due)
        .not_after(due + second)
        .policy(policy.keep_result(90 * second))
        .concurrency(Concurrency::new("disk").limit(2).group("all"))
        .tags(["night", "customer/7"])
        .meta("request", 4711)
        .arguments_version(2)
        .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
}
