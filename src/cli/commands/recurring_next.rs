//! `windlass recurring next`.

use crate::recurring::tasks;

use crate::cli::config::Source;
use crate::cli::select::connect;
use crate::config::configuration::Config;
use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::Result;
use crate::recurring::schedule::Schedule;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

/// Show the upcoming runs of recurring tasks
///
/// Tasks of the configuration are included even before a scheduler has declared them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring next
  windlass recurring next cleanup --count 20")]
pub(crate) struct NextRuns {
    /// Only this task [default: all]
    #[arg(value_name = "KEY")]
    key: Option<String>,

    #[command(flatten)]
    source: Source,

    /// The number of runs to show for each task
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Upcoming runs.
#[derive(Debug, Serialize)]
pub(crate) struct Upcoming {
    ticks: Vec<TaskTick>,
    /// Whether a scheduler that may fire them is running.
    scheduler_runs: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct TaskTick {
    key: String,
    at: DateTime<Utc>,
    /// In the time zone of the task.
    local: String,
    /// Whether the task is paused and so not fired.
    paused: bool,
    #[serde(skip)]
    state: &'static str,
}

/// A task and its source.
pub(crate) struct Known {
    key: String,
    zone: Tz,
    paused: bool,
    /// The schedule from the configuration; `None` if the task is from the database.
    schedule: Option<Schedule>,
    state: &'static str,
}

impl NextRuns {
    pub(crate) fn run(&self, database: &Database) -> Result<Upcoming> {
        let config = self.source.read(None, Vec::new())?;
        let mut connection = connect(database)?;
        let mut all = known(&mut connection, &config)?;
        if let Some(key) = &self.key {
            all.retain(|task| task.key == *key);
            if all.is_empty() {
                return Err(tasks::unknown(key));
            }
        }
        let now = tasks::now(&mut connection)?;
        let mut ticks = Vec::new();
        for task in all {
            let count = usize::from(self.count);
            let times = match &task.schedule {
                Some(schedule) => schedule.upcoming(now).take(count).collect(),
                None => tasks::upcoming(&mut connection, &task.key, count)?,
            };
            ticks.extend(times.into_iter().map(|at| {
                TaskTick {
                    key: task.key.clone(),
                    at,
                    local: at
                        .with_timezone(&task.zone)
                        .format("%a %Y-%m-%d %H:%M:%S %Z")
                        .to_string(),
                    paused: task.paused,
                    state: task.state,
                }
            }));
        }
        ticks.sort_by(|one, other| (one.at, &one.key).cmp(&(other.at, &other.key)));
        Ok(Upcoming {
            ticks,
            scheduler_runs: crate::admin::doctor_processes::has_scheduler(
                &mut connection.as_conn(),
            )?,
        })
    }
}

/// Returns the tasks of the database and of the configuration. If both have one, that of the
/// configuration counts, because its scheduler will declare it.
pub(crate) fn known(connection: &mut DbConnection, config: &Config) -> Result<Vec<Known>> {
    let stored = tasks::list(connection)?;
    let of_config = config.declared_schedules();
    let mut all: Vec<Known> = of_config
        .into_iter()
        .map(|(key, schedule)| {
            let row = stored.iter().find(|task| task.key == key);
            let paused = row.is_some_and(|task| task.paused_at.is_some());
            Known {
                key,
                zone: schedule
                    .time_zone()
                    .and_then(|zone| zone.parse().ok())
                    .unwrap_or(Tz::UTC),
                paused,
                schedule: Some(schedule),
                state: match row {
                    _ if paused => "paused",
                    None => "not declared yet",
                    Some(_) => "",
                },
            }
        })
        .collect();
    for task in stored {
        if all.iter().any(|known| known.key == task.key) {
            continue;
        }
        let paused = task.paused_at.is_some();
        all.push(Known {
            zone: task.time_zone.parse().unwrap_or(chrono_tz::UTC),
            state: if paused { "paused" } else { "" },
            key: task.key,
            paused,
            schedule: None,
        });
    }
    Ok(all)
}

impl Report for Upcoming {
    fn text(&self, width: Option<usize>) -> String {
        if self.ticks.is_empty() {
            return "There are no recurring tasks.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("AT"),
            Column::text("LOCAL"),
            Column::text("KEY"),
            Column::text("STATE"),
        ]);
        for tick in &self.ticks {
            table.add(vec![
                time(tick.at),
                tick.local.clone(),
                printable(&tick.key),
                tick.state.to_owned(),
            ]);
        }
        let mut text = table.text(width);
        if !self.scheduler_runs {
            text.push_str("\nNo scheduler is running: no task runs until one is started.\n");
        }
        text
    }
}

/// In UTC, as the database has it.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}
