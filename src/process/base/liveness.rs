//! The signs of life of a process, for its service manager.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::table::flows::batches;
use crate::db::table::wanted_keys::BEGINNING;
use diesel::QueryResult;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Signs of life of a process, which are reported to its service manager.
///
/// A supervisor is alive while its loop turns, and while the loop waits for the database for at
/// most the alive threshold. Any other process is alive while its last heartbeat, or its start, is
/// younger than its alive threshold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Liveness(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// True if the process has a loop that counts its turns.
    has_loop: AtomicBool,
    turns: AtomicU64,
    /// For a loop: since when it waits for the database, which for a while is no reason to restart
    /// it. For any other process: when its last heartbeat succeeded. In milliseconds on the clock
    /// of [`since_boot`](clock::since_boot); 0 means none.
    waiting_since: AtomicU64,
    /// The longest time since `waiting_since` that is no reason for a restart, in milliseconds.
    patience: AtomicU64,
    running: AtomicU64,
    slots: AtomicU64,
}

impl Liveness {
    /// Counts the process as alive for this long without an answer of the database.
    pub(crate) fn waits_at_most(&self, patience: Duration) {
        self.0.patience.store(millis(patience), Ordering::Relaxed);
    }

    /// Counts the process as alive only while [`turn`](Self::turn) is called.
    pub(crate) fn has_loop(&self) {
        self.0.has_loop.store(true, Ordering::Relaxed);
    }

    /// Counts one more turn of the loop.
    pub(crate) fn turn(&self, running: usize, slots: usize) {
        self.0.running.store(running as u64, Ordering::Relaxed);
        self.0.slots.store(slots as u64, Ordering::Relaxed);
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the process has started, or that a heartbeat succeeded. That does not show
    /// whether a loop turns.
    pub(crate) fn beat(&self) {
        if !self.0.has_loop.load(Ordering::Relaxed) {
            self.rest();
        }
    }

    /// Runs `work`, which may have to wait for the database.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rest();
        let done = work();
        self.0.waiting_since.store(0, Ordering::Relaxed);
        done
    }

    /// Notes that the loop has ended: only leaving the database remains.
    pub(crate) fn rest(&self) {
        let now = millis(clock::since_boot()).max(1);
        self.0.waiting_since.store(now, Ordering::Relaxed);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let since = self.0.waiting_since.load(Ordering::Relaxed);
        let patience = self.0.patience.load(Ordering::Relaxed);
        since != 0 && millis(clock::since_boot()).saturating_sub(since) < patience
    }

    /// Returns how many child programs run, and how many should. Both are 0 before the first turn.
    pub(crate) fn children(&self) -> (u64, u64) {
        let (running, slots) = (&self.0.running, &self.0.slots);
        let running = running.load(Ordering::Relaxed);
        (running, slots.load(Ordering::Relaxed))
    }

