//! Rates: draining jobs of few and of many keys, and a rate that is to be held.

use crate::db::Database;
use crate::error::Result;
use crate::job::new_job::NewJob;
use crate::job::rate::Rate;
use crate::laboratory::comparison::{Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;

/// A rate that lets all jobs through, so that its cost is seen.
const MANY: u32 = 10_000_000;

/// The starts a second of the rate that is held.
const HELD: u32 = 5_000;

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
    let held = move |run: &BenchRun| {
        drain(run, run.jobs(HELD * 10), |number| {
            let rate = Rate::per_second(HELD).burst(HELD / 10);
            Ok(nothing(number)?.rate(rate.key("bench/held")))
        })
    };
    all.push(Comparison::new(format!("{HELD}/s"), held));
    all
}

/// Drains jobs with rates. Besides the worker there is a dispatcher, as in every installation.
fn drain(
    run: &BenchRun,
    jobs: u32,
    make: impl Fn(u64) -> Result<NewJob>,
) -> Result<Vec<FigureValue>> {
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: true,
        queue: "*",
    };
    let cost = drains::drain(run, setup, |database: &Database| {
        drains::fill(&mut database.connect()?, jobs, &make)
    })?;
    Ok(drains::rate(&cost))
}
