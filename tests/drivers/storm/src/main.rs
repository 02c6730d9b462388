//! Enqueues jobs with idempotency keys through a driver, until its parent kills it.
//!
//! Usage: enqueue-storm DRIVER DATABASE FIRST COUNT
//! Enqueues the jobs with the keys `FIRST` to `FIRST + COUNT - 1`, in order and a few in each transaction. After each
//! commit it prints a line: the first key of the transaction, and the ids of its jobs. With `COUNT` 0 it prints the
//! version of SQLite alone.

#![allow(
    clippy::disallowed_methods,
    reason = "a program of the tests, outside of Windlass"
)]

use enqueue_vectors::drivers::{self, Driver, Failure};
use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};
use windlass_enqueue::NewJob;

/// The longest time that one transaction may take, with all its tries.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [driver, database, first, count] = &arguments[..] else {
        return Err("usage: enqueue-storm DRIVER DATABASE FIRST COUNT".into());
    };
    let (first, count): (u64, u64) = (first.parse()?, count.parse()?);
    let mut driver = drivers::open(driver, database)?;
    let (mut next, end) = (first, first + count);
    while next < end {
        // From 1 to 7 jobs, and each number of them both ways. That of a key is another one after another start.
        let turn = next - first;
        let jobs: Vec<NewJob> = (next..end.min(next + 1 + turn % 7)).map(job).collect();
        let ids = committed(driver.as_mut(), &jobs, turn % 2 == 0)?;
        // One write for each line: a kill leaves a whole line or none.
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        let line = format!("{next} {}\n", ids.join(" "));
        std::io::stdout().write_all(line.as_bytes())?;
        next += u64::try_from(jobs.len())?;
    }
    Ok(())
}

fn job(key: u64) -> NewJob {
    let job = NewJob::of_class("storm", key.to_string());
    job.queue("storm").idempotency_key(format!("storm/{key}"))
}

/// Runs a transaction, again while its failure is temporary.
fn committed(driver: &mut dyn Driver, jobs: &[NewJob], is_list: bool) -> Result<Vec<i64>, Failure> {
    let start = Instant::now();
    loop {
        let done = match is_list {
            true => driver.enqueue_all(jobs),
            false => driver.enqueue_each(jobs),
        };
        match done {
            Err(failure) if failure.is_temporary() && start.elapsed() < DEADLINE => {
                eprintln!("again: {failure}");
            }
            done => return done,
        }
    }
}
