//! The history: jobs and runs that ended, added up by time, queue and class.
//!
//! Each process counts in memory what its jobs came to, and stores it with its heartbeat. A
//! supervisor adds this up to buckets of a minute, ten minutes and an hour. The page
//! `docs/measuring.md` says what is counted, how exactly, and how long it is kept.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::history::{self, HistoryFilter, TimeRange};
//!
//! let mail = HistoryFilter::all().queue("mail");
//! for bucket in history::series(&mut conn, &mail, TimeRange::Hour)? {
//!     let p99 = bucket.tally.wait.quantile(0.99);
//!     println!("{}: {} finished, p99 {p99:?}", bucket.starts_at, bucket.tally.finished);
//! }
//! for sum in history::by_queue(&mut conn, TimeRange::Day)? {
//!     println!("{}: {} failed", sum.queue, sum.tally.failed);
//! }
//! # Ok::<(), windlass::Error>(())
//! ```

pub(crate) mod rates;
pub(crate) mod read;

use crate::db::table::history::deltas;
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
use serde::{Serialize, Serializer};
use std::time::Duration;

pub use crate::db::model::history::cell::{FleetGauge, QueueGauge};
pub use crate::db::model::history::tally::{Histogram, Tally};
pub use crate::history::rates::{Usual, typical_run, usual};
pub use crate::history::read::{HistoryFilter, TimeRange, Totals, totals};
pub use rates::{QueueRate, rates};
pub use read::{Bucket, SeriesTally, by_class, by_queue, series};

// --- The lag of the history, and bringing it up to date ---

/// The lag of the history, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HistoryLag {
    /// The number of contributions of processes that are not folded; at most 10,000 are counted.
    pub unfolded: u64,
    /// The age of the oldest of them, `oldest_seconds` in JSON. `None` if there is none.
    #[serde(rename = "oldest_seconds", serialize_with = "as_seconds")]
    pub oldest: Option<Duration>,
    /// The time since the history was last folded, `folded_seconds` in JSON. `None` if it never was.
    #[serde(rename = "folded_seconds", serialize_with = "as_seconds")]
    pub folded: Option<Duration>,
}

fn as_seconds<S: Serializer>(
    age: &Option<Duration>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    age.map(|age| age.as_secs_f64()).serialize(serializer)
}

/// Returns how far the history is behind. With a supervisor, the oldest contribution is younger than
/// two minutes; without one, workers fold, and it may be five minutes old.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let lag = windlass::history::lag(&mut conn)?;
/// assert_eq!((lag.unfolded, lag.oldest), (0, None));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn lag<C: AsConn + ?Sized>(conn: &mut C) -> Result<HistoryLag> {
    let backlog = deltas::backlog(&mut own(conn)).during("look how far the history is behind")?;
    // Negative after the clock was set back.
    let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let is_real = |age: &Duration| *age < Duration::from_secs(10 * 366 * 86_400);
    Ok(HistoryLag {
        unfolded: u64::try_from(backlog.unfolded).unwrap_or(0),
        oldest: backlog.oldest.map(age),
        folded: backlog.folded.map(age).filter(is_real),
    })
}

/// Folds now what processes have contributed, and returns how many contributions that were. Returns 0
/// if another process is folding.
///
/// Supervisors do this once a minute, and workers where no supervisor runs. What is not folded is in
/// every result all the same, so this is for tests, and before a database is archived.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert_eq!(windlass::history::fold(&mut conn)?, 0, "no process has run");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn fold<C: AsConn + ?Sized>(conn: &mut C) -> Result<u64> {
    let mut conn = own(conn);
    let mut sum = 0;
    loop {
        let folded = fold::fold(&mut conn, FoldWhen::Now, None).during("fold the history")?;
        let Folded::Done { count, is_full } = folded else {
            return Ok(sum);
        };
        sum += count as u64;
        if !is_full {
            return Ok(sum);
        }
    }
}
