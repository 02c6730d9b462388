//! An urgent job behind very many others: how long after the call of the enqueue it starts.

use crate::bench::figures::quantile;
use crate::clock;
use crate::db::{AsConn as _, DbConnection, prefer_indexes};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::class::Job as _;
use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::{self, ACTION};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::{Sleep, Stamp};
use crate::laboratory::plain::enqueue::READY;
use crate::laboratory::plain::outcome::{self, PlainOutcome};
use crate::laboratory::plain::statement::PlainChange;
use crate::laboratory::plain::{claim, enqueue};
use crate::laboratory::program::{Program, until_idle};
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crossbeam_channel::{Sender, unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The priority of the urgent jobs.
const URGENT: i32 = -1;

pub(crate) fn comparisons(_: &BenchRun) -> Vec<Comparison> {
    let of = |millis: u64| {
        let sleep = Duration::from_millis(millis);
        let plain = Ceiling::one("plain SQL, claims of 1", move |run| {
            plain_starts(run, sleep)
        });
        let figure = format!("behind jobs of {millis} ms");
        Comparison::new(figure, move |run| starts(run, sleep)).beside(plain)
    };
    vec![of(1), of(10)]
}

/// As many jobs as the threads cannot do while the samples are taken.
fn depth(run: &BenchRun, sleep: Duration) -> u32 {
    let pause = Duration::from_millis(80) + sleep;
    let seconds = (pause * (run.settings.samples + 2)).as_secs_f64();
    (seconds * f64::from(run.settings.threads) / sleep.as_secs_f64()) as u32
}

fn starts(run: &BenchRun, sleep: Duration) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    let micros = sleep.as_micros() as u64;
    let make = |_| NewJob::new(&Sleep { micros });
    drains::fill(&mut connection, depth(run, sleep), &make)?;
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::MAX,
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let mut program = Program::start(place.url(), setup)?;
    program.nudge()?;
    let times = in_turn(run.settings.samples, || {
        let called = clock::since_boot();
        Stamp {}.enqueue(&mut connection)?;
        Ok(program.began()?.started.saturating_sub(called))
    })?;
    program.stop();
    Ok(quantiles(&times))
}

/// Threads that claim one job each, sleep and finish it.
fn plain_starts(run: &BenchRun, sleep: Duration) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let mut enqueuer = database.connect()?;
    ceilings::fill(&mut enqueuer, depth(run, sleep), READY)?;
    let mut workers = Vec::new();
    for _ in 0..run.settings.threads {
        let mut worker = database.connect()?;
        worker.with_write_lock(prefer_indexes).during(ACTION)?;
        workers.push(worker);
    }
    let (sender, started) = unbounded();
    let is_over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        for worker in &mut workers {
            let (sender, is_over) = (sender.clone(), &is_over);
            scope.spawn(move || work(worker, sleep, &sender, is_over));
        }
        let times = in_turn(run.settings.samples, || {
            let called = clock::since_boot();
            enqueuer
                .with_write_lock(|conn| enqueue::one(conn, "{}", URGENT))
                .during(ACTION)?;
            let started = started.recv_timeout(PATIENCE).map_err(|_| Error::Io {
                action: "hear from",
                path: "the threads of the ceiling".into(),
                source: std::io::ErrorKind::TimedOut.into(),
            })?;
            Ok(started.saturating_sub(called))
        });
        is_over.store(true, Ordering::Relaxed);
        times
    })?;
    Ok(quantiles(&times))
}

/// If no urgent job starts for this long, none will.
const PATIENCE: Duration = Duration::from_secs(30);

const KEEP: PlainOutcome = outcome::KEEP;

fn work(
    connection: &mut DbConnection,
    sleep: Duration,
    started: &Sender<Duration>,
    is_over: &AtomicBool,
) {
    let end = PlainChange::new(&connection.as_conn(), KEEP);
    while !is_over.load(Ordering::Relaxed) {
        let Ok(claims) = connection.with_write_lock(|conn| claim::claim(conn, 1)) else {
            return;
        };
        for claim in &claims {
            if claim.priority == URGENT {
                let _ = started.send(clock::since_boot());
            } else {
                clock::nap(sleep);
            }
            let _ = connection.with_write_lock(|conn| end.apply(conn, &[claim.id]));
        }
        if claims.is_empty() {
            clock::nap(Duration::from_millis(1));
        }
    }
}

fn in_turn(samples: u32, mut take: impl FnMut() -> Result<Duration>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    // The first one may meet a program that has only just started.
    for sample in 0..=samples {
        until_idle();
        let time = take()?;
        if sample > 0 {
            times.push(time);
        }
    }
    Ok(times)
}

fn quantiles(times: &[Duration]) -> Vec<FigureValue> {
    let millis = times.iter().map(|time| time.as_secs_f64() * 1e3);
    let millis: Vec<f64> = millis.collect();
    let of = |name, part| FigureValue::new(name, "ms", quantile(millis.clone(), part));
    vec![of("start p50", 0.5), of("start p99", 0.99)]
}
