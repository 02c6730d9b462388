//! `windlass supervise`.

use crate::cli::commands::status::{age, runs, state};
use crate::cli::config::{ConfigSource, option};
use crate::cli::mount::At;
use crate::cli::select::connect;
use crate::config::configuration::Config;
use crate::config::reader::Argument;
use crate::config::recurring::OtherPrograms;
use crate::read::duties::{self, DutyNow};
use crate::terminal::{Column, Report, Table, printable};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use windlass::internal::clock;
use windlass::processes::ProcessStatus;
use windlass::{Child, Database, Result, Supervisor};

/// Run a supervisor: dispatch jobs, recover them, run workers
///
/// Makes scheduled jobs ready when they are due, enqueues the jobs of recurring tasks, and recovers
/// the jobs of dead processes. With a PROGRAM, here or in the configuration, it also starts worker
/// processes, and restarts them when they exit. Any number of supervisors may run at once, on any
/// host.
///
/// Settings that are not given here come from the environment, then from the configuration file;
/// see `windlass check --print`.
///
/// SIGTERM and SIGINT stop it and its workers gracefully; SIGQUIT or a second Ctrl-C stops them
/// immediately. SIGHUP replaces the workers one by one. After SIGTSTP the workers claim no more jobs;
/// after SIGCONT they claim again. The exit code is 0 if all jobs finished and 75 if some were cut
/// short. It is 70 if the supervisor cannot continue, for example because the database file was
/// removed, replaced or damaged.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "windlass supervise [OPTIONS] [-- PROGRAM [ARGS]...]",
    after_help = "\
Examples:
  windlass supervise                        where workers are started by others
  windlass supervise --processes 2 -- ./app worker
  windlass supervise --config /etc/app/windlass.toml --pidfile /run/app/windlass.pid
  windlass supervise --heartbeat-interval 2s --alive-threshold 10s
  windlass supervise --listen 127.0.0.1:4041"
)]
pub(crate) struct Supervise {
    #[command(flatten)]
    source: ConfigSource,

    /// The number of processes of PROGRAM, for each of the workers [default: 1]
    #[arg(long, value_name = "N", requires = "program",
        value_parser = clap::value_parser!(u16).range(1..))]
    processes: Option<u16>,

    /// Do not make scheduled jobs ready; another supervisor must do it
    #[arg(long)]
    no_dispatcher: bool,

    /// Do not enqueue the jobs of recurring tasks; another supervisor must do it
    #[arg(long)]
    no_scheduler: bool,

    /// The time between two heartbeats [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    heartbeat_interval: Option<Duration>,

    /// The time without a heartbeat after which a process is treated as dead [default: 60s]
    ///
    /// At least three heartbeat intervals, and the same for every worker.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    alive_threshold: Option<Duration>,

    /// The time that workers have to stop; set the same in the workers [default: 25s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    shutdown_timeout: Option<Duration>,

    /// A file to lock, so that no second supervisor with the same file can run on this host
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    /// The address to serve /livez, /readyz, /startedz and /metrics on
    ///
    /// The metrics need a token where other hosts can reach the address, unless `metrics_open` is set.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,

    /// A worker program and its arguments, run with this environment
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Supervise {
    /// Runs the supervisor until a signal stops it.
    pub(crate) fn run(&self, at: &At<'_>) -> Result<ExitCode> {
        let config = self.source.read(at.url(), self.arguments())?.warned();
        let config = match at.registry {
            // The program that is named may have other classes.
            Some(registry) => {
                config.compared(registry, OtherPrograms::if_any(!self.program.is_empty()))?
            }
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
            let duration = clock::in_units(duration?);
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
        let listen = self.listen.as_ref();
        let listen =
            listen.map(|listen| option("supervisor", "listen", "--listen", listen.clone()));
        let others = processes.into_iter().chain(pidfile).chain(listen);
        durations.chain(others).collect()
    }

    fn supervisor(&self, mut config: Config, database: &Database) -> Result<Supervisor> {
        if self.no_dispatcher {
            config.dispatchers.clear();
        }
        if self.no_scheduler {
            config.scheduler.enabled = false;
        }
        let named = self.program.split_first();
        let program = named.map(|(program, arguments)| Child::program(program, arguments));
        if program.is_some() {
            // The command line has priority.
            for worker in &mut config.workers {
                worker.program.clear();
            }
        }
        config.supervisor(database, program)
    }
}

// --- `windlass processes` ---

/// Show the processes, the queues they serve and the jobs they run
///
/// A process whose heartbeat is older than the threshold is late. A supervisor prunes it, and its
/// jobs run again elsewhere. If it stays late, no supervisor is running. A draining process is
/// stopping. A quiet process claims nothing (after SIGTSTP) until it receives SIGCONT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass processes
  windlass processes --json | jq '.processes[] | select(.heartbeat_seconds > 60)'")]
pub(crate) struct Processes {
    /// The time without a heartbeat after which a process is late
    #[arg(long, value_name = "DURATION", default_value = "60s",
        value_parser = humantime::parse_duration)]
    alive_threshold: Duration,

    /// Print JSON; ages are in seconds
    #[arg(long)]
    pub(crate) json: bool,
}

