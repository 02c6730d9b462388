//! Unique ids: enqueueing and draining jobs that have one, and clearing jobs while ids are held.

use crate::clock;
use crate::db::transition::clear::{self, ClearLimits};
use crate::error::{ErrorContext as _, Result};
use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::{self, ACTION, Plain, some};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::kinds::enqueue;
use crate::laboratory::plain::enqueue::{ALONE, UNIQUE};
use crate::laboratory::plain::{outcome, recurring};
use crate::laboratory::role::Setup;
use crate::laboratory::run::{BULK, BenchRun};
use std::time::Duration;

fn unique(number: u64) -> Result<NewJob> {
    Ok(nothing(number)?.unique_id(format!("unique/{number}")))
}

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let mut all = enqueue::beside_plain(run, UNIQUE, unique);
    let jobs = run.jobs(20_000);
    let windlass = move |run: &BenchRun| drains::runs(run, jobs, 1, &unique);
    let plain = Plain {
        target: UNIQUE,
        last: outcome::KEEP_UNIQUE,
        ..Plain::of(run, jobs)
    };
    let drain = Comparison::new("drain", windlass).beside(plain.ceiling());
    all.push(drain.beside(drains::no_op()));
    let windlass = move |run: &BenchRun| clear_among_held(run, jobs);
    let plain = Ceiling::over_batches(move |run, batch| plain_clear(run, jobs, batch));
    let figure = format!("clear, {jobs} ids held");
    all.push(Comparison::new(figure, windlass).beside(plain));
    all
}

/// Clears finished jobs while as many waiting ones hold an id, as a supervisor does.
fn clear_among_held(run: &BenchRun, jobs: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    drains::fill(&mut connection, jobs, &nothing)?;
    let setup = Setup {
        threads: 4,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    drains::move_jobs(run, place.url(), &database, setup)?;
    drains::fill(&mut connection, jobs, &unique)?;
    let old = ClearLimits {
        age: Duration::ZERO,
        up_to: 0,
        of_ruby: false,
    };
    let (mut after, mut cleared) = (Some(0), 0);
    let begun = clock::instant();
    while let Some(last) = after {
        let stretch = connection.with_write_lock(|conn| clear::finished(conn, old, last, BULK));
        let stretch = stretch.during("clear finished jobs")?;
        cleared += stretch.cleared as u64;
        after = stretch.reached;
    }
    Ok(FigureValue::rate("jobs/s", cleared, begun.elapsed()))
}

fn plain_clear(run: &BenchRun, jobs: u32, batch: usize) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let mut connection = database.connect()?;
    let jobs = some(jobs, batch);
    let finished = ceilings::fill(&mut connection, jobs, ALONE)?;
    connection
        .with_write_lock(|conn| recurring::finish_all(conn, &finished))
        .during(ACTION)?;
    ceilings::fill(&mut connection, jobs, UNIQUE)?;
    let took = ceilings::at_once(&database, 1, |connection| {
        let mut after = Some(0);
        while let Some(last) = after {
            let cleared = connection.with_write_lock(|conn| recurring::clear(conn, last, batch));
            after = cleared.during(ACTION)?;
        }
        Ok(())
    })?;
    Ok(FigureValue::rate("jobs/s", u64::from(jobs), took))
}
