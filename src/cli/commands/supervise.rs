//! `windlass supervise`.

use crate::cli::config::{Source, option};
use crate::cli::mount::At;
use crate::config::configuration::Config;
use crate::config::reader::Argument;
use crate::db::Database;
use crate::error::Result;
use crate::process::supervisor::builder::Supervisor;
use crate::process::supervisor::children::Child;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Keep the jobs going: dispatch, recover, run workers
///
/// Makes scheduled jobs ready when they are due, enqueues those of recurring
/// tasks, and gives back what dead processes held. With a PROGRAM, here or in
/// the configuration, it also starts worker processes, watches them, and starts
/// them again when they end. Any number of supervisors may run at once, on any
/// host.
///
/// What is not said here comes from the environment, then from the
/// configuration file; see `windlass check --print`.
///
/// SIGTERM and SIGINT stop it, and its workers, in good order; SIGQUIT, or a
/// second SIGTERM, at once. SIGTSTP lets the workers claim no more, and SIGCONT
/// lets them claim again. The exit code is 0 when all jobs came to their end, 75
/// when some were cut short, and 70 when it cannot go on: the database
/// file was removed, replaced or damaged, for example.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "windlass supervise [OPTIONS] [-- PROGRAM [ARGS]...]",
    after_help = "\
Examples:
  windlass supervise                        where workers are started by others
  windlass supervise --processes 2 -- ./app worker
  windlass supervise --config /etc/app/windlass.toml --pidfile /run/app/windlass.pid
  windlass supervise --heartbeat-interval 2s --alive-threshold 10s"
)]
pub(crate) struct Supervise {
    #[command(flatten)]
    source: Source,

    /// How many processes of PROGRAM to run, for each of the workers [default: 1]
    #[arg(long, value_name = "N", requires = "program",
        value_parser = clap::value_parser!(u16).range(1..))]
    processes: Option<u16>,

    /// Do not make scheduled jobs ready: others do
    #[arg(long)]
    no_dispatcher: bool,

    /// Do not enqueue the jobs of recurring tasks: others do
    #[arg(long)]
    no_scheduler: bool,

    /// How often to say that it is alive [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    heartbeat_interval: Option<Duration>,

    /// After how long without a heartbeat a process is taken for dead [default: 60s]
    ///
    /// At least three heartbeat intervals, and the same in every worker.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    alive_threshold: Option<Duration>,

    /// How long workers may take to stop; theirs should be as long [default: 25s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    shutdown_timeout: Option<Duration>,

    /// A file to hold, so that no second supervisor with it can run on this host
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    /// A worker program and its arguments, run with this environment
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Supervise {
    /// Supervises until a signal says stop.
    pub(crate) fn run(&self, at: &At<'_>) -> Result<ExitCode> {
        let config = self.source.read(at.url(), self.arguments())?.warned();
        let config = match at.registry {
            // The program that is named may know other classes.
            Some(registry) => config.compared(registry, !self.program.is_empty())?,
            None => config,
        };
        let database = match at.given() {
            Some(database) => database.clone(),
            None => config.database()?,
        };
        Ok(self.supervisor(config, &database)?.run()?.exit_code())
    }

    fn arguments(&self) -> Vec<Argument> {
        let durations = [
            (
                "heartbeat_interval",
                "--heartbeat-interval",
                self.heartbeat_interval,
            ),
            ("alive_threshold", "--alive-threshold", self.alive_threshold),
            (
                "shutdown_timeout",
                "--shutdown-timeout",
                self.shutdown_timeout,
            ),
        ];
        let durations = durations.into_iter().filter_map(|(name, text, duration)| {
            let duration = humantime::format_duration(duration?).to_string();
            Some(option("supervisor", name, text, duration))
        });
        let processes = self
            .processes
            .map(|processes| option("workers", "processes", "--processes", processes.to_string()));
        let pidfile = self.pidfile.as_ref().map(|path| {
            option(
                "supervisor",
                "pidfile",
                "--pidfile",
                path.display().to_string(),
            )
        });
        durations.chain(processes).chain(pidfile).collect()
    }

    fn supervisor(&self, mut config: Config, database: &Database) -> Result<Supervisor> {
        if self.no_dispatcher {
            config.dispatchers.clear();
        }
        if self.no_scheduler {
            config.scheduler.enabled.value = false;
        }
        let named = self.program.split_first();
        let program = named.map(|(program, arguments)| Child::program(program, arguments));
        if program.is_some() {
            // What the command line names weighs more.
            for worker in &mut config.workers {
                worker.program.value.0.clear();
            }
        }
        config.supervisor(database, program)
    }
}
