//! A program that is one process: a worker with a dispatcher. It takes the address of its database.

#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::time::Duration;
use windlass::{Database, Function, Registry, Worker};

/// Prints that it has begun, and sleeps for so many milliseconds.
const NAP: Function<u64> = Function::new("nap");

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: alone URL")?;
    let database = Database::open(&url)?;
    let registry = Registry::new().function(NAP, |millis, cx| {
        println!("attempt {} of job {}", cx.attempt(), cx.job_id());
        Ok(cx.sleep(Duration::from_millis(millis))?)
    });
    let worker = Worker::new(&database, registry)
        .heartbeat_interval(Duration::from_millis(100))
        .alive_threshold(Duration::from_millis(600));
    Ok(worker.dispatcher(true).run()?.exit_code())
}
