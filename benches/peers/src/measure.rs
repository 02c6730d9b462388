//! The three kinds of measurement, the same for every system.

use crate::Options;
use crate::place::{Place, ask};
use crate::program::{PATIENCE, Program};
use crate::setting::{Column, Setting};
use crate::systems::System;
use crate::worker::{Told, now};
use anyhow::{Result, bail};
use diesel::pg::PgConnection;
use std::time::{Duration, Instant};

/// Workers of the process whose pick-up is measured.
const IDLE_WORKERS: u32 = 4;

/// What came of it, in the unit of each column; nothing where a system has
/// no such thing.
pub(crate) type Measured = Vec<(Column, f64)>;

/// Enqueueing, in one of its ways.
pub(crate) fn enqueue(options: &Options, setting: Setting, column: Column) -> Result<Measured> {
    let system = setting.system();
    let place = migrated(options, &*system)?;
    let address = place.address();
    let (jobs, took) = match column {
        Column::Enqueue(callers) => {
            let took = system.enqueue_singly(address, callers, options.singles)?;
            (callers * options.singles, Some(took))
        }
        _ => (options.jobs, system.enqueue_in_bulk(address, options.jobs)?),
    };
    let rates = took.map(|took| (column, rate(jobs.into(), took)));
    Ok(rates.into_iter().collect())
}

/// From the start of so many workers in a process of their own until the
/// last job has ended, or for the time that this may take at most.
pub(crate) fn drain(options: &Options, setting: Setting, workers: u32) -> Result<Measured> {
    let system = setting.system();
    let place = migrated(options, &*system)?;
    system.fill(place.address(), options.jobs)?;
    place.address().analyze()?;
    let mut conn = place.address().connect()?;
    let mut program = Program::start(place.address(), setting, workers, options.jobs)?;
    let begun = Instant::now();
    program.nudge()?;
    let jobs = match program.next_within(options.limit)? {
        Some(Told::Done) => {
            wait_until_ended(&mut conn, &*system)?;
            options.jobs.into()
        }
        None => program.performed()?,
        Some(other) => bail!("a worker process that drains said {other:?}"),
    };
    Ok(vec![(Column::Drain(workers), rate(jobs, begun.elapsed()))])
}

/// Performed is not yet ended: the database has to know it, too.
fn wait_until_ended(conn: &mut PgConnection, system: &dyn System) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while ask(conn, system.unfinished())? {
        if Instant::now() > deadline {
            bail!("all jobs were performed, but some do not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// From before the call that enqueues a job until its first line, in idle
/// workers of another process.
pub(crate) fn pick_up(options: &Options, setting: Setting) -> Result<Measured> {
    let system = setting.system();
    let place = migrated(options, &*system)?;
    let mut enqueue = system.enqueuer(place.address())?;
    let mut program = Program::start(place.address(), setting, IDLE_WORKERS, 0)?;
    program.nudge()?;
    let deadline = Instant::now() + options.limit * 3;
    let mut millis = Vec::new();
    // The first one wakes up everything and is not counted.
    for sample in 0..=options.samples {
        let longest = setting.longest_rest().as_millis() as u64;
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..=longest)));
        let called = now();
        enqueue()?;
        let began = match program.next_within(PATIENCE)? {
            Some(Told::Began(at)) => at,
            other => bail!("instead of beginning a job, a worker process said {other:?}"),
        };
        if sample > 0 {
            millis.push(began.saturating_sub(called).as_secs_f64() * 1e3);
        }
        if Instant::now() > deadline && !millis.is_empty() {
            break;
        }
    }
    millis.sort_by(f64::total_cmp);
    let p50 = (Column::PickUpP50, quantile(&millis, 0.5));
    let p99 = (Column::PickUpP99, quantile(&millis, 0.99));
    Ok(vec![p50, p99])
}

fn migrated(options: &Options, system: &dyn System) -> Result<Place> {
    let place = Place::create(&options.database)?;
    system.migrate(place.address())?;
    Ok(place)
}

fn rate(jobs: u64, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(1e-9)
}

/// The value that so large a part does not exceed, of sorted ones.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, 0.5), 2.0);
        assert_eq!(quantile(&values, 0.99), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
