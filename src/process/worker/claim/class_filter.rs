//! The classes that a worker claims: those it has registered, without the paused ones.

use crate::clock;
use crate::db::Conn;
use crate::db::model::claim::{ClaimRequest, Claimed, Claims, Cursor, PausedScan};
use crate::db::table::run_time;
use crate::db::table::{pauses, ready};
use crate::db::transition::claim::claim_past_paused;
use crate::process::base::session::Session;
use diesel::QueryResult;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which the paused classes are read.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(1);

/// The classes of a worker, for its threads that claim: the poller, and the completer when it
/// passes slots on. Whichever needs them first reads the pauses again.
#[derive(Debug)]
pub(crate) struct SharedClasses(Mutex<ClassFilter>);

impl SharedClasses {
    pub(crate) fn new(registered: Vec<String>) -> Self {
        SharedClasses(Mutex::new(ClassFilter::new(registered)))
    }

    /// Returns the filter, no older than [`READ_EVERY`] if the database answers.
    pub(crate) fn refreshed(&self, session: &mut Session) -> MutexGuard<'_, ClassFilter> {
        let mut filter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        filter.refresh(session);
        filter
    }

    /// Returns the filter as it was read last.
    pub(crate) fn last(&self) -> ClassFilter {
        let filter = self.0.lock();
        filter.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The classes that a worker may claim at present.
#[derive(Debug, Clone)]
pub(crate) struct ClassFilter {
    registered: Vec<String>,
    /// The registered classes that are not paused.
    open: Vec<String>,
    /// Sorted.
    paused: Vec<String>,
    read_at: Option<Instant>,
    /// The number of changes of the pauses so far.
    version: u64,
}

impl ClassFilter {
    pub(crate) fn new(registered: Vec<String>) -> Self {
        ClassFilter {
            open: registered.clone(),
            registered,
            paused: Vec::new(),
            read_at: None,
            version: 0,
        }
    }

    /// Reads the paused classes, unless that was done within [`READ_EVERY`]. If they cannot be read,
    /// those read last are used.
    fn refresh(&mut self, session: &mut Session) {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return;
        }
        let read = session.run("read the paused classes", run_time::paused);
        self.read_at = Some(clock::instant());
        if let Ok(paused) = read
            && paused != self.paused
        {
            self.set(paused);
            self.version += 1;
        }
    }

    /// Returns how often the pauses have changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn set(&mut self, paused: Vec<String>) {
        let is_open = |class: &&String| paused.binary_search(class).is_err();
        self.open = self.registered.iter().filter(is_open).cloned().collect();
        self.paused = paused;
    }

    /// Returns the classes to claim.
    pub(crate) fn open(&self) -> &[String] {
        &self.open
    }

    /// Returns whether any class is paused.
    pub(crate) fn is_any_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    pub(crate) fn is_paused(&self, class: &str) -> bool {
        self.paused
            .binary_search_by(|paused| paused.as_str().cmp(class))
            .is_ok()
    }
}

// --- The front of the paused jobs: each worker passes them once ---

/// The position that a worker has reached in each queue, while classes are paused.
#[derive(Debug, Default)]
pub(crate) struct PausedFront {
    /// By the name of the queue; "" for all queues together.
    reached: HashMap<String, Reached>,
    newest: NewestId,
    /// The paused queues. Once one goes on, there may be jobs before the cursors.
    paused_queues: Vec<String>,
}

/// Before the cursor, no execution up to an id can be claimed.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cursor: Cursor,
    newer_than: i64,
    /// The time at which the next scan from the beginning is due.
    again_at: Instant,
}

/// The ids that ready executions have got.
#[derive(Debug, Default)]
struct NewestId {
    /// The greatest one when it was read last, and when that was.
    last: Option<(i64, Instant)>,
    /// Executions up to this id are visible, unless their transaction was open for [`OPEN`].
    visible: i64,
}

/// The longest time that a transaction which enqueues is assumed to be open. Later commits are
/// found by the next scan from the beginning.
const OPEN: Duration = Duration::from_millis(500);

/// The number of ids before the first one read that may not be visible yet.
const NOT_VISIBLE: i64 = 1_000;

/// The time between two scans from the beginning, and how many times as long as such a scan it is
/// at least. They find jobs that were moved before a cursor, or committed late.
const AGAIN: Duration = Duration::from_secs(10);
const SHARE: u32 = 50;

/// With more new ids than this to search, a scan from the beginning costs less.
const MANY_NEW: i64 = 10_000;

impl PausedFront {
    /// Makes the next claims look at all executions.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Claims jobs from the queues of a request, first those that are new before the cursors.
    pub(crate) fn claim(
        &mut self,
        conn: &mut Conn<'_>,
        request: &ClaimRequest<'_>,
    ) -> QueryResult<Claims> {
        self.refresh(conn)?;
        let now = clock::instant();
        let names = request.queues.names();
        let Some(newer_than) = self.newer_than(&names, now) else {
            return self.scan_all(conn, request, now);
        };
        let from = self.cursors(&names);
        let request = &ClaimRequest {
            from: &from,
            ..*request
        };
        let found = claim_past_paused(conn, request, PausedScan::NewerThan(newer_than))?;
        let Claims::Held { jobs, is_wanted } = found else {
            return Ok(found);
        };
        if jobs.len() >= request.max_jobs {
            self.note_full(&names, newer_than);
            return Ok(Claims::Held { jobs, is_wanted });
        }
        self.note_newer(&names);
        if from.iter().all(|cursor| *cursor == Cursor::END) {
            return Ok(Claims::Held { jobs, is_wanted });
        }
        let rest = ClaimRequest {
            max_jobs: request.max_jobs - jobs.len(),
            ..*request
        };
        match claim_past_paused(conn, &rest, PausedScan::FromCursors) {
            Ok(Claims::Held {
                jobs: more,
                is_wanted: wanted,
            }) => {
                self.note(&names, &more, now + AGAIN);
                let jobs = jobs.into_iter().chain(more).collect();
                let is_wanted = is_wanted || wanted;
                Ok(Claims::Held { jobs, is_wanted })
            }
            // The jobs found so far must be kept.
            _ if !jobs.is_empty() => Ok(Claims::Held { jobs, is_wanted }),
            other => other,
        }
    }

