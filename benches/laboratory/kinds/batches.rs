//! Batches: how fast their jobs are drained, how soon their end is noticed, and what other jobs pay for them. And jobs of
//! which very many wait for one.

use crate::bench::figures::quantile;
use crate::clock;
use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::flow::batch::Batch;
use crate::job::class::Job as _;
use crate::job::new_job::NewJob;
use crate::job::new_job::enqueue::enqueue_all;
use crate::laboratory::comparison::{Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::{Make, Stamp, nothing};
use crate::laboratory::program::{Program, until_idle};
use crate::laboratory::role::Setup;
use crate::laboratory::run::{BULK, BenchRun};
use crate::laboratory::sql::count;
use std::time::Duration;

/// The jobs of a small batch.
const SMALL: u32 = 10;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let (jobs, large) = (run.jobs(drains::NO_OP), run.settings.batched);
    let drained = [
        ("one batch".to_owned(), jobs),
        (format!("batches of {SMALL}"), SMALL),
    ];
    let drains = drained.map(|(figure, size)| {
        let windlass = move |run: &BenchRun| drain(run, jobs, size);
        Comparison::new(figure, windlass).beside(drains::no_op())
    });
    let beside = Comparison::new(
        format!("plain jobs beside a batch of {large}"),
        move |run| drain_beside(run, jobs, large),
    );
    let mut all = Vec::from(drains);
    all.push(beside.beside(drains::no_op()));
    all.push(Comparison::new(format!("a batch of {large}"), move |run| {
        end_of_large(run, large)
    }));
    all.push(Comparison::new(
        format!("a batch of {SMALL}"),
        ends_of_small,
    ));
    let children = large.div_ceil(10);
    all.push(Comparison::new(
        format!("{children} jobs after one"),
        move |run| end_of_parent(run, children),
    ));
    all
}

/// Returns the settings of a worker for so many jobs of a queue.
fn setup(run: &BenchRun, runs: u64, queue: &'static str) -> Setup {
    Setup {
        threads: run.settings.threads,
        runs,
        delete: false,
        dispatcher: false,
        queue,
    }
}

/// Drains batches of `size` jobs, with what follows each.
fn drain(run: &BenchRun, jobs: u32, size: u32) -> Result<Vec<FigureValue>> {
    let batches = jobs.div_ceil(size);
    let runs = u64::from(batches) * (u64::from(size) + 1);
    let cost = drains::drain(run, setup(run, runs, "*"), |database| {
        let mut connection = database.connect()?;
        if batches == 1 {
            return fill(&mut connection, size, &nothing);
        }
        for first in (0..batches).step_by(BULK / SMALL as usize) {
            let last = batches.min(first + BULK as u32 / SMALL);
            connection.transaction(|connection| {
                (first..last).try_for_each(|_| fill_at_once(connection, size))
            })?;
        }
        Ok(())
    })?;
    let mut values = drains::rate(&cost);
    values.extend(drains::costs(&cost));
    Ok(values)
}

/// Enqueues a batch of a few jobs, and one that follows.
fn fill_at_once(connection: &mut DbConnection, size: u32) -> Result<()> {
    let jobs = (0..u64::from(size)).map(nothing);
    let batch = Batch::new("bench").add(jobs).on_finish(nothing(0)?);
    batch.enqueue(connection).map(drop)
}

/// Enqueues a batch, and one job that follows.
fn fill(connection: &mut DbConnection, size: u32, make: &Make<'_>) -> Result<()> {
    let batch = Batch::new("bench").on_finish(nothing(0)?);
    fill_with(connection, batch, size, make)
}

fn fill_with(
    connection: &mut DbConnection,
    batch: Batch,
    size: u32,
    make: &Make<'_>,
) -> Result<()> {
    connection.transaction(|connection| {
        let batch = batch.enqueue(connection)?.id;
        let numbers: Vec<u64> = (0..u64::from(size)).collect();
        for chunk in numbers.chunks(BULK) {
            batch.add(connection, chunk.iter().map(|&number| make(number)))?;
        }
        Ok(())
    })
}

