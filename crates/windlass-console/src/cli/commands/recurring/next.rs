//! `windlass recurring next`.

use crate::cli::config::ConfigSource;
use crate::cli::listed::{jitter, name, time, undeclared, why_none};
use crate::cli::select::connect;
use crate::config::configuration::Config;
use crate::terminal::{Column, Report, Table, printable};
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;
use std::time::Duration;
use windlass::internal::clock;
use windlass::internal::recurring::options::starts_at;
use windlass::internal::recurring::tasks;
use windlass::internal::recurring::time_zone::Zone;
use windlass::internal::recurring::timing::TickTimes;
use windlass::recurring::TickStatus;
use windlass::{AsConn as _, Database, DbConnection, Result};

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
    source: ConfigSource,

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
    /// Tasks without an upcoming run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without: Vec<WithoutTick>,
    /// True if a scheduler that may fire them is running.
    scheduler_runs: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct TaskTick {
    key: String,
    at: DateTime<Utc>,
    /// The time at which its job is due: later than the run by the task's jitter.
    starts_at: DateTime<Utc>,
    /// In the time zone of the task.
    local: String,
    /// True if the task is paused and so not fired.
    paused: bool,
    #[serde(skip)]
    state: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct WithoutTick {
    key: String,
    reason: String,
}

/// A task and its source.
pub(crate) struct Known {
    key: String,
    zone: Zone,
    paused: bool,
    /// Its times by the configuration; `None` if the task is from the database.
    times: Option<TickTimes>,
    jitter: Option<Duration>,
    until: Option<DateTime<Utc>>,
    /// The time of its deletion, as no scheduler declares it any more.
    deleted_at: Option<DateTime<Utc>>,
    text: String,
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
        let (mut ticks, mut without) = (Vec::new(), Vec::new());
        for task in all {
            let count = usize::from(self.count);
            let times = match &task.times {
                Some(times) => times.upcoming(now.naive_utc()).take(count).collect(),
                None => tasks::upcoming(&mut connection, &task.key, count)?,
            };
            if times.is_empty() {
                without.push(WithoutTick {
                    reason: match task.deleted_at {
                        Some(deleted_at) => format!("it is {}", undeclared(deleted_at)),
                        None => why_none(&task.text, task.until, now),
                    },
                    key: task.key.clone(),
                });
            }
            ticks.extend(times.into_iter().map(|at| task.tick(at)));
        }
        ticks.sort_by(|one, other| (one.at, &one.key).cmp(&(other.at, &other.key)));
        Ok(Upcoming {
            ticks,
            without,
            scheduler_runs: crate::read::doctor::processes::has_scheduler(
                &mut connection.as_conn(),
            )?,
        })
    }
}

impl Known {
    fn local(&self, at: NaiveDateTime) -> String {
        let local = self.zone.local(at).format("%a %Y-%m-%d %H:%M:%S");
        format!("{local} {}", self.zone.rules().abbreviation(at))
    }

    fn tick(&self, at: DateTime<Utc>) -> TaskTick {
        let starts = starts_at(&self.key, at.naive_utc(), self.jitter);
        let starts_at = starts.map_or(at, |starts| starts.and_utc());
        let mut state = self.state.to_owned();
        if starts_at != at {
            let comma = if state.is_empty() { "" } else { ", " };
            state.push_str(&format!("{comma}its job starts at {}", time(starts_at)));
        }
        TaskTick {
            key: self.key.clone(),
            at,
            starts_at,
            local: self.local(at.naive_utc()),
            paused: self.paused,
            state,
        }
    }
}

/// Returns the tasks of the database and of the configuration. If both have one, that of the
/// configuration counts, because its scheduler will declare it.
pub(crate) fn known(connection: &mut DbConnection, config: &Config) -> Result<Vec<Known>> {
    let stored = tasks::list(connection)?;
    let of_config = config.declared_times();
    let mut all: Vec<Known> = of_config
        .into_iter()
        .map(|(key, times, jitter)| {
            let row = stored.iter().find(|task| task.key == key);
            let paused = row.is_some_and(|task| task.paused_at.is_some());
            Known {
                key,
                zone: times
                    .schedule
                    .time_zone()
                    .and_then(|zone| zone.parse().ok())
                    .unwrap_or(Zone::UTC),
                paused,
                jitter,
                until: times.window.until,
                deleted_at: None,
                text: times.schedule.text().to_owned(),
                times: Some(times),
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
            zone: task.time_zone.parse().unwrap_or(Zone::UTC),
            state: if paused { "paused" } else { "" },
            key: task.key,
            paused,
            times: None,
            jitter: task.jitter,
            until: task.until,
            deleted_at: task.deleted_at,
            text: task.schedule,
        });
    }
    Ok(all)
}

impl Report for Upcoming {
    fn text(&self, width: Option<usize>) -> String {
        if self.ticks.is_empty() && self.without.is_empty() {
            return "There are no recurring tasks.\n".to_owned();
        }
        let without = self.without.iter().map(|task| {
            format!(
                "{} has no upcoming run: {}.\n",
                printable(&task.key),
                task.reason
            )
        });
        let without: String = without.collect();
        if self.ticks.is_empty() {
            return without;
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
                tick.state.clone(),
            ]);
        }
        let mut text = table.text(width);
        if !without.is_empty() {
            text.push('\n');
            text.push_str(&without);
        }
        if !self.scheduler_runs {
            text.push_str("\nNo scheduler is running: no task runs until one is started.\n");
        }
        text
    }
}

// --- `windlass recurring history` ---

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

// --- The next runs of the tasks of a configuration, for `windlass check` ---

/// The next runs of a task.
#[derive(Debug, Serialize)]
pub(crate) struct RunsOf {
    key: String,
    schedule: String,
    /// By how much at most its jobs are delayed, in seconds.
    jitter: Option<f64>,
    runs: Vec<DateTime<Utc>>,
    #[serde(skip)]
    pub(crate) text: String,
}

impl RunsOf {
    /// Returns the next runs of all tasks of a configuration.
    pub(crate) fn all(config: &Config) -> Vec<Self> {
        let now = clock::calendar();
        let tasks = config.declared_times().into_iter();
        tasks
            .map(|(key, times, delay)| RunsOf::of(key, &times, delay, now))
            .collect()
    }

    fn of(key: String, times: &TickTimes, delay: Option<Duration>, now: DateTime<Utc>) -> Self {
        let schedule = times.schedule.to_string();
        let runs: Vec<_> = times.upcoming(now.naive_utc()).take(5).collect();
        let until = times.window.until;
        let mut text = format!("{key} ({schedule}{})", jitter(delay));
        if runs.is_empty() {
            text.push_str(&format!(
                ": {}",
                why_none(times.schedule.text(), until, now)
            ));
        }
        for (index, run) in runs.iter().enumerate() {
            text.push_str(if index == 0 { ": " } else { ", " });
            text.push_str(&time(*run));
        }
        if let Some(until) = until.filter(|_| (1..5).contains(&runs.len())) {
            text.push_str(&format!("; until {}", time(until)));
        }
        RunsOf {
            key,
            schedule,
            jitter: delay.map(|delay| delay.as_secs_f64()),
            runs,
            text,
        }
    }
}
