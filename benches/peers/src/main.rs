//! Windlass beside other job frameworks for Rust: the same work on the same
//! Postgres in the same run, in one table. README.md tells more.

mod measure;
mod place;
mod program;
mod setting;
mod systems;
mod table;
mod worker;

use anyhow::{Context as _, Result};
use clap::Parser;
use measure::Measured;
use setting::{COLUMNS, Column, Name, Setting};
use std::time::Duration;
use table::Figures;

/// Measure Windlass beside other job frameworks, on the same Postgres.
///
/// Each works in a schema of its own, which is removed at the end. Takes some
/// minutes a round and needs the machine for itself.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    options: Option<Options>,
    #[command(subcommand)]
    worker: Option<Worker>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A Postgres database, as an address that begins with `postgres://`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database: String,
    /// Only these systems
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Name>,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Jobs that are drained, or enqueued in bulk, for one figure
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Jobs that each caller enqueues one at a time
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    singles: u32,
    /// Jobs whose way to an idle worker is timed, within three times the limit
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// After how long a drain is cut off and judged by what was done
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    limit: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Worker {
    /// Perform jobs, for the process that started this one
    #[command(hide = true)]
    Worker {
        setting: Setting,
        workers: u32,
        jobs: u32,
    },
}

fn main() -> Result<()> {
    let program = Program::parse();
    match (program.worker, program.options) {
        (
            Some(Worker::Worker {
                setting,
                workers,
                jobs,
            }),
            _,
        ) => worker::run(setting, workers, jobs),
        (None, options) => {
            place::remove_on_interrupt()?;
            let options = options.context("--database is missing")?;
            let figures = compare(&options)?;
            let text = if options.json {
                figures.json()?
            } else {
                figures.text()
            };
            println!("{text}");
            Ok(())
        }
    }
}

/// Every figure of every system, those of one column soon after each other.
fn compare(options: &Options) -> Result<Figures> {
    let asked =
        |setting: &Setting| options.only.is_empty() || options.only.contains(&setting.name());
    let mut settings: Vec<Setting> = Setting::ALL.into_iter().filter(asked).collect();
    let mut figures = Figures::of(settings.clone());
    for round in 1..=options.rounds {
        for column in COLUMNS {
            for &setting in settings.iter().filter(|setting| setting.measures(column)) {
                let measured = measure(options, setting, column, round);
                let what = || format!("{}: {}", column.heading(), setting.label());
                figures.note(setting, round, &measured.with_context(what)?);
            }
        }
        // So that nobody always comes first.
        settings.rotate_left(1);
    }
    Ok(figures)
}

fn measure(options: &Options, setting: Setting, column: Column, round: u32) -> Result<Measured> {
    let saying = |what: &str| {
        let (rounds, label) = (options.rounds, setting.label());
        eprintln!("round {round} of {rounds}: {what}: {label}");
    };
    match column {
        Column::Enqueue(_) | Column::Bulk => {
            saying(&column.heading());
            measure::enqueue(options, setting, column)
        }
        Column::Drain(workers) => {
            saying(&column.heading());
            measure::drain(options, setting, workers)
        }
        Column::PickUpP50 => {
            saying("pick-up");
            measure::pick_up(options, setting)
        }
        // Comes with the other.
        Column::PickUpP99 => Ok(Measured::new()),
    }
}