    pub(crate) fn status(&self) -> String {
        match self.children() {
            (_, 0) => "running".to_owned(),
            (running, slots) => format!("{running} of {slots} children run"),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// --- The start of a search for wanted keys ---

/// The id up to which the wanted keys were searched. While a search from the beginning is cheap,
/// each one starts there.
///
/// Ids may be committed out of order. So the mark is an id that was the last one some time ago, and
/// a key that is committed even later waits for the next search from the beginning.
#[derive(Debug, Default)]
pub(crate) struct WantedMark {
    after: i64,
    last: Option<LastIdReading>,
    /// The time at which the next search from the beginning is due. `None` if each search starts
    /// there.
    again_at: Option<Instant>,
    /// The time at which a slow claim was last taken as a sign that such searches take long.
    suspected_at: Option<Instant>,
    is_suspect: bool,
    /// True if a claim has passed over keys since the last search from the beginning.
    has_passed: bool,
}

/// The last id that was given out.
#[derive(Debug, Clone, Copy)]
struct LastIdReading {
    id: i64,
    read_at: Instant,
}

/// A search for wanted keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySearch {
    /// The id after which it starts.
    pub(crate) after: i64,
    is_from_beginning: bool,
    is_time_to_ask: bool,
}

/// A search from the beginning that takes longer passes many deleted keys that are not yet cleared
/// away.
const SLOW: Duration = Duration::from_millis(5);

/// A claim that takes longer is a reason to measure a search from the beginning by itself.
const SLOW_CLAIM: Duration = Duration::from_millis(10);

/// The least age of the mark, and the time between two searches from the beginning, unless these
/// take so long that [`SHARE`] times their duration is longer.
const INTERVAL: Duration = Duration::from_secs(1);

const SHARE: u32 = 10;

impl KeySearch {
    /// Returns whether to read the last id after a search that took `took`.
    pub(crate) fn asks_after(&self, took: Duration) -> bool {
        self.is_time_to_ask || (self.is_from_beginning && took > SLOW)
    }
}

impl WantedMark {
    /// Returns the id after which a claim looks for wanted keys.
    pub(crate) fn claim(&mut self) -> i64 {
        self.has_passed = self.after > BEGINNING;
        self.after
    }

    /// Returns how long the keys that a claim has passed over may wait, or `None` if it has passed
    /// over none.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.has_passed)?;
        Some(again_at.saturating_duration_since(clock::instant()))
    }

    /// Returns whether a promotion should search from the beginning, or move the mark, although no
    /// key was seen to be wanted.
    pub(crate) fn is_due(&self) -> bool {
        self.is_suspect || self.is_time()
    }

    fn is_time(&self) -> bool {
        self.is_time_to_ask() || self.again_at.is_some_and(|at| at <= clock::instant())
    }

    fn is_time_to_ask(&self) -> bool {
        self.last
            .is_some_and(|last| last.read_at.elapsed() >= INTERVAL)
    }

    /// Notes how long a claim took, which also searched after the mark.
    pub(crate) fn suspect(&mut self, took: Duration) {
        let is_recent = |at: Instant| at.elapsed() < INTERVAL;
        if took > SLOW_CLAIM && self.last.is_none() && !self.suspected_at.is_some_and(is_recent) {
            self.suspected_at = Some(clock::instant());
            self.is_suspect = true;
        }
    }

    /// Starts the search of a promotion.
    pub(crate) fn begin(&self) -> KeySearch {
        let is_due = self.again_at.is_none_or(|at| at <= clock::instant());
        KeySearch {
            after: if is_due { BEGINNING } else { self.after },
            is_from_beginning: is_due,
            is_time_to_ask: self.is_time_to_ask(),
        }
    }

    /// Notes how long a search took, and the last id, if that was read. A search that found a full
    /// chunk may have left some keys where it started.
    pub(crate) fn end(
        &mut self,
        search: KeySearch,
        took: Duration,
        is_full: bool,
        last: Option<i64>,
    ) {
        self.is_suspect = false;
        self.has_passed &= !search.is_from_beginning;
        if search.is_from_beginning && took <= SLOW {
            if !is_full {
                *self = WantedMark {
                    suspected_at: self.suspected_at,
                    ..WantedMark::default()
                };
            }
            return;
        }
        if let Some(last) = last {
            self.move_on(last);
        }
        if search.is_from_beginning && !(is_full && self.again_at.is_some()) {
            self.again_at = Some(clock::deadline(took.saturating_mul(SHARE).max(INTERVAL)));
        }
    }

    /// Moves the mark to the id that was the last one when it was read some time ago.
    fn move_on(&mut self, last: i64) {
        let now = clock::instant();
        match self.last {
            Some(before) if now - before.read_at < INTERVAL => {}
            before => {
                // The ids start again after the table was created again.
                let before = before.map_or(BEGINNING, |before| before.id);
                self.after = before.min(last);
                self.last = Some(LastIdReading {
                    id: last,
                    read_at: now,
                });
            }
        }
    }
}

/// The ids at which the open jobs of batches start, as a loop saw last.
///
/// Jobs end about in the order of their ids, and Postgres keeps the index entries of those that ended until the next
/// vacuum. The read that finds no job left passes all of them: half a second for a million, unless an earlier read has
/// marked them. So each of them is passed once, soon after its job has ended.
#[derive(Debug, Default)]
pub(crate) struct BatchFronts {
    first: BTreeMap<i64, i64>,
    again_at: Option<Instant>,
}

/// The least time between two reads of fronts, unless [`FRONT_SHARE`] times the last one's duration is longer.
const FRONT_INTERVAL: Duration = Duration::from_millis(50);

const FRONT_SHARE: u32 = 20;

impl BatchFronts {
    /// Passes what has ended at the fronts of batches that are not over.
    pub(crate) fn pass_ended(&mut self, conn: &mut Conn<'_>, open: &[i64]) -> QueryResult<()> {
        let start = clock::instant();
        let is_early = self.again_at.is_some_and(|at| at > start);
        // SQLite keeps no entries of deleted rows.
        if open.is_empty() || is_early || conn.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let known = |batch: &i64| (*batch, self.first.get(batch).copied().unwrap_or_default());
        let from: Vec<(i64, i64)> = open.iter().map(known).collect();
        let fronts = batches::fronts(conn, &from)?;
        let first = fronts
            .iter()
            .filter_map(|front| Some((front.id, front.first?)));
        self.first = first.collect();
        let pause = start.elapsed().saturating_mul(FRONT_SHARE);
        self.again_at = Some(clock::deadline(pause.max(FRONT_INTERVAL)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(6);

    /// Ends a search that took `took`, when `last` was the last id.
    fn search(mark: &mut WantedMark, took: Duration, last: i64) -> i64 {
        let search = mark.begin();
        let last = search.asks_after(took).then_some(last);
        mark.end(search, took, false, last);
        search.after
    }

    /// Pretends that more than the longest pause has passed since the last search.
    fn age(mark: &mut WantedMark) {
        mark.again_at = mark.again_at.map(|_| clock::instant());
        if let Some(last) = &mut mark.last {
            last.read_at -= INTERVAL;
        }
    }

    #[test]
    fn as_long_as_it_is_cheap_each_search_begins_at_the_beginning() {
        let mut mark = WantedMark::default();
        for last in 1..5 {
            assert_eq!(search(&mut mark, Duration::ZERO, last), BEGINNING);
            assert!(!mark.is_due());
        }
    }

    #[test]
    fn the_mark_is_an_id_that_is_no_longer_new() {
        let mut mark = WantedMark::default();
        search(&mut mark, LONG, 70);
        assert_eq!(mark.claim(), BEGINNING);
        assert!(!mark.is_due());
        age(&mut mark);
        assert!(mark.is_due());
        search(&mut mark, LONG, 90);
        assert_eq!(mark.claim(), 70);
        assert_eq!(search(&mut mark, Duration::ZERO, 95), 70);
        assert_eq!(mark.claim(), 70);
    }

    #[test]
    fn a_search_from_the_beginning_follows_in_its_time() {
        let mut mark = WantedMark::default();
        for last in [70, 90] {
            search(&mut mark, 1_000 * LONG, last);
            age(&mut mark);
        }
        assert_eq!(search(&mut mark, 1_000 * LONG, 95), BEGINNING);
        assert_eq!(mark.patience(), None);
        assert_eq!(mark.claim(), 90);
        let pause = mark.patience().unwrap();
        assert!(pause > 9_000 * LONG, "{pause:?}");
        age(&mut mark);
        assert_eq!(search(&mut mark, Duration::ZERO, 99), BEGINNING);
        assert_eq!(mark.claim(), BEGINNING, "it is cheap again");
        assert!(!mark.is_due());
    }

    #[test]
    fn a_table_that_was_made_anew_has_smaller_ids() {
        let mut mark = WantedMark::default();
        search(&mut mark, LONG, 70);
        age(&mut mark);
        search(&mut mark, LONG, 3);
        assert_eq!(mark.claim(), 3);
    }

    #[test]
    fn a_slow_claim_is_looked_into_once_in_a_while() {
        let mut mark = WantedMark::default();
        mark.suspect(SLOW_CLAIM);
        assert!(!mark.is_due());
        mark.suspect(2 * SLOW_CLAIM);
        assert!(mark.is_due());
        search(&mut mark, Duration::ZERO, 1);
        mark.suspect(2 * SLOW_CLAIM);
        assert!(!mark.is_due());
    }
}
