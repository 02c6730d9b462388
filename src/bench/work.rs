//! Draining: no-op jobs, run by real workers in other processes.

use crate::bench::plain_sql::Shape;
use crate::bench::program::{Cost, Program, Told};
use crate::bench::run::{Run, rate};
use crate::bench::{ceilings, counters, enqueues};
use crate::clock;
use crate::db::Database;
use crate::db::conn::connection::AsConn as _;
use crate::db::model::claim::FinishedRow;
use crate::error::{Doing as _, Result};
use std::time::Duration;

/// The workers and the jobs of a measurement.
#[derive(Debug, Clone, Copy)]
struct Crew {
    processes: u32,
    threads: u32,
    finished: FinishedRow,
}

/// Jobs that wait beside the counted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Backlog(u32),
    Queues(u64),
    /// Also behind dead rows: others have drained jobs while a transaction stays open, so that no
    /// vacuum can remove their rows.
    Transaction,
}

/// How many times the counted number of jobs is drained first.
const WAVES: u32 = 5;

/// The result of a drain.
struct Drained {
    rate: f64,
    jobs: u64,
    costs: Vec<Cost>,
    /// Bytes of the server's log.
    written: Option<u64>,
}

/// Measures every combination of workers beside its ceiling, with finished jobs kept and deleted.
pub(crate) fn drains(run: &mut Run) -> Result<()> {
    for finished in [FinishedRow::Keep, FinishedRow::Delete] {
        let ceiling = ceilings(run, finished)?;
        for (processes, threads) in [(1, 16), (1, 4), (1, 1), (2, 8)] {
            let crew = Crew {
                processes,
                threads,
                finished,
            };
            run.saying(&crew.name());
            let drained = drain(run, crew, Beside::Nothing)?;
            let name = crew.name();
            run.figures.note_of(&name, "jobs/s", drained.rate, &ceiling);
            note_costs(run, &name, &drained);
        }
    }
    Ok(())
}

/// Measures with very many jobs waiting, and with very many queues.
pub(crate) fn backlogs(run: &mut Run) -> Result<()> {
    let crew = Crew {
        processes: 1,
        threads: 16,
        finished: FinishedRow::Keep,
    };
    let name = crew.name();
    let without = format!("{name}, nothing beside");
    for (beside, what) in [
        (Beside::Nothing, without.clone()),
        (
            Beside::Backlog(run.settings.backlog),
            format!("{name}, {} jobs waiting", run.settings.backlog),
        ),
        (Beside::Queues(10_000), format!("{name}, 10000 queues")),
        (
            Beside::Transaction,
            format!("{name}, a transaction open meanwhile"),
        ),
    ] {
        run.saying(&what);
        let drained = drain(run, crew, beside)?;
        if beside == Beside::Nothing {
            run.figures.note(&what, "jobs/s", drained.rate);
        } else {
            run.figures.note_of(&what, "jobs/s", drained.rate, &without);
        }
    }
    Ok(())
}

/// Measures one and two clients, with small and large batches. Returns the name of the figure that
/// drains are compared with.
fn ceilings(run: &mut Run, finished: FinishedRow) -> Result<String> {
    for batch in [500, 100] {
        for clients in [1, 2] {
            let name = ceiling(batch, clients, finished);
            run.saying(&name);
            let value = ceilings::drain(run, clients, Shape { batch, finished })?;
            run.figures.note(&name, "jobs/s", value);
        }
    }
    // SQLite has one writer: a second client only waits.
    let clients = if run.is_postgres()? { 2 } else { 1 };
    Ok(ceiling(100, clients, finished))
}

fn ceiling(batch: usize, clients: u32, finished: FinishedRow) -> String {
    let kept = kept(finished);
    format!("plain SQL: drain, {kept}, batches of {batch}, {clients} clients")
}

fn kept(finished: FinishedRow) -> &'static str {
    match finished {
        FinishedRow::Keep => "kept",
        FinishedRow::Delete => "deleted",
    }
}

impl Crew {
    fn name(self) -> String {
        let Crew {
            processes, threads, ..
        } = self;
        let kept = kept(self.finished);
        format!("drain, {kept}, {processes} x {threads} threads")
    }
}

