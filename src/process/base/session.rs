//! The database connection of a loop: its own, reopened when it breaks.

use crate::clock::{self, Backoff};
use crate::db::table::wanted_keys;
use crate::db::transition::promote;
use crate::db::{Conn, DbConnection, Refusal, ServerSession, prefer_indexes};
use crate::deadline::{Hurry, no_answer};
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::job::id::JobId;
use crate::process::base::context::{DbFailure, ProcessContext};
use crate::process::base::wanted::WantedMark;
use diesel::QueryResult;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A loop's connection.
#[derive(Debug)]
pub(crate) struct Session {
    context: ProcessContext,
    connection: Option<DbConnection>,
    backoff: Backoff,
    /// The action that fails at present: only its success resets the backoff. On
    /// a full disk, one in two statements succeeds.
    failing: Option<&'static str>,
    /// When the failure of each action was last reported.
    reported: HashMap<&'static str, Instant>,
    /// How the last attempt failed, if it did.
    refusal: Option<Refusal>,
    /// For each statement, where it is not what the database gives.
    limit: Option<Duration>,
    /// For each statement after a stop.
    haste: Duration,
    /// Sessions of the server that gave no answer, and may hold locks.
    silent: Vec<ServerSession>,
    /// The last attempt got no answer: nobody knows what came of it.
    has_missed: bool,
    /// From where to look for wanted keys.
    pub(crate) wanted: WantedMark,
    /// When blocked jobs were last promoted.
    promoted_at: Option<Instant>,
}

/// The time between two promotions of a worker that always finds more to claim.
/// Mostly the end of a job promotes the next one; but that process may have
/// died in between.
const PROMOTE_EVERY: Duration = Duration::from_millis(50);

/// For each statement once a stop is asked for, also for the one under way.
const HASTE: Duration = Duration::from_secs(3);

/// Between attempts at a database that is away; between reports of it too.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

const SHORTEST_PAUSE: Duration = Duration::from_millis(25);

const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Concurrency keys of one promotion: some milliseconds of work.
const PROMOTED_KEYS: usize = 100;

impl Session {
    pub(crate) fn new(context: &ProcessContext) -> Self {
        Session {
            context: context.clone(),
            connection: None,
            backoff: Backoff::up_to(LONGEST_PAUSE),
            failing: None,
            reported: HashMap::new(),
            refusal: None,
            limit: None,
            haste: HASTE,
            silent: Vec::new(),
            has_missed: false,
            wanted: WantedMark::default(),
            promoted_at: None,
        }
    }

    /// Gives each statement no more than this.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Gives each statement no more than this once a stop is asked for.
    pub(crate) fn in_haste(mut self, limit: Duration) -> Self {
        self.haste = limit;
        self
    }

    /// Whether the last attempt got no answer.
    pub(crate) fn has_missed(&self) -> bool {
        self.has_missed
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.context.subscriber
    }

    /// Does `work`, opening a connection first if there is none. After an
    /// error the connection is thrown away, whatever the error was: it may
    /// lead to a server that has become a replica, or be out of step.
    ///
    /// The error says how long to wait before the next attempt.
    pub(crate) fn run<T>(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, Duration> {
        let start = clock::instant();
        match self.attempt(work) {
            Ok(value) => {
                if self.failing == Some(action) {
                    self.failing = None;
                    self.backoff.reset();
                }
                Ok(value)
            }
            Err(failure) => {
                self.record_failure(action, failure);
                // What was waited for in vain counts as a pause.
                Err(self
                    .backoff
                    .delay()
                    .saturating_sub(start.elapsed())
                    .max(SHORTEST_PAUSE))
            }
        }
    }

    /// How the last attempt failed, if it did.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Whether it failed so that another would fail likewise.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.refusal == Some(Refusal::Trouble)
    }

    /// How `work` would be refused now. `None`: it would be accepted. Nothing of
    /// it is kept.
    pub(crate) fn would_refuse(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<()>,
    ) -> Option<Refusal> {
        use diesel::result::Error::RollbackTransaction;
        let tried = self.attempt(|conn| {
            let result = conn.transaction(|conn| {
                work(conn)?;
                Err::<(), _>(RollbackTransaction)
            });
            Ok(result.err().filter(|error| *error != RollbackTransaction))
        });
        match tried {
            Ok(error) if !self.has_missed => error.as_ref().map(Refusal::of),
            _ => Some(Refusal::Trouble),
        }
    }

