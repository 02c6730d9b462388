//! Drains: jobs run by a real worker in another process.

use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::job::new_job::enqueue::enqueue_all;
use crate::laboratory::comparison::{Ceiling, FigureValue};
use crate::laboratory::counters;
use crate::laboratory::jobs::{Make, nothing};
use crate::laboratory::plain::tables;
use crate::laboratory::program::Program;
use crate::laboratory::role::Setup;
use crate::laboratory::run::{BULK, BenchRun};
use crate::laboratory::worker::Cost;

/// Enqueues as many jobs in bulk.
pub(crate) fn fill(connection: &mut DbConnection, jobs: u32, make: &Make<'_>) -> Result<()> {
    let numbers: Vec<u64> = (0..u64::from(jobs)).collect();
    for chunk in numbers.chunks(BULK) {
        let jobs = chunk.iter().map(|&number| make(number));
        enqueue_all(connection, jobs.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// Starts a worker on prepared tables, and returns what it did and took until it was done or the
/// time was up. The cost of what the server wrote is included.
pub(crate) fn drain(
    run: &BenchRun,
    setup: Setup,
    prepare: impl FnOnce(&Database) -> Result<()>,
) -> Result<Cost> {
    let place = run.place()?;
    let database = place.migrated()?;
    tables::create_effects(&mut database.connect()?.as_conn()).during("create a table")?;
    prepare(&database)?;
    move_jobs(run, place.url(), &database, setup)
}

/// Returns a worker with a dispatcher beside it, as in every installation.
pub(crate) fn beside_dispatcher(run: &BenchRun, runs: u64) -> Setup {
    Setup {
        threads: run.settings.threads,
        runs,
        delete: false,
        dispatcher: true,
        queue: "*",
    }
}

/// Starts a worker on these tables.
pub(crate) fn move_jobs(
    run: &BenchRun,
    url: &str,
    database: &Database,
    setup: Setup,
) -> Result<Cost> {
    let mut program = Program::start(url, setup)?;
    let before = written(database)?;
    program.nudge()?;
    program.wait(run.settings.limit)?;
    let mut cost = program.cost()?;
    let after = written(database)?;
    program.stop();
    // A server writes its log; on SQLite the worker writes everything itself.
    let by_server = before.zip(after).map(|(before, after)| after - before);
    cost.written = by_server.or(cost.written);
    Ok(cost)
}

/// A drain of jobs of one kind, which are kept, by all threads.
pub(crate) fn runs(
    run: &BenchRun,
    jobs: u32,
    runs_each: u64,
    make: &Make<'_>,
) -> Result<Vec<FigureValue>> {
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs) * runs_each,
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let cost = drain(run, setup, |database| {
        fill(&mut database.connect()?, jobs, make)
    })?;
    Ok(rate(&cost))
}

/// The ceiling of all drains whose jobs do more: jobs that do nothing, in the same minute.
pub(crate) fn no_op() -> Ceiling {
    Ceiling::one("no-op drain", |run| runs(run, run.jobs(NO_OP), 1, &nothing))
}

/// So many that the start of the worker does not count.
pub(crate) const NO_OP: u32 = 50_000;

/// Returns the runs per second.
pub(crate) fn rate(cost: &Cost) -> Vec<FigureValue> {
    FigureValue::rate("runs/s", cost.runs, cost.took)
}

/// Returns what each run cost.
pub(crate) fn costs(cost: &Cost) -> Vec<FigureValue> {
    let runs = cost.runs.max(1) as f64;
    let value = |name, unit, value| FigureValue::new(name, unit, value);
    let mut values = vec![
        value("statements", "a run", cost.statements as f64 / runs),
        value("commits", "a run", cost.transactions as f64 / runs),
        value("processor", "us a run", cost.cpu.as_secs_f64() * 1e6 / runs),
        value("allocations", "a run", cost.allocations as f64 / runs),
    ];
    if let Some(bytes) = cost.written {
        values.push(value("log written", "bytes a run", bytes as f64 / runs));
    }
    if let Some(memory) = cost.peak_kib {
        values.push(value("peak memory", "KiB", memory as f64));
    }
    values
}

fn written(database: &Database) -> Result<Option<u64>> {
    let position = counters::written(&mut database.connect()?.as_conn())
        .during("ask the server how much it has written")?;
    Ok(position.and_then(|position| u64::try_from(position).ok()))
}
