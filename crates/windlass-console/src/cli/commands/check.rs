//! `windlass check`.

use crate::cli::commands::recurring::next::RunsOf;
use crate::cli::config::ConfigSource;
use crate::config::combinations::ConnectionBudget;
use crate::config::configuration::Config;
use crate::config::reader::Setting;
use crate::config::recurring::DeclaredTask;
use crate::read::sql::presence::{ConnectionLimit, connection_limit};
use crate::terminal::Report;
use serde::Serialize;
use windlass::database::Pooling;
use windlass::errors::Problem;
use windlass::internal::db::conn::pooling::pooler::Pooler;
use windlass::internal::db::schema::migrate;
use windlass::internal::recurring::time_zone::RulesVersion;
use windlass::recurring::RecurringSettings;
use windlass::{AsConn as _, Database, Error, Registry, Result};

/// Check the configuration
///
/// Reads the file and the environment, and reports all problems at once: unknown names, values
/// without a unit, conflicting settings. With `--database` or `--connect` it also checks the tables
/// of the database, and whether the server allows as many connections as all processes may open.
/// Without them no database is opened. The exit code is 1 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass check
  windlass check --config /etc/app/windlass.toml --connect
  windlass check --print                    every setting, and where it comes from")]
pub(crate) struct Check {
    #[command(flatten)]
    source: ConfigSource,

    /// Also check the database that the configuration names
    #[arg(long)]
    connect: bool,

    /// Print the effective configuration as a file, without secrets
    #[arg(long)]
    print: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The result of the checks.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedConfig {
    file: Option<String>,
    problems: Vec<ShownProblem>,
    warnings: Vec<ShownProblem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Connections>,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<ServerAnswer>,
    /// The version of the rules of time zones, and where they are from.
    time_zones: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settings: Vec<ShownSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recurring: Vec<Task>,
    /// The next runs of each task, by this machine's clock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upcoming: Vec<RunsOf>,
    #[serde(skip)]
    print: Option<String>,
}

/// A problem.
#[derive(Debug, Serialize)]
struct ShownProblem {
    place: Option<String>,
    line: Option<usize>,
    message: String,
    #[serde(skip)]
    text: String,
}

impl From<&Problem> for ShownProblem {
    fn from(problem: &Problem) -> Self {
        ShownProblem {
            place: problem.place.clone(),
            line: problem.line,
            message: problem.message.clone(),
            text: problem.to_string(),
        }
    }
}

impl From<String> for ShownProblem {
    fn from(message: String) -> Self {
        ShownProblem {
            place: None,
            line: None,
            text: message.clone(),
            message,
        }
    }
}

#[derive(Debug, Serialize)]
struct Connections {
    supervisor: usize,
    dispatchers: usize,
    schedulers: usize,
    workers: usize,
    pools: usize,
    probes: usize,
    total: usize,
    #[serde(skip)]
    text: String,
}

impl From<ConnectionBudget> for Connections {
    fn from(budget: ConnectionBudget) -> Self {
        Connections {
            supervisor: budget.supervisor,
            dispatchers: budget.dispatchers,
            schedulers: budget.schedulers,
            workers: budget.workers,
            pools: budget.pools,
            probes: budget.probes,
            total: budget.total(),
            text: budget.to_string(),
        }
    }
}

/// The properties that the database reports.
#[derive(Debug, Serialize)]
struct ServerAnswer {
    target: String,
    /// The number of connections it allows; `None` for a file.
    allows: Option<i64>,
    /// The number of open connections.
    open: Option<i64>,
    /// `session` or `transaction`; `None` for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pooling: Option<&'static str>,
    /// True if workers are notified of new jobs; otherwise they poll.
    listens: bool,
}

impl ServerAnswer {
    fn of(database: &Database, room: Option<ConnectionLimit>) -> Self {
        let pooling = database.pooler().and_then(Pooler::known);
        ServerAnswer {
            target: database.target(),
            allows: room.map(|room| room.allowed),
            open: room.map(|room| room.open),
            pooling: pooling.map(Pooling::as_str),
            listens: database.can_listen(),
        }
    }

