//! Adds what processes have contributed to the history to its buckets, in the transaction that deletes
//! the contributions.

mod plan;

use crate::db::conn::connection::Conn;
use crate::db::model::history::cell::GaugeSample;
use crate::db::model::history::contribution::Contribution;
use crate::db::table::history::deltas::{self, UnfoldedDelta};
use crate::db::table::history::series::{self, FoldTimes};
use crate::db::transition::fold::plan::{FoldPlan, WrittenPlan};
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use std::time::Duration;

/// How many contributions one transaction folds.
pub(crate) const BATCH: usize = 2_000;

/// When a fold is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldWhen {
    /// If the last one was not in this minute: for supervisors.
    OnceAMinute,
    /// If the last one is so long ago that no supervisor folds: for workers.
    Overdue(Duration),
    /// Anyhow: after one that has left some contributions.
    Now,
}

impl FoldWhen {
    fn is_due(self, times: FoldTimes) -> bool {
        match self {
            FoldWhen::Now => true,
            // The clock may have been set back since.
            FoldWhen::OnceAMinute => minute(times.folded) != minute(times.now),
            FoldWhen::Overdue(age) => {
                let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                times.now - times.folded >= age || times.folded > times.now + age
            }
        }
    }
}

fn minute(seconds: i64) -> i64 {
    seconds.div_euclid(60)
}

/// The result of a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folded {
    /// It is not due, or another process is folding.
    NotDue,
    /// A newer program has written rows that this one cannot read: its processes fold.
    LeftToNewer,
    /// So many contributions were folded.
    Done { count: usize, is_full: bool },
}

/// Returns whether a fold is due, without locking anything.
pub(crate) fn is_due(conn: &mut Conn<'_>, when: FoldWhen) -> QueryResult<bool> {
    let times = series::fold_times(conn)?;
    Ok(times.is_none_or(|times| when.is_due(times)))
}

/// Folds up to [`BATCH`] contributions, and a sample of the queues and workers if there is one.
///
/// The row of the series of everything is the lock: a fold holds it to the end of its transaction, and
/// others do not wait. A process that dies at any moment has folded nothing.
pub(crate) fn fold(
    conn: &mut Conn<'_>,
    when: FoldWhen,
    sample: Option<&GaugeSample>,
) -> QueryResult<Folded> {
    let folded = conn.transaction(|conn| {
        let locked = match series::lock(conn)? {
            None => {
                series::insert_first(conn)?;
                series::lock(conn)?
            }
            locked => locked,
        };
        let Some(times) = locked.filter(|times| when.is_due(*times)) else {
            return Ok(Folded::NotDue);
        };
        let mut plan = FoldPlan::new(series::ids(conn)?);
        let folded = contribute(conn, &mut plan)?;
        if let Some(sample) = sample {
            plan.sample(conn, sample, times.now)?;
        }
        if plan.write(conn)? == WrittenPlan::LeftToNewer {
            return Err(RollbackTransaction);
        }
        series::note_folded(conn)?;
        deltas::note_folded(conn, &folded)?;
        Ok(Folded::Done {
            is_full: folded.len() >= BATCH,
            count: folded.len(),
        })
    });
    match folded {
        Err(RollbackTransaction) => Ok(Folded::LeftToNewer),
        folded => folded,
    }
}

/// Adds up to [`BATCH`] contributions to a plan, and returns them. Those that cannot be read are
/// passed over; `doctor` reports them.
fn contribute(conn: &mut Conn<'_>, plan: &mut FoldPlan) -> QueryResult<Vec<UnfoldedDelta>> {
    let (mut folded, mut after) = (Vec::new(), 0);
    loop {
        let found = deltas::unfolded(conn, after, BATCH - folded.len())?;
        let Some(last) = found.last() else {
            return Ok(folded);
        };
        after = last.id;
        for delta in found {
            if let Ok(contribution) = Contribution::unpack(&delta.data) {
                plan.add(conn, &contribution, delta.seconds)?;
                folded.push(delta);
            }
        }
        if folded.len() >= BATCH {
            return Ok(folded);
        }
    }
}
