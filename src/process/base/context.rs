//! What all loops of a process share: the database, the subscriber, the stop.

use crate::clock;
use crate::db::schema::migrate;
use crate::db::{Database, DbConnection, FileId, Refusal};
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::process::base::liveness::Liveness;
use crate::process::base::stop::Stop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all loops of a process. When the database is lost for good, it
/// stops them all and nothing is written any more.
#[derive(Debug, Clone)]
pub(crate) struct ProcessContext {
    pub(crate) database: Database,
    /// Its panics stop the process too.
    pub(crate) subscriber: Subscriber,
    /// Stops the process.
    pub(crate) stop: Stop,
    pub(crate) liveness: Liveness,
    /// Ends a completer even if it could not write everything.
    pub(crate) give_up_writing: Stop,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Set once the tables were found to serve.
    checked: OnceLock<Option<FileId>>,
    is_lost: AtomicBool,
    /// Since when no file descriptor was to be had for a connection.
    starved: Mutex<Option<Instant>>,
}

/// For how long a process goes on that cannot open a connection because all
/// file descriptors are in use. Its heartbeat has one, so no supervisor would ever take it
/// for dead, and what it holds would never end.
const STARVED: Duration = Duration::from_secs(10);

/// Why a statement failed.
pub(crate) enum DbFailure {
    /// The next attempt may succeed.
    Transient(String),
    /// No attempt will succeed.
    Fatal(String),
}

/// Whether the server is away, or went away before it had answered.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Connect { .. } => true,
        Error::Query { source, .. } => Refusal::of(source) != Refusal::Content,
        _ => false,
    }
}

impl ProcessContext {
    /// Refuses tables that are missing or too old, and a SQLite file that is
    /// missing. A server that does not answer is no reason to refuse: it is
    /// waited for, and its tables are looked at when it comes.
    pub(crate) fn open(database: &Database, subscriber: &Subscriber) -> Result<Self> {
        let stop = Stop::new();
        let context = ProcessContext {
            database: database.clone(),
            subscriber: subscriber.on_panic({
                let stop = stop.clone();
                move || stop.break_down()
            }),
            stop,
            liveness: Liveness::default(),
            give_up_writing: Stop::new(),
            state: Arc::default(),
        };
        let checked = database
            .connect()
            .and_then(|mut connection| context.check(&mut connection));
        match checked {
            // The first connection of a loop is checked then.
            Err(error) if is_away(&error) && database.listens_by_notification() => {
                context.subscriber.emit(&Event::Unreachable {
                    action: "check the tables",
                    reason: &error.to_string(),
                });
            }
            checked => checked?,
        }
        Ok(context)
    }

    fn check(&self, connection: &mut DbConnection) -> Result<()> {
        connection.with_write_lock(|conn| migrate::check(conn, &self.database))?;
        self.state.checked.get_or_init(|| self.database.file());
        Ok(())
    }

    /// Opens a connection to the database that was there at the start.
    pub(crate) fn connect(&self, hurry: Option<Hurry>) -> Result<DbConnection, DbFailure> {
        let connected = self.database.connect_in_haste(hurry);
        self.note_descriptors(connected.is_ok());
        let mut connection = connected.map_err(|error| match &error {
            // The address in front of it would hide how it begins.
            Error::Connect { reason, .. } => match self.judge(reason) {
                DbFailure::Transient(_) => DbFailure::Transient(error.to_string()),
                fatal => fatal,
            },
            other => DbFailure::Transient(other.to_string()),
        })?;
        if self.state.checked.get().is_none() {
            self.check(&mut connection).map_err(|error| match error {
                Error::Schema(error) => DbFailure::Fatal(error.to_string()),
                other => DbFailure::Transient(other.to_string()),
            })?;
        }
        Ok(connection)
    }

    /// Stops the process when it has had no file descriptor for a connection
    /// for too long: something leaks them, and the end of the process frees all.
    fn note_descriptors(&self, is_connected: bool) {
        let mut starved = self
            .state
            .starved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if is_connected || has_descriptor() {
            *starved = None;
            return;
        }
        let since = *starved.get_or_insert_with(clock::instant);
        if since.elapsed() < STARVED || self.stop.is_broken() {
            return;
        }
        drop(starved);
        self.subscriber.emit(&Event::Broken {
            reason: "it has no file descriptor left for a connection to the database; \
                     find what opens files or sockets and does not close them, or raise the limit (ulimit -n)",
        });
        self.stop.break_down();
    }

    /// Whether the file is still the one that was opened: asked before every
    /// statement, for SQLite itself would go on writing into a removed one.
    pub(crate) fn look(&self) -> Result<(), DbFailure> {
        let file = self.state.checked.get().and_then(Option::as_ref);
        match file.and_then(FileId::gone) {
            Some(reason) => Err(DbFailure::Fatal(reason)),
            None => Ok(()),
        }
    }

    /// What the message of a failed attempt means.
    pub(crate) fn judge(&self, message: &str) -> DbFailure {
        match self.database.permanent_failure(message) {
            Some(reason) => DbFailure::Fatal(reason),
            None => DbFailure::Transient(message.to_owned()),
        }
    }

    /// The database is lost: from now on nothing is read or written, and the
    /// process stops. Said once, by whoever sees it first.
    pub(crate) fn lose(&self, reason: &str) {
        if self.state.is_lost.swap(true, Ordering::SeqCst) {
            return;
        }
        self.subscriber.emit(&Event::Broken { reason });
        self.give_up_writing.stop();
        self.stop.break_down();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::SeqCst)
    }
}

/// Whether a file can be opened.
fn has_descriptor() -> bool {
    let code = std::fs::File::open("/dev/null").err();
    let code = code.and_then(|error| error.raw_os_error());
    ![Some(libc::EMFILE), Some(libc::ENFILE)].contains(&code)
}
