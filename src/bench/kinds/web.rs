//! The pages of `windlass web`.

use crate::bench::comparison::{Comparison, FigureValue};
use crate::bench::filled::fill;
use crate::bench::run::BenchRun;
use crate::clock;
use crate::error::Result;

pub(crate) fn comparisons(_: &BenchRun) -> Vec<Comparison> {
    vec![Comparison::new("", fill_only)]
}

fn fill_only(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let begun = clock::instant();
    fill::fill(&database, run.settings.sizes, &|text| {
        run.progress.say(text)
    })?;
    Ok(vec![FigureValue::new(
        "fill",
        "s",
        begun.elapsed().as_secs_f64(),
    )])
}