/// The processes at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessList {
    #[serde(skip)]
    threshold: f64,
    processes: Vec<ProcessStatus>,
    /// The duties of the processes that are alive.
    duties: Vec<DutyNow>,
}

impl Processes {
    pub(crate) fn run(&self, database: &Database) -> Result<ProcessList> {
        let threshold = self.alive_threshold.as_secs_f64();
        let processes = windlass::processes::list(&mut connect(database)?)?;
        let alive = processes
            .iter()
            .filter(|process| process.heartbeat_seconds <= threshold);
        Ok(ProcessList {
            threshold,
            duties: duties::duties_of_processes(alive.map(|process| &process.metadata)),
            processes,
        })
    }
}

impl Report for ProcessList {
    fn text(&self, width: Option<usize>) -> String {
        if self.processes.is_empty() {
            return "No process is registered: no jobs are processed.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("NAME"),
            Column::text("HOST"),
            Column::number("PID"),
            Column::text("STATE"),
            Column::text("HEARTBEAT"),
            Column::text("SINCE"),
            Column::text("VERSION"),
            Column::number("THREADS"),
            Column::text("QUEUES"),
            Column::text("RUNS"),
        ]);
        for process in &self.processes {
            table.add(vec![
                printable(&process.name),
                printable(process.hostname.as_deref().unwrap_or_default()),
                process.pid.to_string(),
                state(process, self.threshold).to_owned(),
                format!("{} ago", age(process.heartbeat_seconds)),
                age(process.age_seconds),
                metadata_text(process, "windlass"),
                metadata_text(process, "thread_pool_size"),
                metadata_text(process, "queues"),
                runs(&process.runs, process.claimed),
            ]);
        }
        match self.duties.is_empty() {
            true => table.text(width),
            false => format!(
                "{}\n{}",
                table.text(width),
                duties_table(&self.duties).text(width)
            ),
        }
    }
}

fn duties_table(duties: &[DutyNow]) -> Table {
    let mut table = Table::new(&[
        Column::text("DUTY"),
        Column::number("PROCESSES"),
        Column::text("EVERY"),
        Column::text("LAST TURN"),
        Column::text("LATE"),
    ]);
    for duty in duties {
        table.add(vec![
            printable(&duty.name),
            duty.processes.to_string(),
            age(duty.every_seconds),
            format!("{} ago", age(duty.last_turn_seconds)),
            duty.late_seconds.map(age).unwrap_or_default(),
        ]);
    }
    table
}

/// Returns a value from the metadata of a process, as text.
fn metadata_text(process: &ProcessStatus, key: &str) -> String {
    match process.metadata.get(key) {
        None => String::new(),
        Some(serde_json::Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}
