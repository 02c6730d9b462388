//! Windlass beside other job frameworks for Rust: the same work on the same database in the same
//! run, in one table. README.md tells more.

mod database;
mod measure;
mod place;
mod program;
mod row;
mod setting;
mod systems;
mod table;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use row::{Kind, Row};
use setting::{Name, Setting};
use std::path::PathBuf;
use std::time::Duration;
use table::Figures;

/// Measure Windlass beside other job frameworks, on the same Postgres and the same disk.
///
/// Each figure has a database of its own, which is removed right after it. Takes some minutes a
/// round and needs the machine for itself.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    options: Option<Options>,
    #[command(subcommand)]
    driver: Option<Driver>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A Postgres server, as the address of one of its databases; the user may create others
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    postgres: Option<String>,
    /// A directory for SQLite files
    #[arg(long, value_name = "DIRECTORY")]
    sqlite: Option<PathBuf>,
    /// Only these systems
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Name>,
    /// Only this kind of row
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Vec<Kind>,
    /// Rounds in which everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// No-op jobs that are drained, or enqueued in bulk; fewer of the others
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(100..))]
    jobs: u32,
    /// Jobs that each caller enqueues one at a time
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    singles: u32,
    /// Jobs whose pick-up is timed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// After how long a drain is cut off and judged by what was done
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    limit: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Driver {
    /// Drive one system, for the process that started this one
    #[command(hide = true)]
    Drive { setting: Setting },
}

fn main() -> Result<()> {
    let program = Program::parse();
    match (program.driver, program.options) {
        (Some(Driver::Drive { setting }), _) => {
            let system = setting.system().context("another program drives it")?;
            windlass_peers_driver::run(&*system)
        }
        (None, options) => {
            place::remove_on_interrupt()?;
            let options = options.context("--postgres and --sqlite are missing")?;
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

/// Every figure of every system, those of one row soon after each other.
fn compare(options: &Options) -> Result<Figures> {
    let mut settings: Vec<Setting> = Setting::ALL
        .into_iter()
        .filter(|it| it.wanted(options))
        .collect();
    if settings.is_empty() {
        bail!("nothing to measure: give --postgres, --sqlite or both");
    }
    let rows = Row::ALL.into_iter();
    let rows = rows.filter(|row| options.kind.is_empty() || options.kind.contains(&row.kind()));
    let rows: Vec<Row> = rows.collect();
    let mut figures = Figures::of(settings.clone(), rows.clone());
    for round in 1..=options.rounds {
        for &row in rows.iter().filter(|row| row.is_measured()) {
            for &setting in settings.iter().filter(|setting| setting.measures(row)) {
                let (rounds, what) = (options.rounds, row.heading());
                eprintln!("round {round} of {rounds}: {what}: {}", setting.label());
                let measured = measure::measure(options, setting, row);
                let what = || format!("{what}: {}", setting.label());
                figures.note(setting, round, &measured.with_context(what)?);
            }
        }
        // So that no system always comes first.
        settings.rotate_left(1);
    }
    Ok(figures)
}
