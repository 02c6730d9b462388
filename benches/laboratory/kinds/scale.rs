//! Many worker processes, and many finished jobs that are kept.

use crate::admin::queues::{pause_queue, resume_queue};
use crate::bench::figures::rate;
use crate::bench::place::Place;
use crate::clock;
use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::Plain;
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::{Make, Sleep, nothing};
use crate::laboratory::kept;
use crate::laboratory::program::Program;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crate::laboratory::sql::execute;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the table of jobs, beside those of the migrations.
const SETTINGS: [(&str, &str); 4] = [
    ("fillfactor 100", "fillfactor = 100"),
    ("fillfactor 85", "fillfactor = 85"),
    ("no autovacuum", "autovacuum_enabled = false"),
    (
        "autovacuum after 10,000 rows",
        "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000",
    ),
];

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let workers = &run.settings.scale.workers;
    let mut all: Vec<_> = workers.iter().map(|&count| no_ops(run, count)).collect();
    all.extend(workers.iter().map(|&count| sleeps(run, count)));
    let grown = Rc::new(RefCell::new(Grown::default()));
    let kept = run.settings.scale.kept.iter();
    all.extend(kept.map(|&count| among_kept(run, &grown, count)));
    if run.is_postgres {
        let settings = SETTINGS.into_iter();
        all.extend(settings.map(|(name, setting)| with_settings(run, name, setting)));
    }
    all
}

fn no_ops(run: &BenchRun, workers: u32) -> Comparison {
    let jobs = run.jobs(drains::NO_OP);
    let by = move |workers| move |run: &BenchRun| by_many(run, (workers, 1), jobs, &nothing);
    let clients = Plain {
        clients: if run.is_postgres { workers } else { 1 },
        ..Plain::of(run, jobs)
    };
    Comparison::new(format!("no-op jobs, {workers} workers"), by(workers))
        .beside(Ceiling::one("one worker", by(1)))
        .beside(clients.ceiling())
}

/// Each worker sleeps for two seconds in all.
fn sleeps(run: &BenchRun, workers: u32) -> Comparison {
    const MICROS: u64 = 10_000;
    let jobs = run.jobs(workers * 200);
    let make = |_| NewJob::new(&Sleep { micros: MICROS });
    let by =
        move |workers, threads| move |run: &BenchRun| by_many(run, (workers, threads), jobs, &make);
    let most = f64::from(workers) * 1e6 / MICROS as f64;
    let all_at_once = move |_: &BenchRun| Ok(vec![FigureValue::new("", UNIT, most)]);
    Comparison::new(format!("jobs of 10 ms, {workers} workers"), by(workers, 1))
        .beside(Ceiling::one(
            "one worker of as many threads",
            by(1, workers),
        ))
        .beside(Ceiling::one("threads that only sleep", all_at_once))
}

const UNIT: &str = "runs/s";

