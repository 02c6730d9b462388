//! The history: what ended is counted, stored with heartbeats, folded and read.

mod counts;
mod processes;

use crate::support::TestDb;
use windlass::history::{self, HistoryFilter, Tally, TimeRange};

/// Returns the sum of all series.
fn sum(db: &TestDb) -> Tally {
    let mut sum = Tally::default();
    for one in history::totals(&mut db.connection()).unwrap().series {
        sum.merge(&one.tally);
    }
    sum
}

/// The counts of a tally: finished, failed, retried, discarded, cancelled, crashed.
fn counts(tally: &Tally) -> [u64; 6] {
    [
        tally.finished,
        tally.failed,
        tally.retried,
        tally.discarded,
        tally.cancelled,
        tally.crashed,
    ]
}

/// Returns the sum of a series of buckets.
fn sum_of(db: &TestDb, filter: &HistoryFilter, range: TimeRange) -> Tally {
    let mut sum = Tally::default();
    for bucket in history::series(&mut db.connection(), filter, range).unwrap() {
        sum.merge(&bucket.tally);
    }
    sum
}
