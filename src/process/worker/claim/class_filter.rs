//! The classes that a worker claims: those it has registered, without the paused ones.

use crate::clock;
use crate::db::Conn;
use crate::db::model::claim::{ClaimQueues, ClaimRequest, Claimed, Claims, Cursor, PausedScan};
use crate::db::table::{pauses, ready, run_time};
use crate::db::transition::claim::claim_past_paused;
use crate::process::base::session::Session;
use diesel::QueryResult;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the paused classes are read.
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

/// What a worker may claim at present.
#[derive(Debug, Clone)]
pub(crate) struct ClassFilter {
    registered: Vec<String>,
    /// The registered classes that are not paused.
    open: Vec<String>,
    /// Sorted.
    paused: Vec<String>,
    read_at: Option<Instant>,
    /// How often the pauses have changed.
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

// --- How claims get past many jobs of paused classes: each worker passes them once, and ---

/// How far a worker came in each queue, while classes are paused.
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
    /// When the next scan from the beginning is due.
    again_at: Instant,
}

/// The ids that ready executions have got.
#[derive(Debug, Default)]
struct NewestId {
    /// The greatest one when it was read last, and when that was.
    last: Option<(i64, Instant)>,
    /// Executions up to this id are visible, unless their transaction was open for [`OPEN`].
    settled: i64,
}

/// How long transactions that enqueue are open. Later commits are found by the next scan from the
/// beginning.
const OPEN: Duration = Duration::from_millis(500);

/// How many ids before the first one that was read may not be visible yet.
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
        if jobs.len() >= request.limit {
            self.note_full(&names, newer_than);
            return Ok(Claims::Held { jobs, is_wanted });
        }
        self.note_newer(&names);
        if from.iter().all(|cursor| *cursor == Cursor::END) {
            return Ok(Claims::Held { jobs, is_wanted });
        }
        let rest = ClaimRequest {
            limit: request.limit - jobs.len(),
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
        let newer_than = self.newest.settled;
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
                reached.newer_than = self.newest.settled;
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
        self.newest.settled = match last {
            Some((id, _)) => id,
            None => newest - NOT_VISIBLE,
        };
        self.newest.last = Some((newest, now));
        Ok(())
    }
}

// --- Where a busy worker starts to scan the ready executions ---

/// How far each queue was claimed. Jobs before that (a more important job, a released one, one
/// whose enqueue committed late) are found by the next scan from the beginning.
#[derive(Debug, Default)]
pub(crate) struct ScanCursors {
    /// By the name of the queue; `None` for all queues together.
    reached: HashMap<String, Cursor>,
    /// When the next scan from the beginning is due.
    again_at: Option<Instant>,
    look: Scan,
    /// The durations of the last scans from the beginning, without the time for the jobs that they
    /// found; the newest is last.
    costs: [Duration; 3],
}

/// The scan under way, or the last one.
#[derive(Debug, Default, Clone, Copy)]
struct Scan {
    /// Whether cursors are used and moved at all.
    by_marks: bool,
    /// When it started, if it scans from the beginning.
    began: Option<Instant>,
    of_all: bool,
}

/// The time between two scans from the beginning, for which an urgent job waits, unless these pass
/// many deleted rows: then ten times as long as that takes, at first at most [`PROBATION`].
const INTERVAL: Duration = Duration::from_millis(5);

/// How long a claim takes that passes none, with its commit.
const A_CLAIM: Duration = Duration::from_millis(2);

/// A scan from the beginning that takes longer passes many deleted rows that a long transaction
/// keeps from being vacuumed. Cursors are then used for jobs of all kinds, also when the queues are
/// empty.
const SLOW: Duration = Duration::from_millis(20);

/// A scan that takes even longer counts alone, until the next one, which follows soon: it may only
/// have waited for a lock, or paused with its process. Jobs that are retried or were scheduled come
/// before the cursors.
const VERY_SLOW: Duration = Duration::from_millis(100);

const PROBATION: Duration = Duration::from_secs(3);

/// The longest time of a claim for each job, so that a large claim does not count as a slow scan.
const A_JOB: Duration = Duration::from_micros(50);

impl ScanCursors {
    /// Starts a scan, which may skip what comes before the cursors.
    pub(crate) fn begin(&mut self, by_marks: bool) {
        let now = clock::instant();
        let is_due = self.reached.is_empty() || self.again_at.is_none_or(|at| at <= now);
        let by_marks = by_marks || self.is_slow();
        self.look = Scan {
            by_marks,
            began: (is_due || !by_marks).then_some(now),
            of_all: false,
        };
    }