/// Drains jobs without a batch while a batch waits.
fn drain_beside(run: &BenchRun, jobs: u32, large: u32) -> Result<Vec<FigureValue>> {
    let cost = drains::drain(run, setup(run, u64::from(jobs), "default"), |database| {
        let mut connection = database.connect()?;
        let waiting = |number| Ok::<NewJob, _>(nothing(number)?.queue("batched"));
        fill(&mut connection, large, &waiting)?;
        drains::fill(&mut connection, jobs, &nothing)
    })?;
    Ok(drains::rate(&cost))
}

/// Returns the time from the end of the last job of a batch to the start of what follows.
fn end_of_large(run: &BenchRun, large: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let batch = Batch::new("bench").on_finish(&Stamp {});
    fill_with(&mut database.connect()?, batch, large, &nothing)?;
    let mut program = Program::start(place.url(), setup(run, u64::MAX, "*"))?;
    program.nudge()?;
    let began = program.began_within(run.settings.limit)?;
    program.stop();
    let took = began.started.saturating_sub(began.ended);
    Ok(vec![FigureValue::new(
        "last end to what follows",
        "ms",
        took.as_secs_f64() * 1e3,
    )])
}

/// Returns the time from the start of a job that does nothing until the last job that waits for it is ready.
fn end_of_parent(run: &BenchRun, large: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    let parent = Stamp {}.enqueue(&mut connection)?;
    let numbers: Vec<u64> = (0..u64::from(large)).collect();
    for chunk in numbers.chunks(BULK) {
        let jobs = chunk
            .iter()
            .map(|&number| Ok(nothing(number)?.queue("children").after(parent)));
        enqueue_all(&mut connection, jobs.collect::<Result<Vec<NewJob>>>()?)?;
    }
    let mut program = Program::start(place.url(), setup(run, u64::MAX, "default"))?;
    program.nudge()?;
    let began = program.began_within(run.settings.limit)?;
    let deadline = clock::deadline(run.settings.limit);
    let blocked = "SELECT count(*) AS n FROM (SELECT id FROM solid_queue_blocked_executions LIMIT 1) AS first";
    while count(&mut connection.as_conn(), blocked).during("look for blocked jobs")? > 0
        && clock::instant() < deadline
    {
        clock::nap(Duration::from_millis(5));
    }
    let took = clock::since_boot().saturating_sub(began.started);
    program.stop();
    Ok(vec![FigureValue::new(
        "start of the one to the last ready",
        "ms",
        took.as_secs_f64() * 1e3,
    )])
}

fn ends_of_small(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database: Database = place.migrated()?;
    let mut connection = database.connect()?;
    let mut program = Program::start(place.url(), setup(run, u64::MAX, "*"))?;
    program.nudge()?;
    let (mut ends, mut calls) = (Vec::new(), Vec::new());
    // The first one wakes up everything and is not counted.
    for sample in 0..=run.settings.samples {
        until_idle();
        let jobs = (0..u64::from(SMALL)).map(nothing);
        let batch = Batch::new("bench").add(jobs).on_finish(&Stamp {});
        let called = clock::since_boot();
        batch.enqueue(&mut connection)?;
        let began = program.began()?;
        if sample > 0 {
            ends.push(began.started.saturating_sub(began.ended).as_secs_f64() * 1e3);
            calls.push(began.started.saturating_sub(called).as_secs_f64() * 1e3);
        }
    }
    program.stop();
    let value =
        |name, times: &Vec<f64>, part| FigureValue::new(name, "ms", quantile(times.clone(), part));
    Ok(vec![
        value("last end to what follows, p50", &ends, 0.5),
        value("last end to what follows, p99", &ends, 0.99),
        value("enqueue to what follows, p50", &calls, 0.5),
        value("enqueue to what follows, p99", &calls, 0.99),
    ])
}
