//! Scheduled jobs that are due at once: dispatched alone, and drained.

use crate::clock;
use crate::db::transition::dispatch::dispatch;
use crate::db::{Database, prefer_indexes};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::ceilings::{self, ACTION, Plain, some};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::plain::claim;
use crate::laboratory::plain::enqueue::DUE;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crate::testing;
use std::time::Duration;

/// The dispatcher's own default.
const BATCH: usize = 500;

const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(20_000);
    let plain = Ceiling::over_batches(move |run, batch| plain_dispatch(run, jobs, batch));
    let dispatched = Comparison::new("dispatch", move |run| dispatch_all(run, jobs));
    let drained = Comparison::new("dispatch and drain", move |run| {
        let setup = Setup {
            threads: run.settings.threads,
            runs: u64::from(jobs),
            delete: false,
            dispatcher: true,
            queue: "*",
        };
        let cost = drains::drain(run, setup, |database| schedule(database, jobs))?;
        Ok(drains::rate(&cost))
    });
    let plain_drain = Plain {
        target: DUE,
        ..Plain::of(run, jobs)
    };
    vec![
        dispatched.beside(plain),
        drained
            .beside(plain_drain.ceiling())
            .beside(drains::no_op()),
    ]
}

/// Schedules jobs, and lets the time come.
fn schedule(database: &Database, jobs: u32) -> Result<()> {
    let mut connection = database.connect()?;
    let make = |number| Ok(nothing(number)?.after(HOUR));
    drains::fill(&mut connection, jobs, &make)?;
    testing::travel(&mut connection, 2 * HOUR)
}

fn dispatch_all(run: &BenchRun, jobs: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    schedule(&database, jobs)?;
    let mut connection = database.connect()?;
    connection.with_write_lock(prefer_indexes).during(ACTION)?;
    let begun = clock::instant();
    let mut count = 0;
    loop {
        let moved = connection.with_write_lock(|conn| dispatch(conn, BATCH, &[]));
        match moved.during("dispatch")?.count {
            0 => return Ok(FigureValue::rate("jobs/s", count, begun.elapsed())),
            moved => count += moved as u64,
        }
    }
}

fn plain_dispatch(run: &BenchRun, jobs: u32, batch: usize) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let jobs = some(jobs, batch);
    ceilings::fill(&mut database.connect()?, jobs, DUE)?;
    let took = ceilings::at_once(&database, 1, |connection| {
        loop {
            let moved = connection.with_write_lock(|conn| claim::dispatch(conn, batch));
            if moved.during(ACTION)? == 0 {
                return Ok(());
            }
        }
    })?;
    Ok(FigureValue::rate("jobs/s", u64::from(jobs), took))
}
