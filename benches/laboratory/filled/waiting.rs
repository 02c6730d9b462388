//! Jobs that wait, enqueued as applications do.

use crate::db::DbConnection;
use crate::error::Result;
use crate::flow::batch::Batch;
use crate::job::JobId;
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::new_job::enqueue::enqueue_all;
use crate::laboratory::filled::sizes::{self, Sizes};
use crate::laboratory::run::BULK;
use std::time::Duration;

/// The number of keys that have blocked jobs.
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

/// Enqueues batches of jobs for later, jobs that wait for them, and one that waits for those.
pub(crate) fn flows(connection: &mut DbConnection) -> Result<()> {
    for number in 1..=sizes::FLOWS {
        let part = |part: i64| job(part).after(Duration::from_secs(1_000_000));
        let batch = Batch::new(format!("import-{number}")).add((0..20).map(part));
        let batch = batch.enqueue(connection)?.id;
        let waiting: Vec<NewJob> = (0..3 * number).map(|_| job(number).after(batch)).collect();
        let waiting = enqueue_all(connection, waiting)?;
        let waiting: Vec<JobId> = waiting.iter().map(|job| job.id).collect();
        job(number + 1).after(waiting).enqueue(connection)?;
    }
    Ok(())
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
