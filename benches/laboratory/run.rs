//! One run of the laboratory: its settings and places.

use crate::bench::place::{Place, Places};
use crate::error::Result;
use crate::laboratory::kind::Kind;
use crate::laboratory::scale::ScaleOptions;
use crate::laboratory::web::options::WebOptions;
use crate::terminal;
use std::sync::Arc;
use std::time::Duration;

/// Measure how fast a database moves jobs, compared with plain SQL
///
/// Each figure has a ceiling: the same work by plain threads and plain SQL, in turn with Windlass.
/// Works in its own schema, or on SQLite in a directory beside the given file, and removes it
/// afterwards. Everything takes some ten minutes; nothing else should run on the machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  cargo run --release -p windlass-benches -- --database postgres://localhost/app
  cargo run --release -p windlass-benches -- --database sqlite://jobs.db --only noop,enqueue
  cargo run --release -p windlass-benches -- --rounds 5 --json > laboratory.json

What each figure means, and how to read it: docs/performance.md.")]
pub(crate) struct Settings {
    /// Only these kinds of work, separated by commas
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) only: Vec<Kind>,
    /// Only the figures whose names have this text
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) figure: String,
    /// Rounds in which Windlass and its ceiling are measured in turn
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
    /// The time for which an idle worker is observed
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) idle: Duration,
    /// The time after which a measurement is stopped and judged by the jobs done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) limit: Duration,
    #[command(flatten)]
    pub(crate) scale: ScaleOptions,
    #[command(flatten)]
    pub(crate) web: WebOptions,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The context of all measurements.
pub(crate) struct BenchRun {
    pub(crate) settings: Settings,
    pub(crate) is_postgres: bool,
    pub(crate) places: Places,
    pub(crate) progress: terminal::ProgressReport,
}

impl BenchRun {
    /// An empty schema or file.
    pub(crate) fn place(&self) -> Result<Arc<Place>> {
        self.places.create()
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

/// Rows in one call, for jobs in bulk.
pub(crate) const BULK: usize = 1_000;
