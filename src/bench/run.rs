//! One run of the benchmark: its settings and places.

use crate::bench::kind::Kind;
use crate::bench::place::Place;
use crate::bench::scale::ScaleOptions;
#[cfg(feature = "web")]
use crate::bench::web::options::WebOptions;
use crate::error::{Error, Result};
use crate::terminal::output;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Measure how fast a database moves jobs, compared with plain SQL
///
/// Each figure has a ceiling: the same work by plain threads and plain SQL, in turn with Windlass.
/// Works in its own schema, or on SQLite in a directory beside the given file, and removes it
/// afterwards. Everything takes some ten minutes; nothing else should run on the machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  windlass bench --database postgres://localhost/app
  windlass bench --database sqlite://jobs.db --only noop,enqueue
  windlass bench --rounds 5 --json > bench.json

What each figure means, and how to read it: docs/performance.md.")]
pub(crate) struct Bench {
    /// Only these kinds of work, separated by commas
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) only: Vec<Kind>,
    /// How many times Windlass and its ceiling are measured in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Jobs of each measurement. Default: as many as take about a second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Threads of the worker, and of the ceiling where its threads do more than move rows
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: u32,
    /// Jobs of other keys that are blocked, for `limit-1-among`
    #[arg(long, default_value_t = 200_000)]
    pub(crate) blocked: u32,
    /// Jobs that wait behind the drained ones, for `backlog`
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) backlog: u32,
    /// Jobs of the large batch, for `batches`
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batched: u32,
    /// Jobs that wait for events, for `waits`
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) waiting: u32,
    /// Jobs whose start is timed, for `pickup`, `urgent`, `batches` and `waits`
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,
    /// How long an idle worker is observed
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) idle: Duration,
    /// The time after which a measurement is stopped and judged by the jobs done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) limit: Duration,
    #[command(flatten)]
    pub(crate) scale: ScaleOptions,
    #[cfg(feature = "web")]
    #[command(flatten)]
    pub(crate) web: WebOptions,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The context of all measurements.
pub(crate) struct BenchRun {
    pub(crate) settings: Bench,
    pub(crate) url: String,
    pub(crate) is_postgres: bool,
    pub(crate) places: Places,
    pub(crate) progress: output::ProgressReport,
}

/// An interrupted benchmark must leave nothing behind. `None` after an interruption: nothing more
/// may be created.
pub(crate) type Places = Arc<Mutex<Option<Vec<Arc<Place>>>>>;

impl BenchRun {
    /// An empty schema or file.
    pub(crate) fn place(&self) -> Result<Arc<Place>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.as_mut().ok_or_else(interrupted)?;
        // Keep only those still in use.
        places.retain(|place| Arc::strong_count(place) > 1);
        let place = Arc::new(Place::create(&self.url)?);
        places.push(Arc::clone(&place));
        Ok(place)
    }

    /// Returns the number of jobs of a measurement.
    pub(crate) fn jobs(&self, default: u32) -> u32 {
        self.settings.jobs.unwrap_or(default)
    }

    /// Returns the number of threads of a plain program that does more than move rows. SQLite has
    /// one writer: further ones would only wait.
    pub(crate) fn plain_threads(&self) -> u32 {
        if self.is_postgres {
            self.settings.threads
        } else {
            1
        }
    }
}

pub(crate) fn interrupted() -> Error {
    Error::Io {
        action: "finish",
        path: "the benchmark".into(),
        source: std::io::ErrorKind::Interrupted.into(),
    }
}

/// Rows in one call, for jobs in bulk.
pub(crate) const BULK: usize = 1_000;

/// Returns the rate per second.
pub(crate) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}
