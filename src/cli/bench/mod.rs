//! `windlass bench`: how fast this database moves jobs, and how fast it could.

mod enqueues;
mod figures;
mod latency;
mod plain;
mod program;
mod work;

pub(super) use program::BenchWorker;

use super::mount::At;
use super::{Failure, output};
use crate::db::bench::{self, Place};
use crate::db::{AsConn as _, Database};
use crate::error::{Doing as _, Error, Result};
use figures::{Figures, Results};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Measure how fast a database moves jobs, beside plain SQL on the same one
///
/// Works in a schema of its own, or on SQLite in a directory beside the
/// file that is named, and removes it. Takes some minutes and needs the
/// machine for itself.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  windlass bench --database postgres://localhost/app
  windlass bench --database sqlite://jobs.db --only enqueue --only drain
  windlass bench --rounds 5 --json > bench.json

What each figure means, and how to read it: docs/performance.md.")]
pub(super) struct Bench {
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Jobs that are drained, or enqueued in bulk, for one figure
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Jobs that each thread enqueues one at a time
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..))]
    singles: u32,
    /// Jobs that wait behind those that are drained
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u32,
    /// Jobs whose way to an idle worker is timed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// How long an idle worker is watched
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    idle: Duration,
    /// After how long a drain is cut off and judged by what was done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    limit: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// One at a time and in bulk
    Enqueue,
    /// No-op jobs, by 1 to 16 threads
    Drain,
    /// The same with very many jobs or queues waiting
    Backlog,
    /// From the enqueue to an idle worker
    Latency,
    /// What a worker without work costs
    Idle,
}

/// Everything that is measured goes through here.
struct Run {
    settings: Bench,
    url: String,
    places: Places,
    figures: Figures,
    progress: output::Progress,
}

/// Whoever interrupts a benchmark wants no remains of it. `None`: it was, and
/// nothing more may be made.
type Places = Arc<Mutex<Option<Vec<Arc<Place>>>>>;

impl Bench {
    /// Measures, and shows what came of it.
    pub(super) fn show(&self, at: &At<'_>) -> Result<ExitCode, Failure> {
        Ok(output::show(&self.run(&at.any_url()?)?, self.json))
    }

    /// Measures all that was asked for. When a signal cuts it short, what it
    /// has put into the database is removed first.
    fn run(&self, url: &str) -> Result<Results> {
        let signals = signal_hook::iterator::Signals::new([
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
        ]);
        let mut signals = signals.map_err(|source| Error::Io {
            action: "handle",
            path: "signals".into(),
            source,
        })?;
        let places = Places::new(Mutex::new(Some(Vec::new())));
        let (sender, result) = crossbeam_channel::bounded(1);
        let run = Run {
            settings: self.clone(),
            url: url.to_owned(),
            places: Arc::clone(&places),
            figures: Figures::default(),
            progress: output::Progress::of_something(),
        };
        let handle = signals.handle();
        std::thread::scope(|scope| {
            let measured = sender.clone();
            scope.spawn(move || {
                if signals.forever().next().is_some() {
                    let _ = sender.send(None);
                }
            });
            std::thread::spawn(move || measured.send(Some(run.measure())));
            let result = result.recv().ok().flatten();
            handle.close();
            let left = places.lock().unwrap_or_else(PoisonError::into_inner).take();
            left.iter().flatten().for_each(|place| place.remove());
            result.unwrap_or_else(|| Err(interrupted()))
        })
    }
}

impl Run {
    fn measure(mut self) -> Result<Results> {
        let mut connection = Database::open(&self.url)?;
        if !connection.listens_by_notification() {
            connection = self.place()?.migrated()?;
        }
        let version = bench::version(&mut connection.connect()?.as_conn())
            .doing("ask the database for its version")?;
        for round in 1..=self.settings.rounds {
            self.figures.round = round;
            for (part, measure) in [
                (
                    Part::Enqueue,
                    enqueues::measure as fn(&mut Run) -> Result<()>,
                ),
                (Part::Drain, work::drains),
                (Part::Backlog, work::backlogs),
                (Part::Latency, latency::pick_ups),
                (Part::Idle, latency::idle),
            ] {
                let only = &self.settings.only;
                if only.is_empty() || only.contains(&part) {
                    measure(&mut self)?;
                }
            }
        }
        self.progress.end();
        Ok(self.figures.results(version, self.settings.rounds))
    }

    /// An empty schema or file.
    fn place(&self) -> Result<Arc<Place>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.as_mut().ok_or_else(interrupted)?;
        // Those that nobody uses any more.
        places.retain(|place| Arc::strong_count(place) > 1);
        let place = Arc::new(Place::create(&self.url)?);
        places.push(Arc::clone(&place));
        Ok(place)
    }

    fn is_postgres(&self) -> Result<bool> {
        Ok(Database::open(&self.url)?.listens_by_notification())
    }

    fn saying(&self, what: &str) {
        let (round, rounds) = (self.figures.round, self.settings.rounds);
        self.progress
            .say(format!("round {round} of {rounds}: {what}"));
    }
}

fn interrupted() -> Error {
    Error::Io {
        action: "finish",
        path: "the benchmark".into(),
        source: std::io::ErrorKind::Interrupted.into(),
    }
}

/// Rows of one call, where jobs come in bulk.
const BULK: usize = 1_000;

/// How many there are, a second.
fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}