/// Lets as many processes drain jobs. They know how long these take, and wait for work when it begins.
fn by_many(
    run: &BenchRun,
    (workers, threads): (u32, u32),
    jobs: u32,
    make: &Make<'_>,
) -> Result<Vec<FigureValue>> {
    const QUEUE: &str = "default";
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    let setup = Setup {
        threads,
        runs: u64::MAX,
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let _programs = started(place.url(), setup, workers, &mut connection)?;
    let to_learn = workers * threads * run.settings.scale.learned;
    drains::fill(&mut connection, to_learn, make)?;
    wait_until(|| kept::is_drained(&mut connection))?;
    pause_queue(&mut connection, QUEUE, "the laboratory", "")?;
    drains::fill(&mut connection, jobs, make)?;
    // They look some more times before they wait to be woken.
    clock::nap(run.settings.scale.settle);
    resume_queue(&mut connection, QUEUE)?;
    let from = clock::instant();
    wait_until(|| kept::is_drained(&mut connection))?;
    let took = from.elapsed();
    Ok(FigureValue::rate(UNIT, u64::from(jobs), took))
}

/// Starts workers, not all at once: a server that has few cores would keep some waiting for a connection.
fn started(
    url: &str,
    setup: Setup,
    workers: u32,
    connection: &mut DbConnection,
) -> Result<Vec<Program>> {
    let programs = (0..workers).map(|_| Program::start(url, setup));
    let mut programs = programs.collect::<Result<Vec<_>>>()?;
    let mut count = 0;
    for some in programs.chunks_mut(10) {
        some.iter_mut().try_for_each(Program::nudge)?;
        count += some.len() as i64;
        wait_until(|| Ok(kept::registered(connection)? >= count))?;
    }
    Ok(programs)
}

/// No step of a measurement takes longer, unless something is stuck.
const LONGEST: Duration = Duration::from_secs(300);

fn wait_until(mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = clock::deadline(LONGEST);
    while !is_done()? {
        if clock::instant() > deadline {
            return Err(Error::Io {
                action: "wait for",
                path: "the workers of the benchmark".into(),
                source: std::io::ErrorKind::TimedOut.into(),
            });
        }
        clock::nap(Duration::from_millis(5));
    }
    Ok(())
}

/// A database that is filled further for each figure.
#[derive(Default)]
struct Grown {
    place: Option<Arc<Place>>,
    kept: u32,
}

impl Grown {
    /// Returns the database with as many jobs that have finished, or some more.
    fn with(&mut self, run: &BenchRun, count: u32) -> Result<(Arc<Place>, Database)> {
        let place = match &self.place {
            Some(place) => Arc::clone(place),
            None => Arc::clone(self.place.insert(run.place()?)),
        };
        let database = place.migrated()?;
        if self.kept < count {
            kept::add(&database, count - self.kept, &|done| {
                run.progress.say(format!("{done} jobs to keep"));
            })?;
            self.kept = count;
        }
        Ok((place, database))
    }
}

fn among_kept(run: &BenchRun, grown: &Rc<RefCell<Grown>>, count: u32) -> Comparison {
    let (jobs, grown) = (run.jobs(drains::NO_OP), Rc::clone(grown));
    let windlass = move |run: &BenchRun| {
        let (place, database) = grown.borrow_mut().with(run, count)?;
        fill_and_drain(run, (&place, &database), jobs)
    };
    Comparison::new(format!("{count} kept"), windlass).beside(Ceiling::one(
        "nothing kept",
        move |run| {
            let place = run.place()?;
            let database = place.migrated()?;
            fill_and_drain(run, (&place, &database), jobs)
        },
    ))
}

fn with_settings(run: &BenchRun, name: &str, setting: &'static str) -> Comparison {
    let jobs = run.jobs(drains::NO_OP);
    let last_wave = move |run: &BenchRun, setting: Option<&str>| {
        let place = run.place()?;
        let database = place.migrated()?;
        if let Some(setting) = setting {
            let text = format!("ALTER TABLE solid_queue_jobs SET ({setting})");
            execute(&mut database.connect()?.as_conn(), &text).during("set up the table")?;
        }
        for _ in 0..run.settings.scale.waves {
            fill_and_drain(run, (&place, &database), jobs)?;
        }
        fill_and_drain(run, (&place, &database), jobs)
    };
    Comparison::new(name, move |run| last_wave(run, Some(setting)))
        .beside(Ceiling::one("as migrated", move |run| last_wave(run, None)))
}

fn fill_and_drain(
    run: &BenchRun,
    (place, database): (&Place, &Database),
    jobs: u32,
) -> Result<Vec<FigureValue>> {
    let begun = clock::instant();
    drains::fill(&mut database.connect()?, jobs, &nothing)?;
    let enqueued = rate(u64::from(jobs), begun.elapsed());
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let cost = drains::move_jobs(run, place.url(), database, setup)?;
    let mut values = drains::rate(&cost);
    values.push(FigureValue::new("enqueue", "jobs/s", enqueued));
    Ok(values)
}
