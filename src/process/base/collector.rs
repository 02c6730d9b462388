//! Counts what jobs come to, in memory.

use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::db::table::history::deltas::NumberedDelta;
use crate::process::base::parent;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Counts what the jobs of a process come to, until a heartbeat stores it.
///
/// The memory is bounded: at most 1,000 pairs of a queue and a class are told apart.
#[derive(Debug)]
pub(crate) struct HistoryCollector {
    /// A name that no other process has.
    source: String,
    state: Mutex<CollectorState>,
    /// Held by the thread that stores.
    storing: Mutex<()>,
}

#[derive(Debug, Default)]
struct CollectorState {
    counted: Contribution,
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
            source: format!("{}.{number}", parent::token()),
            state: Mutex::default(),
            storing: Mutex::default(),
        }
    }
}

impl HistoryCollector {
    fn state(&self) -> MutexGuard<'_, CollectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the end of a job without a run.
    pub(crate) fn add(&self, queue: &str, class: &str, end: CountedEnd) {
        self.state().counted.tally(queue, class).add(end);
    }

    /// Counts the end of a run.
    pub(crate) fn add_run(&self, queue: &str, class: &str, end: CountedEnd, run: RunSpan) {
        self.state().counted.tally(queue, class).add_run(end, run);
    }

    /// Lets the caller store until the guard is dropped. Returns `None` while another thread does.
    pub(crate) fn begin_to_store(&self) -> Option<MutexGuard<'_, ()>> {
        match self.storing.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes out what is to be inserted next. Returns `None` if nothing ended.
    pub(crate) fn take(&self) -> Option<NumberedDelta> {
        let mut state = self.state();
        if let Some(again) = state.unanswered.take() {
            return Some(again);
        }
        if state.counted.is_empty() {
            return None;
        }
        let counted = std::mem::take(&mut state.counted);
        state.seq += 1;
        Some(NumberedDelta {
            source: self.source.clone(),
            seq: state.seq,
            data: counted.pack(),
        })
    }

    /// Returns whether an insert is to be repeated.
    pub(crate) fn has_unanswered(&self) -> bool {
        self.state().unanswered.is_some()
    }

    /// Puts back what could not be inserted, or has got no answer.
    pub(crate) fn put_back(&self, delta: NumberedDelta) {
        self.state().unanswered = Some(delta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_got_no_answer_keeps_its_number() {
        let collector = HistoryCollector::default();
        assert!(collector.take().is_none());
        collector.add("mail", "send", CountedEnd::Finished);
        let first = collector.take().unwrap();
        assert!(collector.take().is_none());
        let (seq, data) = (first.seq, first.data.clone());
        collector.put_back(first);
        collector.add("mail", "send", CountedEnd::Failed);
        let again = collector.take().unwrap();
        assert_eq!((again.seq, again.data), (seq, data));
        assert_eq!(collector.take().unwrap().seq, seq + 1);
        let other = HistoryCollector::default();
        assert_ne!(other.source, collector.source);
    }
}
