//! `windlass recurring ...`.

use crate::cli::config::Source;
use crate::cli::select::connect;
use crate::config::configuration::Config;
use crate::db::{AsConn as _, Database, DbConnection};
use crate::error::Result;
use crate::job::id::JobId;
use crate::recurring::schedule::Schedule;
use crate::recurring::tasks::{self, RecurringStatus};
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

/// Look at the recurring tasks, and run, pause or resume one
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(List),
    Next(Next),
    Run(Run),
    Pause(Pause),
    Resume(Resume),
}

/// List the recurring tasks
///
/// Those of a Rails app are not among them. A task that a program declares is
/// fired as long as a scheduler of that program runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring list
  windlass recurring list --json | jq '.tasks[] | select(.paused_at)'")]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The tasks at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Tasks {
    tasks: Vec<RecurringStatus>,
}

impl List {
    pub(crate) fn run(&self, database: &Database) -> Result<Tasks> {
        let tasks = tasks::list(&mut connect(database)?)?;
        Ok(Tasks { tasks })
    }
}

impl Report for Tasks {
    fn text(&self, width: Option<usize>) -> String {
        if self.tasks.is_empty() {
            return "No recurring task is known.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("KEY"),
            Column::text("SCHEDULE"),
            Column::text("CLASS"),
            Column::text("QUEUE"),
            Column::text("NEXT"),
            Column::text("LAST"),
            Column::text("STATE"),
            Column::text("DESCRIPTION"),
        ]);
        for task in &self.tasks {
            table.add(vec![
                printable(&task.key),
                printable(&format!("{} {}", task.schedule, task.time_zone)),
                printable(&task.class_name),
                printable(&task.queue_name),
                task.next_run_at.map_or(String::new(), time),
                task.last_run_at.map_or(String::new(), time),
                state(task),
                printable(task.description.as_deref().unwrap_or_default()),
            ]);
        }
        table.text(width)
    }
}

fn state(task: &RecurringStatus) -> String {
    match (task.paused_at, task.queued_run_at) {
        (Some(since), _) => format!("paused since {}", time(since)),
        (None, Some(_)) => "waits for its job".to_owned(),
        (None, None) => String::new(),
    }
}

/// In UTC, as the database has it.
fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Show when the recurring tasks are due next
///
/// Those of the configuration are shown before any scheduler has declared them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass recurring next
  windlass recurring next cleanup --count 20")]
pub(crate) struct Next {
    /// Only this task [default: all]
    #[arg(value_name = "KEY")]
    key: Option<String>,

    #[command(flatten)]
    source: Source,

    /// How many ticks of each task
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is due when.
#[derive(Debug, Serialize)]
pub(crate) struct Upcoming {
    ticks: Vec<Tick>,
    /// Whether a scheduler runs that may fire them.
    scheduler_runs: bool,
}

#[derive(Debug, Serialize)]
struct Tick {
    key: String,
    at: DateTime<Utc>,
    /// By the clock of the task's zone.
    local: String,
    /// It is not fired.
    paused: bool,
    #[serde(skip)]
    state: &'static str,
}

/// A task, and where it is known from.
struct Known {
    key: String,
    zone: Tz,
    paused: bool,
    /// Of the configuration; `None`: of the database.
    schedule: Option<Schedule>,
    state: &'static str,
}

impl Next {
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
                Tick {
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

/// The tasks of the database, and those of the configuration, which counts
/// where both have one: so will its scheduler.
fn known(connection: &mut DbConnection, config: &Config) -> Result<Vec<Known>> {
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
            return "No recurring task is known.\n".to_owned();
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
            text.push_str("\nNo scheduler runs: none of them is fired until one is started.\n");
        }
        text
    }
}

/// Enqueue the job of a recurring task now, besides its ticks
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The task
    key: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The job that was enqueued.
#[derive(Debug, Serialize)]
pub(crate) struct Ran {
    key: String,
    job_id: JobId,
}

impl Run {
    pub(crate) fn run(&self, database: &Database) -> Result<Ran> {
        let job_id = tasks::run_now(&mut connect(database)?, &self.key)?;
        Ok(Ran {
            key: self.key.clone(),
            job_id,
        })
    }
}

impl Report for Ran {
    fn text(&self, _width: Option<usize>) -> String {
        format!(
            "Enqueued job {} of {}.\n",
            self.job_id,
            printable(&self.key)
        )
    }
}

/// Fire no more ticks of a recurring task until it is resumed
///
/// It lasts, whatever is restarted or deployed meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// The task
    key: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Fire the ticks of a recurring task again, from the next one on
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// The task
    key: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a task stands now.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    key: String,
    paused: bool,
}

impl Pause {
    pub(crate) fn run(&self, database: &Database) -> Result<Standing> {
        tasks::pause(&mut connect(database)?, &self.key)?;
        Ok(Standing {
            key: self.key.clone(),
            paused: true,
        })
    }
}

impl Resume {
    pub(crate) fn run(&self, database: &Database) -> Result<Standing> {
        tasks::resume(&mut connect(database)?, &self.key)?;
        Ok(Standing {
            key: self.key.clone(),
            paused: false,
        })
    }
}

impl Report for Standing {
    fn text(&self, _width: Option<usize>) -> String {
        let done = if self.paused { "Paused" } else { "Resumed" };
        format!("{done} {}.\n", printable(&self.key))
    }
}
