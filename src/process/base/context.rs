//! The resources that all loops of a process share: the database, the subscriber, the stop.

use crate::clock;
use crate::db::conn::pooling::pooler::Pooler;
use crate::db::schema::migrate;
use crate::db::{Database, DbConnection, FileId, Refusal};
use crate::deadline::Hurry;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::health::HealthState;
use crate::process::base::history::HistoryCollector;
use crate::process::base::liveness::Liveness;
use crate::process::base::shares_in_use::SharesInUse;
use crate::process::base::stop::Stop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The state that all loops of a process share. When the database is permanently lost, it stops all
/// loops, and nothing is written any more.
#[derive(Debug, Clone)]
pub(crate) struct ProcessContext {
    pub(crate) database: Database,
    /// A panic of the subscriber stops the process too.
    pub(crate) subscriber: Subscriber,
    /// Stops the process.
    pub(crate) stop: Stop,
    pub(crate) liveness: Liveness,
    pub(crate) health: HealthState,
    /// The turns of its duties, if it has any.
    pub(crate) duties: DutyTurns,
    /// Ends a completer even if some outcomes are not saved.
    pub(crate) give_up_writing: Stop,
    /// Counts what the jobs of the process come to.
    pub(crate) history: Arc<HistoryCollector>,
    pub(crate) next_rate: NextRate,
    pub(crate) shares: SharesInUse,
    state: Arc<ContextState>,
}

/// The time at which the next rate is due, as far as the process knows. All its loops share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NextRate(Arc<Mutex<KnownRate>>);

#[derive(Debug, Clone, Copy, Default)]
struct KnownRate {
    due: Option<Instant>,
    looked_at: Option<Instant>,
}

/// The pause after a look: another process may be looking at a rate that is due.
const SOONEST: Duration = Duration::from_millis(10);

/// The time after which what is known may be wrong.
const OLD: Duration = Duration::from_secs(1);

impl NextRate {
    fn known(&self) -> KnownRate {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets it to so much time from now.
    pub(crate) fn set(&self, left: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = KnownRate {
            due: left.map(clock::deadline),
            looked_at: Some(clock::instant()),
        };
    }

    /// Does the same after a look at the rates that were due.
    pub(crate) fn set_after_look(&self, left: Option<Duration>) {
        self.set(left.map(|left| left.max(SOONEST)));
    }

    /// Has the next promotion look at the rates that are due.
    pub(crate) fn set_due(&self) {
        self.set(Some(Duration::ZERO));
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        let due = self.known().due;
        due.map(|at| at.saturating_duration_since(clock::instant()))
    }

    pub(crate) fn is_due(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Returns whether it was read a while ago, or never.
    pub(crate) fn is_old(&self) -> bool {
        let looked_at = self.known().looked_at;
        looked_at.is_none_or(|at| at.elapsed() >= OLD)
    }
}

#[derive(Debug, Default)]
struct ContextState {
    /// Set after the tables passed the check.
    checked: OnceLock<Option<FileId>>,
    is_lost: AtomicBool,
    /// Since when no file descriptor was free for a connection.
    starved: Mutex<Option<Instant>>,
}

/// The time for which a process continues while all file descriptors are in use, so that it cannot
/// open a connection. Its heartbeat already has one, so supervisors would never treat the process
/// as dead, and its claims would never end.
const STARVED: Duration = Duration::from_secs(10);

/// Why a statement failed.
pub(crate) enum DbFailure {
    /// The next attempt may succeed.
    Transient(String),
    /// No attempt will succeed.
    Fatal(String),
}

/// Returns whether the server is away, or went away before it answered.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Connect { .. } => true,
        Error::Query { source, .. } => Refusal::of(source) != Refusal::Content,
        _ => false,
    }
}

impl ProcessContext {
    /// Refuses tables that are missing or too old, and a SQLite file that is missing. A server that
    /// does not answer is not refused: the process waits for it, and checks its tables on the first
    /// connection.
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
            health: HealthState::default(),
            duties: DutyTurns::default(),
            give_up_writing: Stop::new(),
            history: Arc::default(),
            next_rate: NextRate::default(),
            shares: SharesInUse::default(),
            state: Arc::default(),
        };
        let checked = database
            .connect()
            .and_then(|mut connection| context.check(&mut connection));
        match checked {
            // Then the first connection of a loop is checked.
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
        self.tell_pooling();
        Ok(())
    }

    /// Says once how a pooler changes the way in which the processes work.
    fn tell_pooling(&self) {
        let database = &self.database;
        if !database.pooler().is_some_and(Pooler::is_to_be_told) {
            return;
        }
        let target = &*database.target();
        if database.pooler().is_some_and(Pooler::is_recognised) {
            log::info!(database = target;
                "a pooler in transaction mode stands before {target}: nothing is kept in sessions of the server"
            );
        }
        if !database.can_listen() {
            log::info!(database = target;
                "workers of {target} poll for jobs: behind a pooler in transaction mode they are notified only through listen_url"
            );
        }
    }

    /// Opens a connection to the same database as at the start.
    pub(crate) fn connect(&self, hurry: Option<Hurry>) -> Result<DbConnection, DbFailure> {
        let connected = self.database.connect_in_haste(hurry);
        self.note_descriptors(connected.is_ok());
        let mut connection = connected.map_err(|error| match &error {
            // The reason alone: behind the address, its beginning would not be found.
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

    /// Stops the process when no file descriptor was free for a connection for too long: something
    /// leaks them, and the end of the process frees all.
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

    /// Checks that the database file is still the one that was opened. This runs before every
    /// statement, because SQLite itself would continue to write into a removed file.
    pub(crate) fn check_file(&self) -> Result<(), DbFailure> {
        let file = self.state.checked.get().and_then(Option::as_ref);
        match file.and_then(FileId::gone) {
            Some(reason) => Err(DbFailure::Fatal(reason)),
            None => Ok(()),
        }
    }

    /// Returns whether an attempt that failed with this message may be repeated.
    pub(crate) fn judge(&self, message: &str) -> DbFailure {
        match self.database.permanent_failure(message) {
            Some(reason) => DbFailure::Fatal(reason),
            None => DbFailure::Transient(message.to_owned()),
        }
    }

    /// Records that the database is lost: from now on nothing is read or written, and the process
    /// stops. Only the first call emits the event.
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

/// Returns whether a file can be opened.
fn has_descriptor() -> bool {
    let code = std::fs::File::open("/dev/null").err();
    let code = code.and_then(|error| error.raw_os_error());
    ![Some(libc::EMFILE), Some(libc::ENFILE)].contains(&code)
}
