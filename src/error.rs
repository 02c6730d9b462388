//! The one error type of the crate.

use std::fmt;
use std::path::PathBuf;

/// What went wrong, with what was tried and what to do next.
///
/// No variant carries job arguments, and database addresses are shown
/// without user, password or parameters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text given as a database address is none that this build serves.
    #[error("`{url}` is no database that this program can open: {reason}")]
    Url {
        /// The address, without secrets.
        url: String,
        /// Why it was refused and what is accepted.
        reason: String,
    },
    /// The database could not be reached or opened.
    #[error("cannot open the database {target}: {reason}")]
    Connect {
        /// The address, without secrets.
        target: String,
        /// What the database or the file system answered, and what to do.
        reason: String,
    },
    /// The connection leads to another kind of database than was asked for.
    #[error(
        "this is a connection to {is}, not to {wanted}: ask it for {is}, or open a {wanted} database"
    )]
    OtherDatabase {
        /// `Postgres` or `SQLite`: what it is.
        is: &'static str,
        /// The other.
        wanted: &'static str,
    },
    /// A job stopped waiting for the database, which is away.
    #[error("cannot open the database {target}: {reason}")]
    GaveUp {
        /// The address, without secrets.
        target: String,
        /// What the database or the file system answered.
        reason: String,
        /// Why the job should end: an [`Interrupted`](crate::Interrupted),
        /// which [`JobError`](crate::JobError) takes over.
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A statement failed.
    #[error("cannot {action}: {source}")]
    Query {
        /// What was tried.
        action: &'static str,
        /// What the database answered.
        #[source]
        source: diesel::result::Error,
    },
    /// The tables are missing, too old or too new.
    #[error("{0}")]
    Schema(#[from] SchemaError),
    /// A migration failed; nothing of it was kept.
    #[error("migration {version} failed and was rolled back: {reason}")]
    Migration {
        /// The migration's version.
        version: String,
        /// What the database answered.
        reason: String,
    },
    /// A job was refused before any SQL was sent.
    #[error("cannot enqueue `{class}`: {reason}")]
    InvalidJob {
        /// The class name that was given.
        class: String,
        /// What is wrong with it and what is accepted.
        reason: String,
    },
    /// Another job holds the unique id, and the enqueue was to be refused then.
    #[error("cannot enqueue `{class}`: job {existing} holds the unique id `{unique_id}`")]
    UniqueIdTaken {
        /// The class name that was given.
        class: String,
        /// The unique id.
        unique_id: String,
        /// The id of the job that holds it.
        existing: i64,
    },
    /// A job that was asked for is not known.
    #[error(
        "there is no job `{job}`, or nothing is left of it: `windlass jobs list` shows those that are there"
    )]
    NoSuchJob {
        /// The id or the unique id, escaped.
        job: String,
    },
    /// A name of a queue or class is not acceptable.
    #[error("`{name}` is no {what}: {reason}")]
    InvalidName {
        /// The name, cut and escaped.
        name: String,
        /// What the name was for.
        what: &'static str,
        /// What is accepted.
        reason: &'static str,
    },
    /// A text that says no time.
    #[error("`{text}` is no schedule: {reason}")]
    Schedule {
        /// The text, cut and escaped.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A recurring task that cannot be what is asked of it.
    #[error("the recurring task `{key}` {reason}")]
    RecurringTask {
        /// Its key, cut and escaped.
        key: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Settings that cannot work together.
    #[error("{0}")]
    Settings(String),
    /// A hook of `on_start` refused the start of a process.
    #[error("a hook refused to start the {kind}: {source}")]
    Hook {
        /// `Worker`, `Dispatcher`, `Scheduler` or `Supervisor`.
        kind: &'static str,
        /// What the hook answered.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A configuration in which something is wrong, all of it.
    #[error("the configuration is wrong:\n{}", lines(.0))]
    Configuration(Vec<Problem>),
    /// Another supervisor of this host holds the pidfile.
    #[error(
        "cannot start a second supervisor: {path} is held by {holder}; stop it first, or give this one a pidfile of its own"
    )]
    AlreadyRunning {
        /// The pidfile.
        path: PathBuf,
        /// Who holds it: `process 4711`.
        holder: String,
    },
    /// A program or thread could not be started, or a file not written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or program.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
}

/// Something that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file, the environment variable or the option. `None`: no single one
    /// is to blame, or the configuration has no file.
    pub place: Option<String>,
    /// The line of the file, counted from 1.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (
            self.place.as_deref().filter(|place| !place.is_empty()),
            self.line,
        ) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(place), None) => write!(f, "{place}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("  {problem}"))
        .collect();
    lines.join("\n")
}

/// Why the tables of a database do not serve this version of Windlass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// No table of ours is there.
    #[error("{target} has no Windlass tables yet: run `windlass migrate --database URL`")]
    Missing {
        /// The address, without secrets.
        target: String,
    },
    /// Some migrations were not applied.
    #[error(
        "the tables of {target} are of version {found}, this program needs {needed}, which was not applied: run `windlass migrate --database URL`"
    )]
    Old {
        /// The address, without secrets.
        target: String,
        /// The newest version that is applied.
        found: String,
        /// The first version that is not applied and that this program needs.
        needed: String,
    },
    /// All migrations were applied, but something dropped or replaced a part of
    /// the tables afterwards; Rails' schema load does.
    #[error(
        "the tables of {target} are incomplete: {missing}: run `windlass migrate --database URL`"
    )]
    Incomplete {
        /// The address, without secrets.
        target: String,
        /// The first thing that is missing, as in
        /// `the column solid_queue_jobs.policy is missing`.
        missing: String,
    },
}

/// What most functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A message of libpq in one line.
pub(crate) fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// Says what a failed statement was for.
pub(crate) trait Doing<T> {
    /// Names the attempt, as in "cannot {action}: ...".
    fn doing(self, action: &'static str) -> Result<T>;
}

impl<T> Doing<T> for diesel::QueryResult<T> {
    fn doing(self, action: &'static str) -> Result<T> {
        self.map_err(|source| Error::Query { action, source })
    }
}

// Lets a caller write `conn.transaction::<_, windlass::Error, _>(..)`.
impl From<diesel::result::Error> for Error {
    fn from(source: diesel::result::Error) -> Self {
        Error::Query {
            action: "complete the transaction",
            source,
        }
    }
}
