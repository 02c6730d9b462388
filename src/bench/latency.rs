//! An idle worker in another process: how soon it starts a job, and what it costs.

use crate::bench::ceilings;
use crate::bench::program::{Program, Stamp, Told, until_idle};
use crate::bench::run::Run;
use crate::clock;
use crate::error::Result;
use crate::job::class::Job as _;
use std::time::Duration;

/// Measures the time from the enqueue to the start of the job.
pub(crate) fn pick_ups(run: &mut Run) -> Result<()> {
    run.saying("pick-up by an idle worker");
    let place = run.place()?;
    let database = place.migrated()?;
    let mut program = Program::start(place.url(), 5, false)?;
    program.nudge()?;
    let mut connection = database.connect()?;
    let (mut from_answer, mut from_call) = (Vec::new(), Vec::new());
    // The first one wakes up everything and is not counted.
    for sample in 0..=run.settings.samples {
        until_idle();
        let called = clock::since_boot();
        Stamp {}.enqueue(&mut connection)?;
        let answered = clock::since_boot();
        let began = loop {
            if let Told::Began(at) = program.next()? {
                break at;
            }
        };
        if sample > 0 {
            from_call.push(millis(began.saturating_sub(called)));
            from_answer.push(millis(began.saturating_sub(answered)));
        }
    }
    program.stop();
    let least = ceilings::pick_ups(run)?.into_iter().map(millis).collect();
    note(run, LEAST, least, None);
    note(
        run,
        "pick-up after the enqueue was answered",
        from_answer,
        Some(LEAST),
    );
    note(run, "pick-up after the enqueue was called", from_call, None);
    Ok(())
}

const LEAST: &str = "plain SQL: heard of and claimed";

/// Records quantiles of a series of times, each beside that of the other series.
fn note(run: &mut Run, what: &str, mut values: Vec<f64>, beside: Option<&str>) {
    values.sort_by(f64::total_cmp);
    for (name, part) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0)] {
        let figure = format!("{what}, {name}");
        let value = quantile(&values, part);
        match beside {
            Some(other) => run
                .figures
                .note_of(&figure, "ms", value, &format!("{other}, {name}")),
            None => run.figures.note(&figure, "ms", value),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the quantile `part` of sorted values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// Measures the cost of an idle worker.
pub(crate) fn idle(run: &mut Run) -> Result<()> {
    run.saying("an idle worker");
    let place = run.place()?;
    place.migrated()?;
    let mut program = Program::start(place.url(), 5, false)?;
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
    let cpu = (after.cpu - before.cpu).as_secs_f64() / seconds;
    let memory = after.peak_kib.unwrap_or(0) as f64;
    let figures = &mut run.figures;
    figures.note("idle worker: statements", "a second", statements);
    figures.note("idle worker: processor", "% of a core", cpu * 100.0);
    figures.note("idle worker: peak memory", "KiB", memory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, 0.5), 2.0);
        assert_eq!(quantile(&values, 0.95), 4.0);
        assert_eq!(quantile(&values, 1.0), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
