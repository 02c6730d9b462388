//! The one error type of the crate.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An error of this crate: what was tried, what went wrong and what to do next.
///
/// No variant contains job arguments. Database addresses are shown without user, password or
/// parameters.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{Error, NewJob, OnConflict, Policy};
///
/// let policy = Policy::new().on_conflict(OnConflict::Refuse);
/// let import = || NewJob::of_class("import", "{}").unique_id("users").policy(policy.clone());
/// import().enqueue(&mut conn)?;
/// match import().enqueue(&mut conn) {
///     Err(Error::UniqueIdTaken { existing, .. }) => println!("job {existing} does it already"),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database address is not one that this build supports.
    #[error("`{url}` is not a database that this program can open: {reason}")]
    Url {
        /// The address, without secrets.
        url: String,
        /// Why it was rejected, and what is accepted.
        reason: String,
    },
    /// The database could not be reached or opened.
    #[error("cannot open the database {target}: {reason}")]
    Connect {
        /// The address, without secrets.
        target: String,
        /// The error that the database or the file system reported, and what to do.
        reason: String,
    },
    /// The connection leads to a different kind of database than was requested.
    #[error(
        "this is a connection to {is}, not to {wanted}: request {is}, or open a {wanted} database"
    )]
    OtherDatabase {
        /// The kind of database that the connection leads to: `Postgres` or `SQLite`.
        is: &'static str,
        /// The kind of database that was requested.
        wanted: &'static str,
    },
    /// A job stopped waiting for a database that is unavailable.
    #[error("cannot open the database {target}: {reason}")]
    GaveUp {
        /// The address, without secrets.
        target: String,
        /// The error that the database or the file system reported.
        reason: String,
        /// Why the job should stop: an [`Interrupted`](crate::Interrupted), which
        /// [`JobError`](crate::JobError) preserves.
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A statement failed.
    #[error("cannot {action}: {source}")]
    Query {
        /// The action that failed, such as `read the quotas`.
        action: &'static str,
        /// The error that the database reported.
        #[source]
        source: diesel::result::Error,
    },
    /// The tables are missing, too old or too new.
    #[error("{0}")]
    Schema(#[from] SchemaError),
    /// A migration failed and was rolled back.
    #[error("migration {version} failed and was rolled back: {reason}")]
    Migration {
        /// The migration's version.
        version: String,
        /// The error that the database reported.
        reason: String,
    },
    /// A job was rejected before any SQL was sent.
    #[error("cannot enqueue `{class}`: {reason}")]
    InvalidJob {
        /// The class name that was given.
        class: String,
        /// The problem with the job, and what is accepted.
        reason: String,
    },
    /// The class is [internal](crate::Job::INTERNAL), and was given by its name.
    #[error(
        "cannot enqueue `{class}` by name: its type is internal, so only its program's own code enqueues it"
    )]
    InternalClass {
        /// The class name that was given.
        class: String,
    },
    /// No worker has stored the class, and [unknown classes are refused](crate::classes::strict).
    #[error("cannot enqueue `{class}`: no worker has stored it; start one, or correct the name")]
    UnknownClass {
        /// The class name that was given.
        class: String,
    },
    /// Another job holds the unique id, and the conflict policy is to refuse.
    #[error("cannot enqueue `{class}`: job {existing} holds the unique id `{unique_id}`")]
    UniqueIdTaken {
        /// The class name that was given.
        class: String,
        /// The unique id.
        unique_id: String,
        /// The id of the job that holds it.
        existing: i64,
    },
    /// On Postgres, the `lock_timeout` ended the wait for a transaction that has a unique id or key of the job.
    #[error("cannot enqueue `{class}`: an open transaction holds {names}: enqueue it again later")]
    NamesLocked {
        /// The class name that was given; of several jobs, that of the first with a name.
        class: String,
        /// The unique ids and idempotency keys of the enqueue, of which one is held.
        names: String,
        /// The error that the database reported.
        source: diesel::result::Error,
    },
    /// The job exceeds its [`Quota`](crate::Quota), and nothing was enqueued.
    #[error("cannot enqueue `{class}`: the quota `{quota}` allows {limit} {counts}; {}", again(*.retry_after, *.limit, *.wanted))]
    QuotaExceeded {
        /// The class name that was given; of several jobs, that of the first with this quota.
        class: String,
        /// The name of the quota.
        quota: String,
        /// Its limit.
        limit: u64,
        /// The unit of the limit: `waiting jobs`, or `enqueues per` `second`, `minute` or `day`.
        counts: &'static str,
        /// The number of jobs in the enqueue that count for the quota.
        wanted: u64,
        /// The time after which to try again. `None` if that is not known: waiting jobs have to start
        /// first, or the enqueue has more jobs than the quota ever allows.
        retry_after: Option<Duration>,
    },
    /// The requested job does not exist.
    #[error(
        "there is no job `{job}`, or its rows were removed: `windlass jobs list` shows the existing jobs"
    )]
    NoSuchJob {
        /// The id or the unique id, escaped.
        job: String,
    },
    /// The jobs of a [`Flow`](crate::Flow) do not fit together.
    #[error("the flow is invalid: {0}")]
    Flow(String),
    /// A job that a new job waits for is not stored, and neither is its result.
    #[error(
        "cannot enqueue `{class}`: it waits for job {parent}, which is not stored; it never was, or has ended and is not \
         kept: enqueue both in one transaction"
    )]
    NoSuchParent {
        /// The class name that was given.
        class: String,
        /// The id of the job that it waits for.
        parent: i64,
    },
    /// The batch is over, so that no jobs can be added to it.
    #[error(
        "cannot add jobs to batch {id}: it is over; add them in the transaction that enqueues it, or from one of its jobs"
    )]
    BatchOver {
        /// The id of the batch.
        id: i64,
    },
    /// The batch does not exist, or belongs to Ruby.
    #[error("there is no batch {id} of Windlass, or it is not kept any more")]
    NoSuchBatch {
        /// The id of the batch.
        id: i64,
    },
    /// An event of this name was emitted before with another payload, which stays.
    #[error(
        "cannot emit the event `{event}`: it was emitted before with another payload, which stays"
    )]
    EventTaken {
        /// The name of the event.
        event: String,
    },
    /// The name or the payload of an event is invalid.
    #[error("cannot emit the event `{event}`: {reason}")]
    InvalidEvent {
        /// The name of the event, shortened and escaped.
        event: String,
        /// The problem, and what is accepted.
        reason: String,
    },
    /// The batch was enqueued by a Rails app, and cannot be changed as a whole.
    #[error(
        "batch {id} is of Ruby, whose callbacks only Ruby can run: change its jobs by `windlass jobs` and `windlass failed` \
         with `--batch {id}`"
    )]
    BatchOfRuby {
        /// The id of the batch.
        id: i64,
    },
    /// The requested operation does not exist.
    #[error(
        "there is no operation {id}, or it is not kept any more: `windlass operations list` shows all"
    )]
    NoSuchOperation {
        /// The id of the operation.
        id: i64,
    },
    /// The arguments of a job could not be changed.
    #[error("cannot edit job {job}: {reason}")]
    Edit {
        /// The id of the job.
        job: i64,
        /// Why, and what to do.
        #[source]
        reason: EditRefusal,
    },
    /// The name of a queue or class is invalid.
    #[error("`{name}` is not a valid {what}: {reason}")]
    InvalidName {
        /// The name, shortened and escaped.
        name: String,
        /// The kind of name, such as `queue name`.
        what: &'static str,
        /// The reason why the name is invalid.
        reason: &'static str,
    },
    /// A text is not a valid schedule.
    #[error("`{text}` is not a valid schedule: {reason}")]
    Schedule {
        /// The text, shortened and escaped.
        text: String,
        /// The problem with the text.
        reason: String,
    },
    /// A recurring task cannot be changed or run as requested.
    #[error("the recurring task `{key}` {reason}")]
    RecurringTask {
        /// The key, shortened and escaped.
        key: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// An `on_start` hook refused to start a process.
    #[error("a hook refused to start the {kind}: {source}")]
    Hook {
        /// `Worker`, `Dispatcher`, `Scheduler` or `Supervisor`.
        kind: &'static str,
        /// The error that the hook returned.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration is invalid; this lists every problem found.
    #[error("the configuration is invalid:\n{}", lines(.0))]
    Configuration(Vec<Problem>),
    /// Another supervisor on this host holds the pidfile.
    #[error(
        "cannot start a second supervisor: {path} is held by {holder}; stop it first, or give this one a pidfile of its own"
    )]
    AlreadyRunning {
        /// The pidfile.
        path: PathBuf,
        /// The holder, such as `process 4711`.
        holder: String,
    },
    /// A program or thread could not be started, or a file could not be written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The action that failed, such as `start the program`.
        action: &'static str,
        /// The file or program.
        path: PathBuf,
        /// The error that the operating system reported.
        #[source]
        source: std::io::Error,
    },
}

