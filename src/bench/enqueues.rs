//! Enqueueing: one at a time, and in bulk.

use crate::bench::ceilings;
use crate::bench::program::Nothing;
use crate::bench::run::{BULK, Run, rate};
use crate::db::{Database, DbConnection};
use crate::error::Result;
use crate::job::class::Job as _;
use crate::job::enqueue_all::enqueue_all;
use crate::job::new_job::NewJob;

/// Measures every way of enqueueing, each beside its ceiling.
pub(crate) fn measure(run: &mut Run) -> Result<()> {
    for clients in [1, 8] {
        run.saying(&format!("enqueue one at a time, {clients} threads"));
        let ceiling = format!("plain SQL: enqueue one at a time, {clients} threads");
        let most = ceilings::enqueues(run, clients)?;
        run.figures.note(&ceiling, "jobs/s", most);
        let name = format!("enqueue one at a time, {clients} threads");
        let value = singles(run, clients)?;
        run.figures.note_of(&name, "jobs/s", value, &ceiling);
    }
    run.saying("enqueue in bulk");
    let ceiling = format!("plain SQL: enqueue {BULK} at a time");
    let most = ceilings::bulk(run)?;
    run.figures.note(&ceiling, "jobs/s", most);
    let indexed = format!("plain SQL with Solid Queue's indexes: enqueue {BULK} at a time");
    let value = ceilings::bulk_with_indexes(run)?;
    run.figures.note_of(&indexed, "jobs/s", value, &ceiling);
    let value = bulk(run)?;
    let name = format!("enqueue {BULK} at a time");
    run.figures.note_of(&name, "jobs/s", value, &ceiling);
    Ok(())
}

fn singles(run: &Run, clients: u32) -> Result<f64> {
    let place = run.place()?;
    let database = place.migrated()?;
    let each = u64::from(run.settings.singles);
    let took = ceilings::at_once(&database, clients, |connection| {
        (0..each).try_for_each(|number| Nothing { number }.enqueue(connection).map(drop))
    })?;
    Ok(rate(each * u64::from(clients), took))
}

fn bulk(run: &Run) -> Result<f64> {
    let place = run.place()?;
    let database = place.migrated()?;
    let jobs = run.settings.jobs;
    let took = ceilings::at_once(&database, 1, |connection| {
        fill(connection, jobs, |_| "default".to_owned())
    })?;
    Ok(rate(u64::from(jobs), took))
}

/// Enqueues this many jobs, each on the queue of its number.
pub(crate) fn fill(
    connection: &mut DbConnection,
    jobs: u32,
    queue: impl Fn(u64) -> String,
) -> Result<()> {
    let numbers: Vec<u64> = (0..u64::from(jobs)).collect();
    for chunk in numbers.chunks(BULK) {
        let jobs = chunk
            .iter()
            .map(|&number| NewJob::new(&Nothing { number }).map(|job| job.queue(queue(number))));
        enqueue_all(connection, jobs.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// Does the same on its own connection.
pub(crate) fn fill_database(
    database: &Database,
    jobs: u32,
    queue: impl Fn(u64) -> String,
) -> Result<()> {
    fill(&mut database.connect()?, jobs, queue)
}
