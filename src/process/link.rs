//! The database connection of a loop: its own, reopened when it breaks.

use super::lifeline::{Lifeline, Trouble};
use crate::clock::{self, Backoff};
use crate::db::{Conn, Connection, Refusal, blocked, prefer_indexes};
use crate::event::{Event, Subscriber};
use crate::job::JobId;
use diesel::QueryResult;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A loop's connection.
#[derive(Debug)]
pub(crate) struct Link {
    lifeline: Lifeline,
    connection: Option<Connection>,
    backoff: Backoff,
    /// What fails at present: its success, and no other, ends the trouble. On
    /// a full disk, one in two statements goes well.
    failing: Option<&'static str>,
    /// When the failure of each action was last reported.
    reported: HashMap<&'static str, Instant>,
    /// How the last attempt failed.
    refusal: Refusal,
}

/// Between attempts at a database that is away; between reports of it too.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Concurrency keys of one promotion: some milliseconds of work.
const PROMOTED_KEYS: usize = 100;

impl Link {
    pub(crate) fn new(lifeline: &Lifeline) -> Self {
        Link {
            lifeline: lifeline.clone(),
            connection: None,
            backoff: Backoff::up_to(LONGEST_PAUSE),
            failing: None,
            reported: HashMap::new(),
            refusal: Refusal::Trouble,
        }
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.lifeline.subscriber
    }

    /// Does `work`, opening a connection first if there is none. After an
    /// error the connection is thrown away, whatever the error was: it may
    /// lead to a server that has become a replica, or be out of step.
    ///
    /// The error says how long to wait before the next attempt.
    pub(crate) fn write<T>(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, Duration> {
        match self.attempt(work) {
            Ok(value) => {
                if self.failing == Some(action) {
                    self.failing = None;
                    self.backoff.reset();
                }
                Ok(value)
            }
            Err(trouble) => {
                self.suffer(action, trouble);
                Err(self.backoff.delay())
            }
        }
    }

    /// How the last [`write`](Self::write) failed that did.
    pub(crate) fn refusal(&self) -> Refusal {
        self.refusal
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
            Ok(error) => error.as_ref().map(Refusal::of),
            Err(_) => Some(Refusal::Trouble),
        }
    }

    /// Whether the database answers at all.
    pub(crate) fn is_well(&mut self) -> bool {
        self.attempt(crate::db::ping).is_ok()
    }

    /// Promotes blocked jobs of keys that are wanted. True: there may be more to
    /// do. If it does not work, somebody else does it, or it is done later.
    pub(crate) fn promote(&mut self) -> bool {
        let promoted = self.write("promote blocked jobs", |conn| {
            blocked::promote(conn, PROMOTED_KEYS)
        });
        let Ok(promoted) = promoted else { return false };
        for job in &promoted.discarded {
            self.subscriber().emit(&Event::Discarded {
                job: JobId(job.id),
                class: &job.class_name,
                kind: blocked::NO_SLOT,
            });
        }
        promoted.is_progress(PROMOTED_KEYS)
    }

    fn suffer(&mut self, action: &'static str, trouble: Trouble) {
        self.failing.get_or_insert(action);
        match trouble {
            Trouble::Passing(_) if self.lifeline.is_lost() => {}
            Trouble::Passing(reason) => {
                self.connection = None;
                self.complain(action, &reason);
            }
            Trouble::Lasting(reason) => self.lifeline.lose(&reason),
        }
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, Trouble> {
        self.refusal = Refusal::Trouble;
        if self.lifeline.is_lost() {
            return Err(Trouble::Passing(String::new()));
        }
        self.lifeline.look()?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let mut connection = self.lifeline.connect()?;
                connection
                    .write(prefer_indexes)
                    .map_err(|error| self.lifeline.judge(&error.to_string()))?;
                none.insert(connection)
            }
        };
        connection.write(work).map_err(|error| {
            self.refusal = Refusal::of(&error);
            self.lifeline.judge(&error.to_string())
        })
    }

    /// Reports that an action fails: at once, then every ten seconds at most,
    /// whatever goes well in between.
    pub(crate) fn complain(&mut self, action: &'static str, reason: &str) {
        let now = clock::instant();
        let last = self.reported.get(action);
        if last.is_none_or(|last| now - *last >= REPORT_EVERY) {
            self.reported.insert(action, now);
            self.subscriber()
                .emit(&Event::Unreachable { action, reason });
        }
    }
}

impl Drop for Link {
    /// Closing the last connection to a SQLite file writes the log back into
    /// it. A file that is lost is left as it is.
    fn drop(&mut self) {
        if self.lifeline.is_lost() {
            std::mem::forget(self.connection.take());
        }
    }
}