/// One problem found in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file, the environment variable or the option.
    ///
    /// `None` if no single one is at fault, or the configuration does not come from a file.
    pub place: Option<String>,
    /// The line of the file, starting at 1.
    pub line: Option<usize>,
    /// The problem, and what would be valid.
    pub message: String,
}

impl Problem {
    #[doc(hidden)]
    pub fn new(place: Option<String>, line: Option<usize>, message: String) -> Self {
        Problem {
            place,
            line,
            message,
        }
    }
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

/// Says when to try an enqueue again that exceeds a quota.
fn again(retry_after: Option<Duration>, limit: u64, wanted: u64) -> String {
    match retry_after {
        Some(time) => format!("try again in {} s", time.as_secs()),
        None if wanted > limit => format!("{wanted} jobs at once never fit: enqueue fewer"),
        None => "try again when waiting jobs have started".to_owned(),
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| format!("  {problem}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The result type of most functions in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns a message of libpq on one line.
pub(crate) fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// Adds to an error what the failed statement was for.
pub trait ErrorContext<T> {
    /// Names the attempt, as in "cannot {action}: ...".
    fn during(self, action: &'static str) -> Result<T>;
}

impl<T> ErrorContext<T> for diesel::QueryResult<T> {
    fn during(self, action: &'static str) -> Result<T> {
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

// --- The errors of tables, and of a change of arguments ---

/// Why the tables of a database cannot be used by this version of Windlass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The database has no Windlass tables.
    #[error("{target} has no Windlass tables yet: run `windlass migrate --database URL`")]
    Missing {
        /// The database's address, without secrets.
        target: String,
    },
    /// The database cannot hold every text: only those of UTF8 can.
    #[error(
        "the database `{database}` has the encoding {encoding}, which cannot hold every text of a job: use one that was \
         created with UTF8, as by `createdb --template template0 --encoding UTF8 NAME`"
    )]
    Encoding {
        /// The database's name.
        database: String,
        /// Its encoding, such as `LATIN1`.
        encoding: String,
    },
    /// Some migrations have not been applied.
    #[error(
        "the tables of {target} are of version {found}, this program needs {needed}, which has not been applied: run `windlass migrate --database URL`"
    )]
    Old {
        /// The database's address, without secrets.
        target: String,
        /// The newest applied migration.
        found: String,
        /// The first missing migration that this program needs.
        needed: String,
    },
    /// The tables were made by a version of Windlass before its first release, which this one does not know.
    #[error(
        "the tables of {database} were made by a version of Windlass before its first release (migration {found}), and are \
         not brought up to date: use an empty database, or drop all that is named windlass_* in this one, and run \
         `windlass migrate --database URL`"
    )]
    Unreleased {
        /// The database's name, or its file.
        database: String,
        /// The first migration that this program does not know.
        found: String,
    },
    /// All migrations were applied, but part of the tables was dropped or replaced afterwards.
    ///
    /// Loading a Rails schema file does this.
    #[error(
        "the tables of {target} are incomplete: {missing}: run `windlass migrate --database URL`"
    )]
    Incomplete {
        /// The database's address, without secrets.
        target: String,
        /// The first missing part, such as `the column solid_queue_jobs.policy is missing`.
        missing: String,
    },
}

/// Why the arguments of a job cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditRefusal {
    /// A process holds the job.
    #[error("it is running, with the arguments that it had when it started")]
    Running,
    /// The job has finished, or was cancelled or discarded.
    #[error("it has ended: enqueue another one")]
    Ended,
    /// Active Job enqueued the job, and stored more than its arguments.
    #[error("Active Job stored more than its arguments: discard it, and enqueue another one")]
    OfRuby,
    /// The job's class is [internal](crate::Job::INTERNAL).
    #[error(
        "its type is internal, so only its program's own code sets its arguments: cancel it, and let \
         the program enqueue another one"
    )]
    Internal,
    /// A secret was copied as it is shown.
    #[error("a field is `[hidden]`, which is how secrets are shown: write its value")]
    Hidden,
    /// The new arguments are invalid.
    #[error("{0}")]
    Invalid(String),
}
