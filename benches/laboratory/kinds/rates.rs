//! Rates: draining jobs of few and of many keys, and a rate that is to be held.

use crate::clock;
use crate::db::{AsConn as _, Database};
use crate::error::{ErrorContext as _, Result};
use crate::job::new_job::NewJob;
use crate::job::rate::Rate;
use crate::laboratory::comparison::{Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::plain::tables;
use crate::laboratory::program::Program;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crate::laboratory::sql::count;
use std::time::Duration;

/// A rate that lets all jobs through, so that its cost is seen.
const MANY: u32 = 10_000_000;

/// The starts a second of the rate that is held.
const HELD: u32 = 5_000;

/// The processes that hold it together.
const PROCESSES: u32 = 4;

/// Makes a job whose key is its number modulo `keys`.
fn rated(number: u64, keys: u64) -> Result<NewJob> {
    let rate = Rate::per_second(MANY).burst(MANY);
    Ok(nothing(number)?.rate(rate.key(format!("bench/{}", number % keys))))
}

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(50_000);
    let keys = [1, 100, 10_000, 100_000];
    let mut all: Vec<Comparison> = keys
        .into_iter()
        .map(|keys| {
            let windlass =
                move |run: &BenchRun| drain(run, jobs, move |number| rated(number, keys));
            Comparison::new(format!("{keys} keys"), windlass).beside(drains::no_op())
        })
        .collect();
    let one = |run: &BenchRun| drain(run, run.jobs(HELD * 10), held);
    all.push(Comparison::new(format!("{HELD}/s"), one));
    all.push(Comparison::new(
        format!("{HELD}/s by {PROCESSES} processes"),
        by_many,
    ));
    all
}

fn held(number: u64) -> Result<NewJob> {
    let rate = Rate::per_second(HELD).burst(HELD / 10);
    Ok(nothing(number)?.rate(rate.key("bench/held")))
}

/// Counts the jobs that several processes finish together.
fn by_many(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    tables::create_effects(&mut database.connect()?.as_conn()).during("create a table")?;
    let seconds = run.settings.idle.as_secs() as u32 + 10;
    drains::fill(&mut database.connect()?, HELD * seconds, &held)?;
    let mut programs = Vec::new();
    for _ in 0..PROCESSES {
        let setup = Setup {
            threads: run.settings.threads.div_ceil(PROCESSES),
            ..drains::beside_dispatcher(run, u64::MAX)
        };
        programs.push(Program::start(place.url(), setup)?);
    }
    programs.iter_mut().try_for_each(Program::nudge)?;
    // The burst is over.
    clock::nap(Duration::from_secs(5));
    let (begun, before) = (clock::instant(), finished(&database)?);
    clock::nap(run.settings.idle);
    let (took, after) = (begun.elapsed(), finished(&database)?);
    programs.into_iter().for_each(Program::stop);
    Ok(FigureValue::rate("runs/s", after - before, took))
}

fn finished(database: &Database) -> Result<u64> {
    let text = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    let finished = count(&mut database.connect()?.as_conn(), text);
    Ok(finished
        .during("count the jobs that have finished")?
        .cast_unsigned())
}

/// Drains jobs with rates.
fn drain(
    run: &BenchRun,
    jobs: u32,
    make: impl Fn(u64) -> Result<NewJob>,
) -> Result<Vec<FigureValue>> {
    let cost = drains::drain(
        run,
        drains::beside_dispatcher(run, jobs.into()),
        |database: &Database| drains::fill(&mut database.connect()?, jobs, &make),
    )?;
    Ok(drains::rate(&cost))
}
