//! The kinds of work, each on tables of its own.

use crate::bench::figures::{Figure, quantile};
use crossbeam_channel::{Receiver, Sender, unbounded};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use windlass::hooks::Subscriber;
use windlass::internal::clock;
use windlass::{
    Context, Database, DbConnection, Error, Event, Job, JobResult, NewJob, Registry, Result,
    Worker, enqueue_all,
};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Enqueueing one job a call
    Enqueue,
    /// Enqueueing 1,000 jobs a call
    EnqueueAll,
    /// Running jobs that do nothing
    Drain,
    /// From the commit of an enqueue to the start in an idle worker
    Pickup,
}

/// The size of each measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Amounts {
    /// Jobs of each measurement. Default: as many as take about a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Threads of the worker
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: u32,
    /// Jobs whose start is timed, for `pickup`
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// The time after which a drain is stopped and judged by the jobs done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    limit: Duration,
}

/// Jobs of one call, where they are enqueued in bulk.
const BULK: u32 = 1_000;

/// The number of jobs of a drain: so many that the start of the worker does not count.
const DRAINED: u32 = 50_000;

/// The time without a start of a job after which a drain is given up.
const PATIENCE: Duration = Duration::from_secs(60);

impl Kind {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Measures once, in an empty database.
    pub(crate) fn measure(self, amounts: &Amounts, database: &Database) -> Result<Vec<Figure>> {
        let jobs = |default| amounts.jobs.unwrap_or(default);
        let one = |figure: Figure| vec![figure];
        match self {
            Kind::Enqueue => enqueue(database, jobs(2_000)).map(one),
            Kind::EnqueueAll => enqueue_in_bulk(database, jobs(50_000)).map(one),
            Kind::Drain => drain(amounts, database, jobs(DRAINED)).map(one),
            Kind::Pickup => pick_ups(database, amounts.samples).map(Vec::from),
        }
    }
}

/// A job that only reports its start.
#[derive(Debug, Serialize, Deserialize)]
struct NoOp {
    number: u32,
}

impl Job for NoOp {
    const NAME: &'static str = "windlass_bench_no_op";
    type State = Option<Sender<Instant>>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Self::State>) -> JobResult {
        if let Some(starts) = cx.state() {
            let _ = starts.send(clock::instant());
        }
        Ok(())
    }
}

fn enqueue(database: &Database, jobs: u32) -> Result<Figure> {
    let mut connection = database.connect()?;
    let begun = clock::instant();
    for number in 0..jobs {
        NoOp { number }.enqueue(&mut connection)?;
    }
    Ok(Figure::rate(u64::from(jobs), begun.elapsed()))
}

fn enqueue_in_bulk(database: &Database, jobs: u32) -> Result<Figure> {
    let mut connection = database.connect()?;
    let begun = clock::instant();
    fill(&mut connection, jobs)?;
    Ok(Figure::rate(u64::from(jobs), begun.elapsed()))
}

fn fill(connection: &mut DbConnection, jobs: u32) -> Result<()> {
    for first in (0..jobs).step_by(BULK as usize) {
        let numbers = first..jobs.min(first + BULK);
        let jobs = numbers.map(|number| NewJob::new(&NoOp { number }));
        enqueue_all(connection, jobs.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// An event of a worker, with its time.
enum Told {
    Registered(Instant),
    Finished(Instant),
}

fn telling() -> (Subscriber, Receiver<Told>) {
    let (sender, told) = unbounded();
    let subscriber = Subscriber::new(move |event| {
        let _ = match event {
            Event::Registered { .. } => sender.send(Told::Registered(clock::instant())),
            Event::Finished { .. } => sender.send(Told::Finished(clock::instant())),
            _ => return,
        };
    });
    (subscriber, told)
}

/// Measures from the registration of a worker to the end of the last job, or until the time is up.
fn drain(amounts: &Amounts, database: &Database, jobs: u32) -> Result<Figure> {
    fill(&mut database.connect()?, jobs)?;
    let (subscriber, told) = telling();
    let _worker = Worker::new(database, Registry::new().register::<NoOp>(None))
        .threads(amounts.threads as usize)
        .subscriber(subscriber)
        .start()?;
    let until = clock::deadline(amounts.limit);
    let (mut begun, mut ended, mut done) = (None, None, 0);
    while done < jobs
        && let Ok(told) = told.recv_deadline(until)
    {
        match told {
            Told::Registered(at) => begun = Some(at),
            Told::Finished(at) => (ended, done) = (Some(at), done + 1),
        }
    }
    match (begun, ended) {
        (Some(begun), Some(ended)) => {
            let took = ended.saturating_duration_since(begun);
            Ok(Figure::rate(u64::from(done), took))
        }
        _ => Err(silent()),
    }
}

/// Measures pick-ups. The first one wakes everything up, and is not counted.
fn pick_ups(database: &Database, samples: u32) -> Result<[Figure; 2]> {
    let (starts, started) = unbounded();
    let (subscriber, told) = telling();
    let _worker = Worker::new(database, Registry::new().register::<NoOp>(Some(starts)))
        .subscriber(subscriber)
        .start()?;
    told.recv_timeout(PATIENCE).map_err(|_| silent())?;
    let mut connection = database.connect()?;
    let mut times = Vec::new();
    for number in 0..=samples {
        // Long enough for the worker to become idle, and not a multiple of any interval.
        clock::nap(Duration::from_millis(fastrand::u64(20..80)));
        NoOp { number }.enqueue(&mut connection)?;
        let committed = clock::instant();
        let start = started.recv_timeout(PATIENCE).map_err(|_| silent())?;
        // A job may start before its enqueue is answered.
        let took = start.saturating_duration_since(committed);
        if number > 0 {
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    let [p50, p99] = [0.5, 0.99].map(|part| quantile(times.clone(), part));
    Ok([("p50", p50), ("p99", p99)].map(|(name, value)| Figure {
        name,
        unit: "ms",
        value,
    }))
}

fn silent() -> Error {
    Error::Io {
        action: "hear from",
        path: "the worker of the benchmark".into(),
        source: std::io::ErrorKind::TimedOut.into(),
    }
}