fn note_costs(run: &mut Run, name: &str, drained: &Drained) {
    let sum = |value: fn(&Cost) -> u64| drained.costs.iter().map(value).sum::<u64>() as f64;
    let jobs = drained.jobs as f64;
    let statements = sum(|cost| cost.statements) / jobs;
    let transactions = sum(|cost| cost.transactions) / jobs;
    let memory = sum(|cost| cost.peak_kib.unwrap_or(0));
    let cpu = drained.costs.iter().map(|cost| cost.cpu).sum::<Duration>();
    // A server writes its log; on SQLite the worker writes everything itself.
    let by_worker = drained.costs.iter().map(|cost| cost.written).sum();
    let bytes: Option<u64> = drained.written.or(by_worker);
    let figures = &mut run.figures;
    figures.note(&format!("{name}: statements"), "a job", statements);
    figures.note(&format!("{name}: commits"), "a job", transactions);
    if let Some(bytes) = bytes {
        let value = bytes as f64 / jobs;
        figures.note(&format!("{name}: log written"), "bytes a job", value);
    }
    let micros = cpu.as_secs_f64() * 1e6 / jobs;
    figures.note(&format!("{name}: processor"), "us a job", micros);
    figures.note(&format!("{name}: peak memory"), "KiB", memory);
}

fn drain(run: &Run, crew: Crew, beside: Beside) -> Result<Drained> {
    let place = run.place()?;
    let database = place.migrated()?;
    let jobs = run.settings.jobs;
    let mut reader = database.connect()?;
    if beside == Beside::Transaction {
        counters::open_snapshot(&mut reader.as_conn()).doing("open a transaction")?;
        for _ in 0..WAVES {
            enqueues::fill_database(&database, jobs, |_| "default".to_owned())?;
            move_jobs(run, place.url(), &database, crew)?;
        }
    }
    enqueues::fill_database(&database, jobs, |number| match beside {
        Beside::Queues(queues) => format!("queue_{}", number % queues),
        _ => "default".to_owned(),
    })?;
    if let Beside::Backlog(jobs) = beside {
        enqueues::fill_database(&database, jobs, |_| "default".to_owned())?;
    }
    move_jobs(run, place.url(), &database, crew)
}

/// Measures from the start of the workers until all jobs have finished.
fn move_jobs(run: &Run, url: &str, database: &Database, crew: Crew) -> Result<Drained> {
    let mut programs = Vec::new();
    for _ in 0..crew.processes {
        let delete = crew.finished == FinishedRow::Delete;
        programs.push(Program::start(url, crew.threads, delete)?);
    }
    let before = written(database)?;
    let begun = clock::instant();
    for program in &mut programs {
        program.nudge()?;
    }
    let done = wait(&programs, u64::from(run.settings.jobs), run.settings.limit)?;
    let took = begun.elapsed();
    let after = written(database)?;
    let costs = programs.iter_mut().map(Program::cost);
    let costs = costs.collect::<Result<Vec<_>>>()?;
    programs.into_iter().for_each(Program::stop);
    Ok(Drained {
        rate: rate(done, took),
        jobs: done.max(1),
        costs,
        written: before.zip(after).map(|(before, after)| after - before),
    })
}

/// Waits until this many have finished, or time is up. Returns how many have.
fn wait(programs: &[Program], jobs: u64, limit: Duration) -> Result<u64> {
    let deadline = clock::deadline(limit);
    let mut finished = vec![0; programs.len()];
    loop {
        for (program, finished) in programs.iter().zip(&mut finished) {
            if let Some(Told::Finished(count)) = program.next_within(Duration::from_millis(1))? {
                *finished = count;
            }
        }
        let sum = finished.iter().sum();
        if sum >= jobs || clock::instant() >= deadline {
            return Ok(sum);
        }
    }
}

fn written(database: &Database) -> Result<Option<u64>> {
    let position = counters::written(&mut database.connect()?.as_conn())
        .doing("ask the server how much it has written")?;
    Ok(position.and_then(|position| u64::try_from(position).ok()))
}
