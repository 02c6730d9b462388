//! Jobs that wait, enqueued as applications do.

use crate::bench::filled::sizes::{self, Sizes};
use crate::bench::run::BULK;
use crate::db::DbConnection;
use crate::error::Result;
use crate::job::concurrency::Concurrency;
use crate::job::enqueue_all::enqueue_all;
use crate::job::new_job::NewJob;
use std::time::Duration;

/// How many keys have blocked jobs.
const KEYS: i64 = 50;

/// Returns a job of one of the classes.
fn job(number: i64) -> NewJob {
    let class = sizes::class(number);
    let arguments = format!(
        "{{\"number\":{number},\"customer\":\"customer-{}\"}}",
        sizes::mixed(number) % 50_000
    );
    let priority = (sizes::mixed(number) % 5) as i32;
    NewJob::of_class(sizes::class_name(class), arguments)
        .queue(sizes::queue(class))
        .priority(priority)
}

/// Enqueues ready, scheduled and blocked jobs. `progress` is told how many there are.
pub(crate) fn enqueue(
    connection: &mut DbConnection,
    sizes: Sizes,
    progress: &dyn Fn(&str, u32),
) -> Result<()> {
    in_bulk(
        connection,
        sizes.ready,
        |count| progress("ready", count),
        job,
    )?;
    let later = |number: i64| {
        job(number).after(Duration::from_secs(60 + number.unsigned_abs() % 1_000_000))
    };
    in_bulk(
        connection,
        sizes.scheduled(),
        |count| progress("scheduled", count),
        later,
    )?;
    let limited = |number: i64| job(number).concurrency(Concurrency::new(number % KEYS).limit(2));
    in_bulk(
        connection,
        sizes.blocked(),
        |count| progress("blocked", count),
        limited,
    )
}

fn in_bulk(
    connection: &mut DbConnection,
    count: u32,
    progress: impl Fn(u32),
    make: impl Fn(i64) -> NewJob,
) -> Result<()> {
    let numbers: Vec<u32> = (0..count).collect();
    for chunk in numbers.chunks(BULK) {
        progress(chunk[0]);
        let jobs = chunk.iter().map(|&number| make(number.into()));
        enqueue_all(connection, jobs.collect::<Vec<_>>())?;
    }
    Ok(())
}