    /// Returns what a pooler in transaction mode means, if there is one.
    fn pooler(&self) -> Option<String> {
        let by_transaction = self.pooling == Some(Pooling::Transaction.as_str());
        by_transaction.then(|| {
            let hear = if self.listens {
                "workers listen on `listen_url`"
            } else {
                "workers poll for jobs, as no `listen_url` is set"
            };
            format!("It is behind a pooler in transaction mode; {hear}.")
        })
    }
}

#[derive(Debug, Serialize)]
struct ShownSetting {
    key: String,
    number: Option<usize>,
    value: String,
    default: String,
    variable: String,
    origin: String,
}

impl From<&Setting> for ShownSetting {
    fn from(setting: &Setting) -> Self {
        ShownSetting {
            key: setting.key(),
            number: setting.number,
            value: setting.value.clone(),
            default: setting.default.clone(),
            variable: setting.variable.clone(),
            origin: setting.origin.to_string(),
        }
    }
}

/// A recurring task from the file.
#[derive(Debug, Serialize)]
struct Task {
    key: String,
    #[serde(flatten)]
    settings: RecurringSettings,
    origin: String,
}

impl Task {
    fn of(declared: &DeclaredTask) -> Option<Self> {
        Some(Task {
            key: declared.task.key().to_owned(),
            settings: declared.settings.clone()?,
            origin: declared.origin.to_string(),
        })
    }
}

impl Check {
    /// Runs the checks. Problems in the configuration are not returned as an error.
    pub(crate) fn run(
        &self,
        database: Option<&str>,
        registry: Option<&Registry>,
    ) -> Result<CheckedConfig> {
        let config = self.source.read(database, Vec::new());
        let config = config.and_then(|config| match registry {
            Some(registry) => config.knowing(registry),
            None => Ok(config),
        });
        let config = match config {
            Ok(config) => config,
            Err(Error::Configuration(problems)) => {
                return Ok(CheckedConfig::of_problems(&problems));
            }
            Err(error) => return Err(error),
        };
        let mut checked = CheckedConfig::of(&config);
        if self.print {
            checked.print = Some(config.to_string());
            checked.settings = config.settings().iter().map(ShownSetting::from).collect();
            checked.recurring = config.tasks.iter().filter_map(Task::of).collect();
        }
        if self.connect || database.is_some() {
            checked.ask(&config)?;
        }
        Ok(checked)
    }
}

impl CheckedConfig {
    fn of_problems(problems: &[Problem]) -> Self {
        CheckedConfig {
            file: None,
            problems: problems.iter().map(ShownProblem::from).collect(),
            warnings: Vec::new(),
            connections: None,
            database: None,
            time_zones: RulesVersion::current().to_string(),
            settings: Vec::new(),
            recurring: Vec::new(),
            upcoming: Vec::new(),
            print: None,
        }
    }

    fn of(config: &Config) -> Self {
        let file = config.file.as_ref();
        CheckedConfig {
            file: file.map(|file| file.display().to_string()),
            warnings: config.warnings().iter().map(ShownProblem::from).collect(),
            connections: Some(config.connections().into()),
            upcoming: RunsOf::all(config),
            ..Self::of_problems(&[])
        }
    }

    /// Checks the database.
    fn ask(&mut self, config: &Config) -> Result<()> {
        let database = config.database()?;
        let mut connection = match database.connect() {
            Ok(connection) => connection,
            Err(error) => {
                self.problems.push(error.to_string().into());
                return Ok(());
            }
        };
        if let Err(error) = migrate::check(&mut connection.as_conn(), &database) {
            self.problems.push(error.to_string().into());
        }
        let room = connection_limit(&mut connection.as_conn())?;
        let needed = config.connections().total();
        if let Some(ConnectionLimit { allowed, .. }) = room
            && i64::try_from(needed).is_ok_and(|needed| needed > allowed)
        {
            self.problems.push(
                format!(
                    "the server allows {allowed} connections, but all processes may open {needed}: \
                     raise its max_connections, or lower database.pool, threads or processes"
                )
                .into(),
            );
        }
        self.database = Some(ServerAnswer::of(&database, room));
        Ok(())
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Report for CheckedConfig {
    fn text(&self, _width: Option<usize>) -> String {
        let mut lines: Vec<String> = Vec::new();
        if !self.is_fine() {
            lines.push("The configuration is invalid:".to_owned());
            lines.extend(self.problems.iter().map(|told| format!("  {}", told.text)));
        } else if let Some(print) = &self.print {
            return print.clone();
        } else {
            lines.push(match &self.file {
                Some(file) => format!("{file} is fine."),
                None => "There is no configuration file; the rest is fine.".to_owned(),
            });
        }
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|told| format!("Warning: {}", told.text)));
        if let Some(connections) = &self.connections {
            lines.push(format!("It opens {}.", connections.text));
        }
        if let Some(asked) = &self.database {
            lines.push(match (asked.allows, asked.open) {
                (Some(allows), Some(open)) => format!(
                    "{} allows {allows} connections; {open} are open now.",
                    asked.target
                ),
                _ => format!("{} is a file.", asked.target),
            });
            lines.extend(asked.pooler());
        }
        if !self.upcoming.is_empty() {
            lines.push(format!("The rules of time zones are {}.", self.time_zones));
            lines.push("The next runs of the recurring tasks:".to_owned());
            lines.extend(self.upcoming.iter().map(|task| format!("  {}", task.text)));
        }
        lines.join("\n")
    }
}
