//! Stores what a process adds to the history.

use crate::db::table::history::deltas::{self, NumberedDelta};
use crate::process::base::context::HistoryCollector;
use crate::process::base::session::Session;
use std::time::Duration;

/// Stores what ended since the last call, mostly with one statement and at most with two: one repeats
/// an insert that got no answer. What ends meanwhile waits for the next call, so that a heartbeat is
/// not late on a slow database. What cannot be stored is kept for the next call, too.
///
/// Returns whether it has stored what ended before the call. It does nothing while another thread
/// stores, because contributions are stored one after the other.
pub(crate) fn store(collector: &HistoryCollector, session: &mut Session) -> bool {
    store_with(collector, |delta| {
        session.run("store what ended", |conn| deltas::insert_delta(conn, delta))
    })
}

fn store_with(
    collector: &HistoryCollector,
    mut insert: impl FnMut(&NumberedDelta) -> Result<(), Duration>,
) -> bool {
    let Some(_storing) = collector.begin_to_store() else {
        return false;
    };
    let most = 1 + usize::from(collector.has_unanswered());
    for _ in 0..most {
        let Some(delta) = collector.take() else {
            return true;
        };
        if insert(&delta).is_err() {
            collector.put_back(delta);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::history::tally::CountedEnd;

    /// Stores while jobs end all the time, and returns the numbers that were inserted.
    fn stored(collector: &HistoryCollector, works: bool) -> Vec<i64> {
        let mut numbers = Vec::new();
        store_with(collector, |delta| {
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
        let is_stored = store_with(&collector, |_| {
            assert!(!store_with(&collector, |_| Ok(())));
            Ok(())
        });
        assert!(is_stored);
        assert!(store_with(&collector, |_| Ok(())));
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
}