    /// Whether the database answers, so that the error of the last attempt was
    /// its answer to that.
    pub(crate) fn is_well(&mut self) -> bool {
        !self.has_missed && self.attempt(crate::db::conn::connection::ping).is_ok()
    }

    /// Whether the last promotion is so long ago that another one costs little.
    pub(crate) fn may_promote(&self) -> bool {
        let is_recent = |at: Instant| at.elapsed() < PROMOTE_EVERY;
        !self.promoted_at.is_some_and(is_recent)
    }

    /// Promotes blocked jobs of keys that are wanted. True: there may be more to
    /// do. If it does not work, somebody else does it, or it is done later.
    pub(crate) fn promote(&mut self) -> bool {
        self.promoted_at = Some(clock::instant());
        let look = self.wanted.begin();
        let promoted = self.run("promote blocked jobs", |conn| {
            let promoted = promote::promote_after(conn, look.after, PROMOTED_KEYS)?;
            let asks = look.asks_after(promoted.looked);
            let last = asks.then(|| wanted_keys::last_id(conn)).transpose()?;
            Ok((promoted, last))
        });
        let Ok((promoted, last)) = promoted else {
            return false;
        };
        let is_full = promoted.keys >= PROMOTED_KEYS;
        self.wanted.end(look, promoted.looked, is_full, last);
        for job in &promoted.discarded {
            self.subscriber().emit(&Event::Discarded {
                job: JobId(job.id),
                class: &job.class_name,
                kind: promote::NO_SLOT,
                message: "",
            });
        }
        promoted.is_progress(PROMOTED_KEYS)
    }

    fn record_failure(&mut self, action: &'static str, failure: DbFailure) {
        self.failing.get_or_insert(action);
        match failure {
            DbFailure::Transient(_) if self.context.is_lost() => {}
            DbFailure::Transient(reason) => {
                self.connection = None;
                self.report(action, &reason);
            }
            DbFailure::Fatal(reason) => self.context.lose(&reason),
        }
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, DbFailure> {
        self.has_missed = false;
        self.refusal = Some(Refusal::Trouble);
        if self.context.is_lost() {
            return Err(DbFailure::Transient(String::new()));
        }
        self.context.look()?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let result = connection.with_write_lock(work);
        let Some(limit) = connection.missed() else {
            self.connection = Some(connection);
            self.refusal = result.as_ref().err().map(Refusal::of);
            return result.map_err(|error| self.context.judge(&error.to_string()));
        };
        self.has_missed = true;
        self.silent.extend(connection.session());
        result.map_err(|_| DbFailure::Transient(no_answer(limit)))
    }

    /// Opens a connection, and ends the sessions that gave no answer: where
    /// the server itself is not frozen, their locks go with them.
    fn open(&mut self) -> Result<DbConnection, DbFailure> {
        let mut connection = self.context.connect(Some(Hurry {
            stopping: self.context.stop.flag(),
            limit: self.haste,
        }))?;
        let transient = |error: diesel::result::Error| self.context.judge(&error.to_string());
        if let Some(limit) = self.limit {
            connection.hurry(limit).map_err(transient)?;
        }
        connection
            .with_write_lock(prefer_indexes)
            .map_err(transient)?;
        for session in self.silent.drain(..) {
            connection.end(&session).map_err(transient)?;
        }
        Ok(connection)
    }

    /// Reports that an action fails: at once, then every ten seconds at most,
    /// whatever goes well in between.
    pub(crate) fn report(&mut self, action: &'static str, reason: &str) {
        let now = clock::instant();
        let last = self.reported.get(action);
        if last.is_none_or(|last| now - *last >= REPORT_EVERY) {
            self.reported.insert(action, now);
            self.subscriber()
                .emit(&Event::Unreachable { action, reason });
        }
    }
}

impl Drop for Session {
    /// Closing the last connection to a SQLite file writes the log back into
    /// it. A file that is lost is left as it is.
    fn drop(&mut self) {
        if self.context.is_lost() {
            std::mem::forget(self.connection.take());
        }
    }
}
