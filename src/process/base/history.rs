//! Counts what the jobs of a process come to, in memory, until a heartbeat stores it.

use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::db::table::history::deltas::NumberedDelta;
use crate::process::base::stop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Counts what the jobs of a process come to, until a heartbeat stores it.
///
/// The memory is bounded: at most 1,000 pairs of a queue and a class are told apart.
#[derive(Debug)]
pub(crate) struct HistoryCollector {
    /// A name that no other process has.
    source: String,
    counted: Mutex<Contribution>,
    stored: Mutex<StoredDeltas>,
}

/// The state of the inserts. A thread locks it while it stores.
#[derive(Debug, Default)]
struct StoredDeltas {
    /// A contribution whose insert got no answer, or was refused: it is inserted again, under the same
    /// number, before any other.
    unanswered: Option<NumberedDelta>,
    /// The number of the last contribution.
    seq: i64,
}

impl Default for HistoryCollector {
    fn default() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        HistoryCollector {
            source: format!("{}.{number}", stop::token()),
            counted: Mutex::default(),
            stored: Mutex::default(),
        }
    }
}

impl HistoryCollector {
    fn counted(&self) -> MutexGuard<'_, Contribution> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the end of a job without a run.
    pub(crate) fn add(&self, queue: &str, class: &str, end: CountedEnd) {
        self.counted().tally(queue, class).add(end);
    }

    /// Counts the end of a run.
    pub(crate) fn add_run(&self, queue: &str, class: &str, end: CountedEnd, run: RunSpan) {
        self.counted().tally(queue, class).add_run(end, run);
    }

    /// Stores what ended since the last call, mostly with one insert and at most with two: one repeats
    /// an insert that got no answer. What ends meanwhile waits for the next call, so that a heartbeat is
    /// not late on a slow database. What cannot be stored is kept for the next call, too.
    ///
    /// Returns whether it has stored what ended before the call. It does nothing while another thread
    /// stores, because contributions are stored one after the other.
    pub(crate) fn store(
        &self,
        mut insert: impl FnMut(&NumberedDelta) -> Result<(), Duration>,
    ) -> bool {
        let mut stored = match self.stored.try_lock() {
            Ok(stored) => stored,
            Err(TryLockError::Poisoned(stored)) => stored.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let most = 1 + usize::from(stored.unanswered.is_some());
        for _ in 0..most {
            let Some(delta) = stored
                .unanswered
                .take()
                .or_else(|| self.take(&mut stored.seq))
            else {
                return true;
            };
            if insert(stored.unanswered.insert(delta)).is_err() {
                return false;
            }
            stored.unanswered = None;
        }
        true
    }

    /// Takes out what was counted. Returns `None` if nothing ended.
    fn take(&self, seq: &mut i64) -> Option<NumberedDelta> {
        let counted = std::mem::take(&mut *self.counted());
        if counted.is_empty() {
            return None;
        }
        *seq += 1;
        Some(NumberedDelta {
            source: self.source.clone(),
            seq: *seq,
            data: counted.pack(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores while jobs end all the time, and returns the numbers that were inserted.
    fn stored(collector: &HistoryCollector, works: bool) -> Vec<i64> {
        let mut numbers = Vec::new();
        collector.store(|delta| {
            numbers.push(delta.seq);
            assert!(numbers.len() < 10, "it does not end");
            collector.add("mail", "send", CountedEnd::Finished);
            works.then_some(()).ok_or(Duration::ZERO)
        });
        numbers
    }

    #[test]
    fn one_thread_stores_at_a_time() {
        let collector = HistoryCollector::default();
        collector.add("mail", "send", CountedEnd::Finished);
        let is_stored = collector.store(|_| {
            assert!(!collector.store(|_| Ok(())));
            Ok(())
        });
        assert!(is_stored);
        assert!(collector.store(|_| Ok(())));
    }

    #[test]
    fn it_ends_although_jobs_end_all_the_time() {
        let collector = HistoryCollector::default();
        assert_eq!(stored(&collector, true), [0; 0]);
        collector.add("mail", "send", CountedEnd::Finished);
        assert_eq!(stored(&collector, true), [1]);
        assert_eq!(stored(&collector, false), [2]);
        assert_eq!(stored(&collector, false), [2]);
        assert_eq!(stored(&collector, true), [2, 3]);
        assert_eq!(stored(&collector, true), [4]);
    }

    #[test]
    fn what_got_no_answer_keeps_its_number() {
        let collector = HistoryCollector::default();
        assert!(collector.store(|_| panic!("nothing ended")));
        collector.add("mail", "send", CountedEnd::Finished);
        let mut inserted = Vec::new();
        let mut insert = |delta: &NumberedDelta, works: bool| {
            inserted.push((delta.seq, delta.data.clone()));
            works.then_some(()).ok_or(Duration::ZERO)
        };
        assert!(!collector.store(|delta| insert(delta, false)));
        collector.add("mail", "send", CountedEnd::Failed);
        assert!(collector.store(|delta| insert(delta, true)));
        let [first, again, next] = &inserted[..] else {
            panic!("{inserted:?}")
        };
        assert_eq!(again, first);
        assert_eq!(next.0, first.0 + 1);
        let other = HistoryCollector::default();
        assert_ne!(other.source, collector.source);
    }
}
