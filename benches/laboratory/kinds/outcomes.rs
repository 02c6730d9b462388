//! Jobs that do not simply finish. Runs are counted, not jobs.

use crate::error::Result;
use crate::job::class::Job;
use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::{Plain, drain};
use crate::laboratory::comparison::{Ceiling, Comparison};
use crate::laboratory::drains;
use crate::laboratory::jobs::{Answer, Discard, Fail, Once, Retry, Snooze};
use crate::laboratory::plain::outcome::{self, PlainOutcome};
use crate::laboratory::run::BenchRun;

pub(crate) fn retry(run: &BenchRun) -> Vec<Comparison> {
    twice(run, outcome::RETRY, || NewJob::new(&Retry {}))
}

pub(crate) fn snooze(run: &BenchRun) -> Vec<Comparison> {
    twice(run, outcome::SNOOZE, || NewJob::new(&Snooze {}))
}

pub(crate) fn fail(run: &BenchRun) -> Vec<Comparison> {
    once(run, outcome::FAIL, &Fail {})
}

pub(crate) fn discard(run: &BenchRun) -> Vec<Comparison> {
    once(run, outcome::DISCARD, &Discard {})
}

pub(crate) fn result(run: &BenchRun) -> Vec<Comparison> {
    once(run, outcome::KEEP_RESULT, &Answer {})
}

/// Plain SQL marks a job as started by its claim, so it claims no more jobs at once than it has
/// threads.
pub(crate) fn at_most_once(run: &BenchRun) -> Vec<Comparison> {
    let (jobs, threads) = (run.jobs(JOBS), run.settings.threads);
    let windlass = move |run: &BenchRun| drains::runs(run, jobs, 1, &|_| NewJob::new(&Once {}));
    let plain = Plain::of(run, jobs);
    let clients = [1, 2, 4, threads];
    let clients = clients.into_iter().filter(|&clients| {
        clients <= threads.min(run.plain_threads()) && threads.is_multiple_of(clients)
    });
    let ceiling = Ceiling::over_clients(clients, move |run, clients| {
        let batch = usize::try_from(threads / clients).unwrap_or(1);
        drain(run, Plain { clients, ..plain }, batch)
    });
    let comparison = Comparison::new("", windlass).beside(ceiling);
    vec![comparison.beside(drains::no_op())]
}

/// So many that the start of the worker counts little.
const JOBS: u32 = 20_000;

fn once(run: &BenchRun, last: PlainOutcome, job: &impl Job) -> Vec<Comparison> {
    let Ok(job) = NewJob::new(job) else {
        return Vec::new();
    };
    comparison(run, 1, (None, last), move || Ok(job.clone()))
}

fn twice(
    run: &BenchRun,
    first: PlainOutcome,
    make: impl Fn() -> Result<NewJob> + 'static,
) -> Vec<Comparison> {
    comparison(run, 2, (Some(first), outcome::KEEP), make)
}

fn comparison(
    run: &BenchRun,
    runs_each: u64,
    (first, last): (Option<PlainOutcome>, PlainOutcome),
    make: impl Fn() -> Result<NewJob> + 'static,
) -> Vec<Comparison> {
    let jobs = run.jobs(JOBS);
    let windlass = move |run: &BenchRun| drains::runs(run, jobs, runs_each, &|_| make());
    let ceiling = Plain {
        first,
        last,
        ..Plain::of(run, jobs)
    };
    let comparison = Comparison::new("", windlass).beside(ceiling.ceiling());
    vec![comparison.beside(drains::no_op())]
}
