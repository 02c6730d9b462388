//! The sums of all time.

use crate::db::query::history;
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::history::read::SeriesTally;
use serde::Serialize;

/// What ended since the history began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// By queue and class, in order of their names.
    pub series: Vec<SeriesTally>,
    /// How many processes were found dead. Each may have lost what it had counted since its last
    /// heartbeat. Those that had to end, after a time limit or the shutdown timeout, are not counted.
    pub processes_died: u64,
}

/// Returns what ended since the history began, by queue and class. No count ever becomes less, also
/// not when processes end or old buckets are deleted: this is the source of counters.
///
/// A series in which nothing ended for 13 months is deleted.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let totals = windlass::history::totals(&mut conn)?;
/// let failed: u64 = totals.series.iter().map(|one| one.tally.failed).sum();
/// assert_eq!((failed, totals.processes_died), (0, 0));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn totals<C: AsConn + ?Sized>(conn: &mut C) -> Result<Totals> {
    let sums = history::sums(&mut own(conn)).doing("read the totals of the history")?;
    let series = sums.series.iter();
    let series = series.map(|(queue, class, tally)| SeriesTally {
        queue: queue.to_owned(),
        class: class.to_owned(),
        tally: tally.clone(),
    });
    Ok(Totals {
        series: series.collect(),
        processes_died: sums.died,
    })
}
