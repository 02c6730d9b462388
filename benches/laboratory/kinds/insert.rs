//! Jobs that insert a row, with and without a promise that it happens exactly once.

use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::Plain;
use crate::laboratory::comparison::Comparison;
use crate::laboratory::drains;
use crate::laboratory::jobs::{Effect, Insert};
use crate::laboratory::plain::outcome::{self, PerJob, PlainOutcome};
use crate::laboratory::run::BenchRun;

pub(crate) fn insert(run: &BenchRun) -> Vec<Comparison> {
    with(run, Effect::Insert, (PerJob::Insert, outcome::KEEP))
}

pub(crate) fn step(run: &BenchRun) -> Vec<Comparison> {
    with(run, Effect::Step, (PerJob::Step, outcome::KEEP_STEPS))
}

pub(crate) fn finish_in(run: &BenchRun) -> Vec<Comparison> {
    with(run, Effect::FinishIn, (PerJob::Finish, &[]))
}

fn with(
    run: &BenchRun,
    effect: Effect,
    (per_job, last): (PerJob, PlainOutcome),
) -> Vec<Comparison> {
    let jobs = run.jobs(5_000);
    let threads = run.settings.threads;
    let windlass =
        move |run: &BenchRun| drains::runs(run, jobs, 1, &|_| NewJob::new(&Insert { effect }));
    let ceiling = Plain {
        clients: run.plain_threads(),
        per_job,
        last,
        ..Plain::of(run, jobs)
    };
    vec![Comparison::new(format!("{threads} threads"), windlass).beside(ceiling.ceiling())]
}
