//! An idle worker in another process: what it costs.

use crate::bench::place::Place;
use crate::clock;
use crate::error::Result;
use crate::laboratory::comparison::{Comparison, FigureValue};
use crate::laboratory::program::Program;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use std::time::Duration;

pub(crate) fn comparisons(_: &BenchRun) -> Vec<Comparison> {
    vec![Comparison::new("", idle)]
}

fn idle(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    place.migrated()?;
    cost(run, &place)
}

/// Returns what an idle worker costs in a database.
pub(super) fn cost(run: &BenchRun, place: &Place) -> Result<Vec<FigureValue>> {
    let setup = Setup {
        threads: 5,
        runs: u64::MAX,
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let mut program = Program::start(place.url(), setup)?;
    program.nudge()?;
    // It polls more often at first.
    clock::nap(run.settings.idle.min(Duration::from_secs(10)));
    let before = program.cost()?;
    let begun = clock::instant();
    clock::nap(run.settings.idle);
    let after = program.cost()?;
    let seconds = begun.elapsed().as_secs_f64();
    program.stop();
    let statements = (after.statements - before.statements) as f64 / seconds;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds;
    let memory = after.peak_kib.unwrap_or(0) as f64;
    Ok(vec![
        FigureValue::new("statements", "a second", statements),
        FigureValue::new("processor", "% of a core", cpu * 100.0),
        FigureValue::new("peak memory", "KiB", memory),
    ])
}
