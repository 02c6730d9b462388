//! A job that is a function: its class is a constant, its work a closure of the registry.
//!
//! ```text
//! cargo run --example function
//! ```
//!
//! The database is the SQLite file `jobs.db` in the current directory. Ctrl-C ends the worker.

#![expect(clippy::print_stdout, reason = "it is a program")]

use std::process::ExitCode;
use windlass::{Database, Function, Registry, Worker};

const GREET: Function<String> = Function::new("greet");

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let database = Database::open("sqlite://jobs.db")?;
    database.migrate()?;
    GREET.enqueue(&mut database.connect()?, &"Ada".to_owned())?;

    let registry = Registry::new().function(GREET, |name, cx| {
        println!("job {}: hello, {name}", cx.job_id());
        Ok(())
    });
    Ok(Worker::new(&database, registry).run()?.exit_code())
}
