//! One run of the benchmark: its settings, places and figures.

use crate::bench::figures::Figures;
use crate::bench::place::Place;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::terminal::output;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Measure how fast a database moves jobs, compared with plain SQL
///
/// Works in its own schema, or on SQLite in a directory beside the given file, and removes it
/// afterwards. It takes some minutes; nothing else should run on the machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  windlass bench --database postgres://localhost/app
  windlass bench --database sqlite://jobs.db --only enqueue --only drain
  windlass bench --rounds 5 --json > bench.json

What each figure means, and how to read it: docs/performance.md.")]
pub(crate) struct Bench {
    /// Only these parts
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) only: Vec<Part>,
    /// How many times everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Jobs that are drained, or enqueued in bulk, for each figure
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: u32,
    /// Jobs that each thread enqueues one at a time
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) singles: u32,
    /// Jobs that wait behind the drained ones
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) backlog: u32,
    /// Jobs whose time to reach an idle worker is measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) samples: u32,
    /// How long an idle worker is observed
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) idle: Duration,
    /// The time after which a drain is stopped and judged by the jobs done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) limit: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part that can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// One at a time and in bulk
    Enqueue,
    /// No-op jobs, by 1 to 16 threads
    Drain,
    /// The same with very many waiting jobs or queues
    Backlog,
    /// From the enqueue to an idle worker
    Latency,
    /// The cost of an idle worker
    Idle,
}

/// The context of all measurements.
pub(crate) struct Run {
    pub(crate) settings: Bench,
    pub(crate) url: String,
    pub(crate) places: Places,
    pub(crate) figures: Figures,
    pub(crate) progress: output::Progress,
}

/// An interrupted benchmark must leave nothing behind. `None` after an interruption: nothing more
/// may be created.
pub(crate) type Places = Arc<Mutex<Option<Vec<Arc<Place>>>>>;

impl Run {
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

    pub(crate) fn is_postgres(&self) -> Result<bool> {
        Ok(Database::open(&self.url)?.listens_by_notification())
    }

    pub(crate) fn saying(&self, what: &str) {
        let (round, rounds) = (self.figures.round, self.settings.rounds);
        self.progress
            .say(format!("round {round} of {rounds}: {what}"));
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
