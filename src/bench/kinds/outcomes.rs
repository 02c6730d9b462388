//! Jobs that do not simply finish. Runs are counted, not jobs.

use crate::bench::ceilings::Plain;
use crate::bench::comparison::Comparison;
use crate::bench::drains;
use crate::bench::jobs::{Answer, Discard, Fail, Once, Retry, Snooze};
use crate::bench::plain::outcome::{self, Outcome};
use crate::bench::run::Run;
use crate::error::Result;
use crate::job::class::Job;
use crate::job::new_job::NewJob;

pub(crate) fn retry(run: &Run) -> Vec<Comparison> {
    twice(run, outcome::RETRY, || NewJob::new(&Retry {}))
}

pub(crate) fn snooze(run: &Run) -> Vec<Comparison> {
    twice(run, outcome::SNOOZE, || NewJob::new(&Snooze {}))
}

pub(crate) fn fail(run: &Run) -> Vec<Comparison> {
    once(run, outcome::FAIL, &Fail {})
}

pub(crate) fn discard(run: &Run) -> Vec<Comparison> {
    once(run, outcome::DISCARD, &Discard {})
}

pub(crate) fn result(run: &Run) -> Vec<Comparison> {
    once(run, outcome::KEEP_RESULT, &Answer {})
}

/// Plain SQL claims before the run, as for any job, so that its ceiling is a drain.
pub(crate) fn at_most_once(run: &Run) -> Vec<Comparison> {
    once(run, outcome::KEEP, &Once {})
}

fn once(run: &Run, last: Outcome, job: &impl Job) -> Vec<Comparison> {
    let Ok(job) = NewJob::new(job) else {
        return Vec::new();
    };
    comparison(run, 1, (None, last), move || Ok(job.clone()))
}

fn twice(
    run: &Run,
    first: Outcome,
    make: impl Fn() -> Result<NewJob> + 'static,
) -> Vec<Comparison> {
    comparison(run, 2, (Some(first), outcome::KEEP), make)
}

fn comparison(
    run: &Run,
    runs_each: u64,
    (first, last): (Option<Outcome>, Outcome),
    make: impl Fn() -> Result<NewJob> + 'static,
) -> Vec<Comparison> {
    let jobs = run.jobs(10_000);
    let windlass = move |run: &Run| drains::runs(run, jobs, runs_each, &|_| make());
    let ceiling = Plain {
        first,
        last,
        ..Plain::of(run, jobs)
    };
    let comparison = Comparison::new("", windlass).beside(ceiling.ceiling());
    vec![comparison.beside(drains::no_op())]
}
