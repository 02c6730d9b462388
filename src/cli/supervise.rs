//! `windlass supervise`.

use crate::db::Database;
use crate::error::Result;
use crate::process::{Child, Dispatcher, Scheduler, Supervisor};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Keep the jobs going: dispatch, recover, run workers
///
/// Makes scheduled jobs ready when they are due, enqueues those of recurring
/// tasks that were scheduled at run time, and gives back what dead processes
/// held. With a PROGRAM it also starts worker processes, watches
/// them, and starts them again when they end. Any number of supervisors may
/// run at once, on any host.
///
/// SIGTERM and SIGINT stop it, and its workers, in good order; SIGQUIT, or a
/// second SIGTERM, at once. The exit code is 0 when all ended by themselves, 75
/// when something had to be killed, and 70 when it cannot go on: the database
/// file was removed, replaced or damaged, for example.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "windlass supervise [OPTIONS] [-- PROGRAM [ARGS]...]",
    after_help = "\
Examples:
  windlass supervise                        where workers are started by others
  windlass supervise --processes 2 -- ./app worker
  windlass supervise --heartbeat-interval 2s --alive-threshold 10s"
)]
pub(super) struct Supervise {
    /// How many processes of PROGRAM to run [default: 1]
    #[arg(long, value_name = "N", requires = "program",
        value_parser = clap::value_parser!(u16).range(1..))]
    processes: Option<u16>,

    /// Do not make scheduled jobs ready: others do
    #[arg(long)]
    no_dispatcher: bool,

    /// Do not enqueue the jobs of recurring tasks: others do
    #[arg(long)]
    no_scheduler: bool,

    /// How often to say that it is alive
    #[arg(long, value_name = "DURATION", default_value = "10s",
        value_parser = humantime::parse_duration)]
    heartbeat_interval: Duration,

    /// After how long without a heartbeat a process is taken for dead
    ///
    /// At least three heartbeat intervals, and the same in every worker.
    #[arg(long, value_name = "DURATION", default_value = "60s",
        value_parser = humantime::parse_duration)]
    alive_threshold: Duration,

    /// How long workers may take to stop; theirs should be as long
    #[arg(long, value_name = "DURATION", default_value = "25s",
        value_parser = humantime::parse_duration)]
    shutdown_timeout: Duration,

    /// A worker program and its arguments, run with this environment
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Supervise {
    /// Supervises until a signal says stop.
    pub(super) fn run(&self, database: &Database) -> Result<ExitCode> {
        Ok(self.supervisor(database).run()?.exit_code())
    }

    fn supervisor(&self, database: &Database) -> Supervisor {
        let mut supervisor = Supervisor::new(database)
            .heartbeat_interval(self.heartbeat_interval)
            .alive_threshold(self.alive_threshold)
            .shutdown_timeout(self.shutdown_timeout);
        if !self.no_dispatcher {
            supervisor = supervisor.dispatcher(
                Dispatcher::new(database)
                    .heartbeat_interval(self.heartbeat_interval)
                    .alive_threshold(self.alive_threshold),
            );
        }
        if !self.no_scheduler {
            supervisor = supervisor.scheduler(
                Scheduler::new(database)
                    .heartbeat_interval(self.heartbeat_interval)
                    .alive_threshold(self.alive_threshold),
            );
        }
        if let Some((program, arguments)) = self.program.split_first() {
            let child = Child::program(program, arguments);
            supervisor = supervisor.child(child.processes(self.processes.unwrap_or(1).into()));
        }
        supervisor
    }
}
