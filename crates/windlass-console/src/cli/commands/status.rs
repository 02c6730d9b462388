//! `windlass status`.

use crate::cli::commands::run_time;
use crate::cli::listed;
use crate::read::doctor::scope::ALIVE;
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use windlass::classes::PausedClass;
use windlass::history::QueueRate;
use windlass::internal::clock;
use windlass::internal::db::schema::migrate;
use windlass::processes::{ProcessStatus, RunStatus};
use windlass::queues::QueueStatus;
use windlass::{AsConn as _, Database, Result};

pub(crate) use windlass::internal::admin::explain::words::age;

/// Show the queues and the processes
///
/// If a queue has more and more ready jobs, or its oldest job gets older, it has too few workers or
/// none. Rates and waits are those of the last 5 minutes; waits start when a job is ready. A process
/// without a heartbeat for 60 s is dead.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass status --database sqlite://jobs.db
  windlass status --watch
  windlass status --json | jq '.queues[] | select(.failed > 0)'")]
pub(crate) struct Status {
    /// Refresh repeatedly, until interrupted
    #[arg(long)]
    watch: bool,

    /// The time between two refreshes
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "watch",
        value_parser = humantime::parse_duration)]
    every: Duration,

    /// Refresh this many times, then exit
    #[arg(long, value_name = "COUNT", requires = "watch")]
    times: Option<u64>,

    /// Print JSON, with --watch one object per line; ages are in seconds
    #[arg(long)]
    json: bool,
}

/// The queues and the processes at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    queues: Vec<QueueStatus>,
    processes: Vec<ProcessStatus>,
    paused_classes: Vec<PausedClass>,
    /// Of the queues in which something ended.
    rates: Vec<QueueRate>,
}

impl Status {
    pub(crate) fn show(&self, database: &Database) -> Result<ExitCode> {
        if !self.watch {
            return Ok(terminal::show(&self.run(database)?, self.json));
        }
        let mut looks = 0;
        loop {
            match self.run(database) {
                Ok(seen) => {
                    if let Some(end) = terminal::show_again(&seen, self.json) {
                        return Ok(end);
                    }
                }
                // The database may become available again; at the first read this is an error.
                Err(error) if looks > 0 => drop(terminal::failed(&error)),
                Err(error) => return Err(error),
            }
            looks += 1;
            if self.times.is_some_and(|times| looks >= times) {
                return Ok(ExitCode::SUCCESS);
            }
            clock::nap(self.every);
        }
    }

    /// Reads the queues and the processes.
    fn run(&self, database: &Database) -> Result<Overview> {
        let mut connection = database.connect()?;
        migrate::check(&mut connection.as_conn(), database)?;
        Ok(Overview {
            queues: windlass::queues::list(&mut connection)?,
            processes: windlass::processes::list(&mut connection)?,
            paused_classes: windlass::classes::paused(&mut connection)?,
            rates: windlass::history::rates(&mut connection, listed::OVER)?,
        })
    }
}

impl Report for Overview {
    fn text(&self, width: Option<usize>) -> String {
        let queues = if self.queues.is_empty() {
            "No job is ready, scheduled, claimed, blocked or failed.\n".to_owned()
        } else {
            queues(&self.queues).text(width)
        };
        let processes = if self.processes.is_empty() {
            "No process is registered: no jobs are processed.\n".to_owned()
        } else {
            processes(&self.processes).text(width)
        };
        let rates = if self.rates.is_empty() {
            String::new()
        } else {
            format!("{}\n", listed::rates(&self.rates).text(width))
        };
        let paused: String = self.paused_classes.iter().map(run_time::line).collect();
        let gap = if paused.is_empty() { "" } else { "\n" };
        format!("{queues}\n{rates}{processes}{gap}{paused}")
    }
}

pub(crate) fn queues(queues: &[QueueStatus]) -> Table {
    let mut table = Table::new(&[
        Column::text("QUEUE"),
        Column::number("READY"),
        Column::number("SCHEDULED"),
        Column::number("CLAIMED"),
        Column::number("BLOCKED"),
        Column::number("FAILED"),
        Column::text("OLDEST"),
        Column::text("PAUSED"),
    ]);
    for queue in queues {
        table.add(vec![
            printable(&queue.queue_name),
            queue.ready.to_string(),
            queue.scheduled.to_string(),
            queue.claimed.to_string(),
            queue.blocked.to_string(),
            queue.failed.to_string(),
            queue.oldest_ready_seconds.map_or(String::new(), age),
            if queue.paused { "paused" } else { "" }.to_owned(),
        ]);
    }
    table
}

fn processes(processes: &[ProcessStatus]) -> Table {
    let mut table = Table::new(&[
        Column::text("PROCESS"),
        Column::text("HOST"),
        Column::number("PID"),
        Column::text("HEARTBEAT"),
        Column::text("STATE"),
        Column::text("RUNS"),
    ]);
    for process in processes {
        table.add(vec![
            printable(&process.kind),
            printable(process.hostname.as_deref().unwrap_or_default()),
            process.pid.to_string(),
            format!("{} ago", age(process.heartbeat_seconds)),
            state(process, ALIVE.as_secs_f64()).to_owned(),
            runs(&process.runs, process.claimed),
        ]);
    }
    table
}

/// Returns the state of a process, which is late after `threshold` seconds without a heartbeat.
pub(crate) fn state(process: &ProcessStatus, threshold: f64) -> &'static str {
    if process.heartbeat_seconds > threshold {
        if process.draining {
            "late, draining"
        } else {
            "late"
        }
    } else if process.draining {
        "draining"
    } else if process.quiet {
        "quiet"
    } else {
        "alive"
    }
}

/// Returns one line for each job, and how many more there are.
pub(crate) fn runs(runs: &[RunStatus], claimed: i64) -> String {
    let mut lines: Vec<String> = runs
        .iter()
        .map(|run| {
            let class = printable(&run.class_name);
            let progress = run.progress.as_ref().map_or(String::new(), |progress| {
                let message = printable(&progress.message);
                format!(", {:.0} % {message}", progress.percent)
            });
            let line = format!("{class} #{} for {}{progress}", run.job_id, age(run.seconds));
            line.trim_end().to_owned()
        })
        .collect();
    let more = claimed.saturating_sub(i64::try_from(runs.len()).unwrap_or(i64::MAX));
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::jobs::Progress;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (-3.0, "0s"),
            (0.9, "0s"),
            (59.0, "59s"),
            (200.0, "3m 20s"),
            (93_784.0, "1d 2h"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn more_jobs_than_are_listed_are_counted() {
        let run = RunStatus {
            job_id: 7,
            class_name: "mail\u{1b}[2J".to_owned(),
            seconds: 61.5,
            thread: None,
            progress: None,
        };
        let told = RunStatus {
            progress: Some(Progress::new(41.6, "of\nall".to_owned())),
            ..run.clone()
        };
        assert_eq!(
            runs(&[run, told], 12),
            "mail\\u{1b}[2J #7 for 1m 1s\nmail\\u{1b}[2J #7 for 1m 1s, 42 % of\\nall\nand 10 more"
        );
    }
}