    /// Returns where a claim starts, in the order of the queues.
    pub(crate) fn from(&mut self, queues: &ClaimQueues) -> Vec<Cursor> {
        self.look.of_all = matches!(queues, ClaimQueues::All);
        if self.look.began.is_some() {
            return Vec::new();
        }
        let mark = |name: &str| self.reached.get(name).copied().unwrap_or(Cursor::BEGINNING);
        match queues {
            ClaimQueues::All => vec![mark("")],
            ClaimQueues::Named(names) => names.iter().map(|name| mark(name)).collect(),
        }
    }

    /// Returns whether the scan has skipped something, so that another one must follow at once.
    pub(crate) fn passed_some(&self) -> bool {
        self.look.began.is_none() && !self.is_slow()
    }

    /// Returns how long what the last scan skipped may wait, or `None` if it skipped nothing.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.look.began.is_none())?;
        Some(again_at.saturating_duration_since(clock::instant()))
    }

    fn is_slow(&self) -> bool {
        self.is_proven() || self.costs[2] > VERY_SLOW
    }

    fn is_proven(&self) -> bool {
        self.costs.iter().all(|cost| *cost > SLOW)
    }

    /// Notes which jobs a scan found that wanted up to `limit`. After fewer jobs the next scan starts from the beginning, unless that is slow.
    pub(crate) fn reach(&mut self, jobs: &[Arc<Claimed>], limit: usize) {
        let took = self.look.began.map(|began| began.elapsed());
        self.reach_after(took, jobs, limit);
    }

    /// Notes that a scan was cancelled because it took too long. A scan from the beginning is not
    /// repeated at once, because jobs behind the cursors would wait forever.
    pub(crate) fn give_up(&mut self) {
        if let Some(took) = self.look.began.map(|began| began.elapsed()) {
            self.give_up_after(took);
        }
    }

    fn give_up_after(&mut self, took: Duration) {
        self.costs.rotate_left(1);
        self.costs[2] = took;
        self.again_at = Some(clock::instant() + self.pause_after(took));
    }

    /// Returns when another scan from the beginning may follow one that took `took`.
    fn pause_after(&self, took: Duration) -> Duration {
        let longest = if self.is_proven() {
            Duration::MAX
        } else {
            PROBATION
        };
        // One scan may only have waited for the disk.
        let usual = if took > VERY_SLOW {
            took
        } else {
            took.min(self.costs[1])
        };
        let passing = usual.saturating_sub(A_CLAIM);
        (passing * 10).clamp(INTERVAL, longest)
    }

    /// Notes the result of a scan. `took` is how long it took, if it was from the beginning. The time
    /// for the jobs that it found does not count.
    fn reach_after(&mut self, took: Option<Duration>, jobs: &[Arc<Claimed>], limit: usize) {
        let of_jobs = A_JOB * u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let took = took.map(|took| took.saturating_sub(of_jobs));
        if let Some(took) = took {
            self.costs.rotate_left(1);
            self.costs[2] = took;
        }
        if jobs.len() < limit && !self.is_slow() {
            return self.forget();
        }
        if !self.look.by_marks && !self.is_slow() {
            return;
        }
        if let Some(took) = took {
            self.again_at = Some(clock::instant() + self.pause_after(took));
            // If nothing was found, nothing is before the old cursors.
            if !jobs.is_empty() {
                self.reached.clear();
            }
        }
        let of_all = self.look.of_all;
        // One look-up in the map for consecutive jobs of one queue.
        for same in jobs.chunk_by(|one, next| of_all || one.queue_name == next.queue_name) {
            let name = if of_all { "" } else { &same[0].queue_name };
            if let Some(furthest) = same.iter().map(|job| Cursor::of(job)).max() {
                self.note(name, furthest);
            }
        }
    }

    fn note(&mut self, name: &str, mark: Cursor) {
        match self.reached.get_mut(name) {
            Some(reached) => *reached = mark.max(*reached),
            None => drop(self.reached.insert(name.to_owned(), mark)),
        }
    }

    /// Makes the next scan start from the beginning.
    pub(crate) fn forget(&mut self) {
        *self = ScanCursors {
            costs: self.costs,
            ..ScanCursors::default()
        };
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

    const LONG: Duration = Duration::from_millis(25);

    fn claimed() -> Claimed {
        Claimed {
            claim_id: 1,
            begun: true,
            waited: None,
            job_id: 1,
            queue_name: "q".to_owned(),
            class_name: "a".to_owned(),
            arguments: "{}".to_owned(),
            priority: 0,
            attempts: 0,
            at_most_once: false,
            created_at: chrono::NaiveDateTime::default(),
            scheduled_at: None,
            max_attempts: None,
            policy: None,
            unique_id: None,
            is_limited: false,
            has_run: false,
            traceparent: String::new(),
            batch_id: None,
            has_dependents: false,
            is_wanted: false,
            has_blocked: false,
        }
    }

    /// Makes a scan that takes `took` and finds nothing.
    fn look(cursors: &mut ScanCursors, took: Duration) -> Vec<Cursor> {
        cursors.begin(false);
        scan(cursors, took)
    }

    fn scan(cursors: &mut ScanCursors, took: Duration) -> Vec<Cursor> {
        let from = cursors.from(&ClaimQueues::All);
        let took = cursors.look.began.map(|_| took);
        cursors.reach_after(took, &[], 1);
        from
    }

    fn with_a_cursor(cursors: &mut ScanCursors) {
        let mark = Cursor {
            priority: 0,
            job_id: 7,
        };
        cursors.reached.insert(String::new(), mark);
    }

    #[test]
    fn cursors_end_with_the_queue() {
        let mut cursors = ScanCursors::default();
        for _ in 0..5 {
            with_a_cursor(&mut cursors);
            cursors.begin(true);
            assert_eq!(scan(&mut cursors, Duration::ZERO), []);
            assert_eq!(cursors.patience(), None);
        }
    }

    #[test]
    fn they_stay_where_a_look_from_the_beginning_is_slow() {
        let mut cursors = ScanCursors::default();
        for _ in 0..4 {
            assert_eq!(look(&mut cursors, LONG), []);
        }
        with_a_cursor(&mut cursors);
        let from = look(&mut cursors, LONG);
        assert_eq!(from.len(), 1);
        assert_eq!(from[0].job_id, 7);
        // Jobs before the cursor are looked for, but not at once.
        assert!(!cursors.passed_some());
        let patience = cursors.patience().unwrap();
        assert!(patience <= 10 * LONG, "{patience:?}");
    }

    #[test]
    fn one_very_slow_scan_is_enough() {
        let mut cursors = ScanCursors::default();
        assert_eq!(look(&mut cursors, 60 * LONG), []);
        with_a_cursor(&mut cursors);
        assert_eq!(look(&mut cursors, Duration::ZERO).len(), 1);
        // The process may have paused: what the scan skipped does not wait ten times that long.
        let patience = cursors.patience().unwrap();
        assert!(patience <= PROBATION, "{patience:?}");
    }

    #[test]
    fn they_stay_where_nothing_stands_before_them() {
        let mut cursors = ScanCursors::default();
        look(&mut cursors, 6 * LONG);
        with_a_cursor(&mut cursors);
        cursors.again_at = None;
        assert_eq!(look(&mut cursors, 6 * LONG), [], "it is time");
        assert_eq!(look(&mut cursors, Duration::ZERO)[0].job_id, 7);
    }

    #[test]
    fn a_look_that_was_given_up_is_not_repeated_at_once() {
        let mut cursors = ScanCursors::default();
        for _ in 0..3 {
            with_a_cursor(&mut cursors);
            cursors.again_at = None;
            cursors.begin(false);
            assert_eq!(cursors.from(&ClaimQueues::All), [], "it is time");
            cursors.give_up_after(1200 * LONG);
            assert_eq!(look(&mut cursors, Duration::ZERO)[0].job_id, 7);
        }
        assert!(cursors.patience().unwrap() > PROBATION);
    }

    #[test]
    fn an_urgent_job_does_not_wait_because_a_claim_found_many() {
        let mut cursors = ScanCursors::default();
        let jobs: Vec<Arc<Claimed>> = (0..128).map(|_| Arc::new(claimed())).collect();
        cursors.begin(true);
        assert_eq!(cursors.from(&ClaimQueues::All), []);
        cursors.reach_after(Some(Duration::from_millis(7)), &jobs, 128);
        cursors.begin(true);
        cursors.from(&ClaimQueues::All);
        let patience = cursors.patience().unwrap();
        assert!(patience <= INTERVAL, "{patience:?}");
    }

    #[test]
    fn one_look_that_had_to_wait_proves_nothing() {
        let mut cursors = ScanCursors::default();
        for took in [LONG, Duration::ZERO, LONG, LONG, Duration::ZERO, LONG] {
            with_a_cursor(&mut cursors);
            assert_eq!(look(&mut cursors, took), []);
        }
    }
}
