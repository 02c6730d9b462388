//! `windlass processes`.

use crate::cli::commands::status::{age, runs, state};
use crate::cli::select::connect;
use crate::db::Database;
use crate::db::query::status::ProcessStatus;
use crate::error::Result;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use serde::Serialize;
use std::time::Duration;

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
}

impl Processes {
    pub(crate) fn run(&self, database: &Database) -> Result<ProcessList> {
        Ok(ProcessList {
            threshold: self.alive_threshold.as_secs_f64(),
            processes: crate::admin::queues::processes(&mut connect(database)?)?,
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
                said(process, "windlass"),
                said(process, "thread_pool_size"),
                said(process, "queues"),
                runs(&process.runs, process.claimed),
            ]);
        }
        table.text(width)
    }
}

/// Returns a value from the metadata of a process, as text.
fn said(process: &ProcessStatus, key: &str) -> String {
    match process.metadata.get(key) {
        None => String::new(),
        Some(serde_json::Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}
