//! What a process adds to the history.

use crate::clock;
use crate::db::model::history::cell::GaugeSample;
use crate::db::model::history::contribution::MOST_SERIES;
use crate::db::query::status;
use crate::db::table::history::deltas::{self, NumberedDelta};
use crate::db::table::ready::queue_names;
use crate::db::transition::clear;
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::process::base::context::HistoryCollector;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

// --- Clears what the history keeps no longer, in workers that fold because no supervisor does ---

/// How often a worker clears.
const EVERY: Duration = Duration::from_secs(3_600);

/// How many contributions are deleted at once.
const BATCH: usize = 1_000;

/// When a worker clears next, and how far its walk over the series has come.
#[derive(Debug)]
pub(crate) struct HistoryClearing {
    next: Instant,
    after: i64,
}

impl HistoryClearing {
    pub(crate) fn new() -> Self {
        HistoryClearing {
            next: clock::instant(),
            after: 0,
        }
    }

    /// Clears about once an hour, until `until` or a stop. The next call goes on with the next series.
    pub(crate) fn turn(
        &mut self,
        session: &mut Session,
        stop: &Stop,
        until: Instant,
    ) -> Result<(), Duration> {
        let now = clock::instant();
        if now < self.next || now >= until {
            return Ok(());
        }
        self.next = now + clock::jittered(EVERY);
        session.run("clear the history", |conn| clear::unused(conn, BATCH))?;
        while !stop.is_stopped() && clock::instant() < until {
            let after = self.after;
            let page = session.run("clear the history", |conn| clear::old_buckets(conn, after))?;
            self.after = page.reached.unwrap_or(0);
            if page.reached.is_none() {
                break;
            }
        }
        Ok(())
    }
}

// --- Folds the history, in supervisors, and in workers where no supervisor runs ---

/// The age of the newest fold from which on workers fold.
const OVERDUE: Duration = Duration::from_secs(180);

/// How often a worker looks whether no supervisor folds.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long a worker folds between two of its heartbeats.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Folds what is due, with a sample of the queues and workers, until `until` or a stop. Returns
/// whether it has folded.
pub(crate) fn fold_due(
    session: &mut Session,
    when: FoldWhen,
    stop: &Stop,
    until: Instant,
) -> Result<bool, Duration> {
    if !session.run("look whether a fold is due", |conn| {
        fold::is_due(conn, when)
    })? {
        return Ok(false);
    }
    let sample = sample(session, stop, until)?;
    let (mut when, mut sample) = (when, sample.as_ref());
    let mut has_folded = false;
    while !stop.is_stopped() {
        let folded = session.run("fold what ended", |conn| fold::fold(conn, when, sample))?;
        has_folded |= matches!(folded, Folded::Done { .. });
        if !matches!(folded, Folded::Done { is_full: true, .. }) || clock::instant() >= until {
            break;
        }
        (when, sample) = (FoldWhen::Now, None);
    }
    Ok(has_folded)
}

/// Samples the queues and workers. Returns `None` if it is too late before all queues are sampled: a
/// queue that is missing in a sample counts as empty.
fn sample(
    session: &mut Session,
    stop: &Stop,
    until: Instant,
) -> Result<Option<GaugeSample>, Duration> {
    let names = session.run("sample the queues", |conn| queue_names(conn, ""))?;
    let mut sample = GaugeSample {
        queues: Vec::with_capacity(names.len()),
        fleet: session.run("sample the workers", status::fleet)?,
    };
    // Each in a call of its own, so that writers of a SQLite file need not wait for all.
    for name in names.into_iter().take(MOST_SERIES) {
        if stop.is_stopped() || clock::instant() >= until {
            return Ok(None);
        }
        let gauge = session.run("sample the queues", |conn| status::queue(conn, &name))?;
        sample.queues.push((name, gauge));
    }
    Ok(Some(sample))
}

/// Returns a function for a worker to call after each heartbeat. About once a minute, it folds if no
/// other process has done so for three minutes. Where it folds, it also clears.
pub(crate) fn in_worker(stop: &Stop) -> impl FnMut(&mut Session) + use<> {
    let stop = stop.clone();
    let mut next = clock::instant();
    let mut clearing = HistoryClearing::new();
    move |session| {
        let now = clock::instant();
        if now < next {
            return;
        }
        next = now + clock::jittered(LOOK_EVERY);
        let until = now + AT_ONCE;
        let folded = fold_due(session, FoldWhen::Overdue(OVERDUE), &stop, until);
        if folded == Ok(true) {
            // What fails is tried again in an hour.
            let _ = clearing.turn(session, &stop, until);
        }
    }
}

// --- Stores what a process has counted ---

/// Stores what ended since the last call, mostly with one statement and at most with two: one repeats
/// an insert that got no answer. What ends meanwhile waits for the next call, so that a heartbeat is
/// not late on a slow database. What cannot be stored is kept for the next call, too.
///
/// Returns whether it has stored what ended before the call. It does nothing while another thread
/// stores, because contributions are stored one after the other.
pub(crate) fn store(collector: &HistoryCollector, session: &mut Session) -> bool {
    store_with(collector, |delta| {
        session.run("store what ended", |conn| deltas::insert(conn, delta))
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
