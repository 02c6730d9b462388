//! Breaks a running Windlass in every way that a seed draws, and then checks
//! that nothing was lost and nothing was done twice without need.
//!
//! ```text
//! cargo run --release -p windlass-tests --bin chaos -- --seconds 60 --seed 7
//! cargo run --release -p windlass-tests --bin chaos -- --database postgres://... --seconds 60
//! cargo run --release -p windlass-tests --bin chaos -- --database postgres://... --pooler /usr/sbin/pgbouncer
//! cargo run --release -p windlass-tests --bin chaos -- --batches 100000
//! cargo run --release -p windlass-tests --bin chaos -- --before ../before/target/release/chaos
//! ```
//!
//! It makes tables of its own in the database (a schema on Postgres, a file
//! when no database is given) and starts real supervisors, workers and
//! enqueuers. It ends with a table of the faults, jobs, executions and
//! violations, and with an exit code other than 0 on any violation.

#![allow(
    unreachable_pub,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a program of its own, that speaks to a terminal and waits for faults to happen"
)]

mod batches;
mod check;
mod extras;
mod faults;
mod flows;
mod gates;
mod jobs;
mod lock;
mod place;
mod pooler;
mod proxy;
mod rates;
mod report;
mod roles;
mod shares;
mod waits;

use clap::Parser;
use faults::{Fault, Faults};
use place::Place;
use roles::{Crew, Mix, Role};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Break a running Windlass, and check that nothing was lost or done twice.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// The database to work in; a SQLite file of its own when left out.
    #[arg(long)]
    database: Option<String>,
    /// The program `PgBouncer`, to run it in transaction mode between the processes and the database.
    #[arg(long)]
    pooler: Option<std::path::PathBuf>,
    /// The seconds for which faults are given.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seconds that the queues may take to drain after the last fault.
    #[arg(long, default_value_t = 300)]
    drain_seconds: u64,
    /// Of a thousand jobs, how many end their process.
    #[arg(long, default_value_t = 1)]
    killers: u32,
    /// Of a thousand jobs, how many take seconds.
    #[arg(long, default_value_t = 60)]
    long: u32,
    /// The most jobs that are enqueued at once.
    #[arg(long, default_value_t = 1)]
    lot: u32,
    /// While more jobs than this are ready, none are enqueued.
    #[arg(long, default_value_t = 10_000)]
    waiting: u32,
    #[command(flatten)]
    amounts: extras::Amounts,
    /// The most faults that are given at once.
    #[arg(long, default_value_t = 1)]
    at_once: u32,
    /// The longest pause between faults.
    #[arg(long, default_value_t = 400)]
    pause_millis: u64,
    /// Draws the faults and the jobs; printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these kinds of faults, by comma.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Restarts the database server; without it, it is never restarted.
    #[arg(long)]
    restart_command: Option<String>,
    /// This program of the version before, which plays half of the parts: a rolling upgrade.
    #[arg(long)]
    before: Option<std::path::PathBuf>,
    /// Plays a part in another run; not for people.
    #[arg(long, hide = true)]
    role: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(role) = &options.role {
        return Role::parse(role).play();
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn run(options: &Options) -> Result<bool> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}");
    fastrand::seed(seed);
    let place = Place::create(options.database.as_deref(), options.pooler.as_deref())?;
    check::install_audit(&place)?;
    rates::install_audit(&place)?;
    shares::install_audit(&place)?;
    let mut faults = Faults::new(&place, options);
    let mix = Mix::of(options, faults.are_graceful());
    let mut crew = Crew::new(&place, seed, mix, options.before.clone())?;
    println!("faults {}", faults.describe());
    let mut violations = check::Violations::default();
    let start = Instant::now();
    let time = Duration::from_secs(options.seconds);
    let mut limit = gates::Limit::new(&place, options.seconds);
    let mut others = gates::Others::default();
    let mut rounds = shares::Rounds::default();
    let is_lacking = || start.elapsed() < 10 * time && options.amounts.are_lacking(&place);
    while start.elapsed() < time || is_lacking() {
        crew.keep_staffed()?;
        for _ in 0..fastrand::u32(1..=options.at_once.max(1)) {
            faults.give(&mut crew);
        }
        let pause = options.pause_millis.max(2);
        std::thread::sleep(Duration::from_millis(fastrand::u64(pause / 20..pause)));
        check::while_running(&place, &mut violations);
        limit.keep(&place, &mut violations);
        others.look(&place, &mut violations);
        rounds.keep(&place);
    }
    faults.heal(&mut crew);
    crew.end_enqueuing(&place);
    limit.open(&place);
    let daily = options.amounts.quota;
    gates::fill_up(&place, daily, &mut violations)?;
    let drained = crew.drain(&place, Duration::from_secs(options.drain_seconds))?;
    faults.await_deadlines();
    crew.stop_all(&mut violations)?;
    place.be_patient();
    check::at_the_end(&place, drained, daily, &faults, &mut violations)?;
    let facts = report::Facts::gather(&place, &faults, limit.changes)?;
    Ok(report::print(&facts, &violations))
}
