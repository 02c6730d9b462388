//! Windlass beside other job frameworks for Rust: the same work on the same database in the same
//! run, in one table. README.md tells more.

mod database;
mod idle;
mod log;
mod machine;
mod measure;
mod place;
mod program;
mod row;
mod setting;
mod systems;
mod table;
mod usage;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use log::{Entry, Log};
use row::{Kind, Row};
use setting::{Name, Setting};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Figures;

/// Measure Windlass beside other job frameworks, on the same Postgres and the same disk.
///
/// Each figure has a database of its own, which is removed right after it. Takes a quarter of an
/// hour a round and needs the machine for itself.
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
    /// Jobs that wait, most of them until the end, where a backlog is drained
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..))]
    backlog: u32,
    /// Jobs that each caller enqueues one at a time
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    singles: u32,
    /// Jobs whose pick-up is timed
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// After how long a drain is cut off and judged by what was done
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    limit: Duration,
    /// Add each figure to this file, and measure nothing again that it has
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Begin no measurement after this time; exit with 75 if some are left, for another run with --log
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    stop_after: Option<Duration>,
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

/// The code of an exit before everything was measured.
const UNFINISHED: u8 = 75;

fn main() -> Result<ExitCode> {
    let program = Program::parse();
    match (program.driver, program.options) {
        (Some(Driver::Drive { setting }), _) => {
            let system = setting.system().context("another program drives it")?;
            windlass_peers_driver::run(&*system)?;
            Ok(ExitCode::SUCCESS)
        }
        (None, options) => {
            place::remove_on_interrupt()?;
            let options = options.context("--postgres and --sqlite are missing")?;
            let (figures, is_complete) = compare(&options)?;
            if options.json {
                println!("{}", figures.json()?);
            } else {
                println!("{}\n\n{}", machine::describe(&options)?, figures.text());
            }
            let code = if is_complete { 0 } else { UNFINISHED };
            Ok(ExitCode::from(code))
        }
    }
}

/// Every figure of every system, those of one row soon after each other. The second value is false
/// if some are missing.
fn compare(options: &Options) -> Result<(Figures, bool)> {
    let settings: Vec<Setting> = Setting::ALL
        .into_iter()
        .filter(|it| it.wanted(options))
        .collect();
    if settings.is_empty() {
        bail!("nothing to measure: give --postgres, --sqlite or both");
    }
    let rows = Row::ALL.into_iter();
    let rows = rows.filter(|row| options.kind.is_empty() || options.kind.contains(&row.kind()));
    let rows: Vec<Row> = rows.collect();
    let mut log = match &options.log {
        Some(path) => Log::open(path)?,
        None => Log::default(),
    };
    let is_complete = fill(&mut log, options, &settings, &rows)?;
    Ok((Figures::of(settings, rows, log), is_complete))
}

/// Measures all that the log does not have. Returns false if the time was up before, or if a
/// measurement failed: the others do not wait for it.
fn fill(log: &mut Log, options: &Options, settings: &[Setting], rows: &[Row]) -> Result<bool> {
    let start = Instant::now();
    let mut sources: Vec<Row> = Vec::new();
    for source in rows.iter().map(|row| row.source()) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    let mut settings = settings.to_vec();
    let mut is_complete = true;
    for round in 1..=options.rounds {
        let all = sources
            .iter()
            .flat_map(|row| settings.iter().map(move |it| (*row, *it)));
        for (row, setting) in all.filter(|(row, setting)| setting.measures(*row)) {
            if log.has(setting, row, round) {
                continue;
            }
            if options
                .stop_after
                .is_some_and(|time| start.elapsed() >= time)
            {
                return Ok(false);
            }
            let (database, label) = (setting.database(), setting.label());
            let what = format!("{database:?}, {}: {label}", row.heading());
            eprintln!("round {round} of {}: {what}", options.rounds);
            match measure::measure(options, setting, row) {
                Ok(measured) => log.note(Entry {
                    setting,
                    row,
                    round,
                    measured,
                })?,
                Err(error) => {
                    eprintln!("FAILED: {what}: {error:#}");
                    is_complete = false;
                }
            }
        }
        // So that no system always comes first.
        settings.rotate_left(1);
    }
    Ok(is_complete)
}