    fn scan_all(
        &mut self,
        conn: &mut Conn<'_>,
        request: &ClaimRequest<'_>,
        now: Instant,
    ) -> QueryResult<Claims> {
        let found = claim_past_paused(conn, request, PausedScan::FromCursors);
        let again_at = clock::deadline((now.elapsed() * SHARE).max(AGAIN));
        let names = request.queues.names();
        match &found {
            Ok(Claims::Held { jobs, .. }) => {
                for name in &names {
                    self.reached.remove(*name);
                }
                self.note(&names, jobs, again_at);
            }
            // After an error the cursors of before are still true.
            _ => self.put_off(&names, again_at),
        }
        found
    }

    /// Returns up to which id the executions before the cursors are known, or `None` if a scan from
    /// the beginning is due.
    fn newer_than(&self, names: &[&str], now: Instant) -> Option<i64> {
        let reached = || names.iter().filter_map(|name| self.reached.get(*name));
        if reached().any(|reached| reached.again_at <= now) {
            return None;
        }
        reached().map(|reached| reached.newer_than).min()
    }

    fn cursors(&self, names: &[&str]) -> Vec<Cursor> {
        let cursor = |name: &&str| {
            let reached = self.reached.get(*name);
            reached.map_or(Cursor::BEGINNING, |reached| reached.cursor)
        };
        names.iter().map(cursor).collect()
    }

    /// Notes what a scan from the cursors found. A queue before that of the last job has no more,
    /// and if there are no jobs, no queue has. After fewer jobs than wanted, the next scan shows
    /// whether others had only taken what was left.
    fn note(&mut self, names: &[&str], jobs: &[Claimed], again_at: Instant) {
        let slot_of = |job: &Claimed| match names {
            [""] => Some(0),
            _ => names.iter().position(|name| *name == job.queue_name),
        };
        let last = jobs.last().map(|job| slot_of(job).unwrap_or(0));
        for (slot, name) in names.iter().enumerate() {
            let furthest = jobs.iter().filter(|job| slot_of(job) == Some(slot));
            let furthest = furthest.map(Cursor::of).max();
            let cursor = match last {
                Some(last) if slot > last => continue,
                Some(last) if slot == last => furthest.unwrap_or(Cursor::BEGINNING),
                Some(_) | None => Cursor::END,
            };
            self.move_to(name, cursor, again_at);
        }
    }

    fn move_to(&mut self, name: &str, cursor: Cursor, again_at: Instant) {
        let newer_than = self.newest.visible;
        match self.reached.get_mut(name) {
            Some(reached) => reached.cursor = reached.cursor.max(cursor),
            None => {
                let reached = Reached {
                    cursor,
                    newer_than,
                    again_at,
                };
                self.reached.insert(name.to_owned(), reached);
            }
        }
    }

    /// Notes that all new jobs before the cursors have been claimed.
    fn note_newer(&mut self, names: &[&str]) {
        for name in names {
            if let Some(reached) = self.reached.get_mut(*name) {
                reached.newer_than = self.newest.visible;
            }
        }
    }

    /// Notes that there may be more new jobs than a claim has taken.
    fn note_full(&mut self, names: &[&str], newer_than: i64) {
        let newest = self.newest.last.map_or(0, |(id, _)| id);
        if newest - newer_than > MANY_NEW {
            for name in names {
                self.reached.remove(*name);
            }
        }
    }

    fn put_off(&mut self, names: &[&str], again_at: Instant) {
        for name in names {
            if let Some(reached) = self.reached.get_mut(*name) {
                reached.again_at = again_at;
            }
        }
    }

    /// Reads, once in a while, how far the ids are, and which queues are paused.
    fn refresh(&mut self, conn: &mut Conn<'_>) -> QueryResult<()> {
        let last = self.newest.last;
        if last.is_some_and(|(_, at)| at.elapsed() < OPEN) {
            return Ok(());
        }
        // Before the statements: what they do not show comes later.
        let now = clock::instant();
        let paused = pauses::names(conn)?;
        if paused != self.paused_queues {
            self.paused_queues = paused;
            self.reached.clear();
        }
        let newest = ready::newest(conn)?;
        self.newest.visible = match last {
            Some((id, _)) => id,
            None => newest - NOT_VISIBLE,
        };
        self.newest.last = Some((newest, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_classes_are_left_out() {
        let mut filter = ClassFilter::new(vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(
            (filter.open(), filter.is_any_paused()),
            (&["b".to_owned(), "a".to_owned()][..], false)
        );
        filter.set(vec!["a".to_owned(), "z".to_owned()]);
        assert_eq!(filter.open(), ["b"]);
        assert!(filter.is_paused("a") && filter.is_paused("z") && !filter.is_paused("b"));
        filter.set(Vec::new());
        assert_eq!(filter.open(), ["b", "a"]);
    }
}
