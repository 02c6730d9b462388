//! `windlass recurring history`.

use crate::cli::listed::name;
use crate::cli::select::connect;
use crate::cli::words::time;
use crate::db::Database;
use crate::error::Result;
use crate::recurring::tasks::{self, TickStatus};
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use serde::Serialize;

/// Show the last ticks of a recurring task and their jobs, newest first
///
/// Ticks older than seven days, and those whose job was deleted, are not shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring history cleanup
  windlass recurring history cleanup --count 100 --json | jq '.ticks[] | select(.state == \"failed\")'")]
pub(crate) struct TaskHistory {
    /// The task
    key: String,

    /// The number of ticks to show
    #[arg(long, value_name = "COUNT", default_value_t = 20,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The last ticks of a task.
#[derive(Debug, Serialize)]
pub(crate) struct LastTicks {
    key: String,
    ticks: Vec<TickStatus>,
}

impl TaskHistory {
    pub(crate) fn run(&self, database: &Database) -> Result<LastTicks> {
        let mut connection = connect(database)?;
        let ticks = tasks::ticks(&mut connection, &self.key, usize::from(self.count))?;
        // The ticks of a task that was removed can still be looked at.
        if ticks.is_empty() {
            let known = tasks::list(&mut connection)?;
            if known.iter().all(|task| task.key != self.key) {
                return Err(tasks::unknown(&self.key));
            }
        }
        Ok(LastTicks {
            key: self.key.clone(),
            ticks,
        })
    }
}

impl Report for LastTicks {
    fn text(&self, width: Option<usize>) -> String {
        if self.ticks.is_empty() {
            return format!(
                "{} has had no tick, or none whose job is kept.\n",
                printable(&self.key)
            );
        }
        let mut table = Table::new(&[
            Column::text("TICK"),
            Column::number("JOB"),
            Column::text("STATE"),
            Column::text("ENDED"),
        ]);
        for tick in &self.ticks {
            table.add(vec![
                time(tick.tick),
                tick.job_id.to_string(),
                name(tick.state).to_owned(),
                tick.finished_at.map_or(String::new(), time),
            ]);
        }
        table.text(width)
    }
}
