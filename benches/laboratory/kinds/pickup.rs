//! An idle worker in another process: how soon it starts a job, hop by hop.

use crate::admin::queues::set_rails_option;
use crate::bench::figures::quantile;
use crate::bench::place::Place;
use crate::clock;
use crate::db::DbConnection;
use crate::db::conn::connection::AsConn as _;
use crate::db::schema::beside_rails::RailsOption;
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::class::Job as _;
use crate::laboratory::ceilings::{self, ACTION};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::jobs::Stamp;
use crate::laboratory::plain::{claim, enqueue, ruby};
use crate::laboratory::program::{Program, until_idle};
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;
use crate::laboratory::worker::Began;
use crossbeam_channel::{Receiver, unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) fn comparisons(_: &BenchRun) -> Vec<Comparison> {
    let plain = Ceiling::one("a thread that listens and claims", plain_pick_ups);
    vec![
        Comparison::new("", pick_ups).beside(plain),
        Comparison::new("of Ruby", pick_ups_of_ruby),
    ]
}

/// The times of one job.
#[derive(Debug, Clone, Copy)]
struct Sample {
    called: Duration,
    answered: Duration,
    began: Began,
}

fn pick_ups(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    place.migrated()?;
    pick_ups_by(run, &place, |connection| {
        Stamp {}.enqueue(connection).map(drop)
    })
}

/// Jobs that Ruby enqueues, where that was asked for: see [`RailsOption::WakeFromRuby`].
fn pick_ups_of_ruby(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let mut connection = place.migrated()?.connect()?;
    set_rails_option(&mut connection, RailsOption::WakeFromRuby, true)?;
    pick_ups_by(run, &place, |connection| {
        ruby::enqueue(&mut connection.as_conn(), Stamp::NAME).during(ACTION)
    })
}

/// Returns the times of jobs, each of which the call lets run.
pub(super) fn pick_ups_by(
    run: &BenchRun,
    place: &Place,
    mut enqueue: impl FnMut(&mut DbConnection) -> Result<()>,
) -> Result<Vec<FigureValue>> {
    let database = place.migrated()?;
    let setup = Setup {
        threads: 5,
        runs: u64::MAX,
        delete: false,
        dispatcher: false,
        queue: "*",
    };
    let mut program = Program::start(place.url(), setup)?;
    program.nudge()?;
    let mut connection = database.connect()?;
    let samples = in_turn(run.settings.samples, || {
        let called = clock::since_boot();
        enqueue(&mut connection)?;
        let answered = clock::since_boot();
        let began = program.began()?;
        Ok(Sample {
            called,
            answered,
            began,
        })
    })?;
    program.stop();
    Ok(hops(&samples))
}

/// The minimum: a thread is notified of a commit and claims the row, nothing else.
fn plain_pick_ups(run: &BenchRun) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let mut listener = database.listen(None)?;
    let mut claimer = database.connect()?;
    let mut enqueuer = database.connect()?;
    let (claimed, claims) = unbounded();
    let is_over = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && listener.wait(TURN).is_ok() {
                while let Some(began) = claim_one(&mut claimer) {
                    let _ = claimed.send(began);
                }
            }
        });
        let samples = in_turn(run.settings.samples, || {
            plain_sample(&mut enqueuer, &claims)
        });
        is_over.store(true, Ordering::Relaxed);
        samples
    })?;
    // It has no hop from the claim to the start: the same thread goes on.
    let mut hops = hops(&samples);
    hops.truncate(2 * (HOPS.len() - 1));
    Ok(hops)
}

fn claim_one(connection: &mut DbConnection) -> Option<Began> {
    let claiming = clock::since_boot();
    let jobs = connection
        .with_write_lock(|conn| claim::claim(conn, 1))
        .ok()?;
    let claimed = clock::since_boot();
    (!jobs.is_empty()).then_some(Began {
        ended: Duration::ZERO,
        claiming,
        claimed,
        started: claimed,
    })
}

fn plain_sample(connection: &mut DbConnection, claims: &Receiver<Began>) -> Result<Sample> {
    let called = clock::since_boot();
    connection
        .with_write_lock(|conn| enqueue::one_and_tell(conn, "{}"))
        .during(ACTION)?;
    let answered = clock::since_boot();
    let began = claims.recv_timeout(PATIENCE).map_err(|_| Error::Io {
        action: "hear from",
        path: "the listener of the ceiling".into(),
        source: std::io::ErrorKind::TimedOut.into(),
    })?;
    Ok(Sample {
        called,
        answered,
        began,
    })
}

/// The time between two checks of the listening thread whether it is over.
const TURN: Duration = Duration::from_millis(100);

/// If there is no notification for this long, none will come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes samples, each once all processes are idle.
fn in_turn(samples: u32, mut take: impl FnMut() -> Result<Sample>) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    // The first one wakes up everything and is not counted.
    for sample in 0..=samples {
        until_idle();
        let one = take()?;
        if sample > 0 {
            all.push(one);
        }
    }
    Ok(all)
}

/// A time between two moments of a sample, and its names.
type Hop = (&'static str, &'static str, fn(&Sample) -> Duration);

/// A job may start before its enqueue is answered, and be claimed.
const HOPS: [Hop; 6] = [
    ("from the call, p50", "from the call, p99", |one| {
        one.began.started.saturating_sub(one.called)
    }),
    ("from the answer, p50", "from the answer, p99", |one| {
        one.began.started.saturating_sub(one.answered)
    }),
    ("insert and commit, p50", "insert and commit, p99", |one| {
        one.answered.saturating_sub(one.called)
    }),
    ("answer to wake-up, p50", "answer to wake-up, p99", |one| {
        one.began.claiming.saturating_sub(one.answered)
    }),
    ("claim, p50", "claim, p99", |one| {
        one.began.claimed.saturating_sub(one.began.claiming)
    }),
    ("claim to start, p50", "claim to start, p99", |one| {
        one.began.started.saturating_sub(one.began.claimed)
    }),
];

fn hops(samples: &[Sample]) -> Vec<FigureValue> {
    let quantiles = HOPS.iter().flat_map(|(p50, p99, time)| {
        let times = samples.iter().map(|one| time(one).as_secs_f64() * 1e3);
        let times: Vec<f64> = times.collect();
        [(*p50, 0.5), (*p99, 0.99)]
            .map(|(name, part)| FigureValue::new(name, "ms", quantile(times.clone(), part)))
    });
    quantiles.collect()
}
