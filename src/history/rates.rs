//! How fast the queues move.

use crate::db::model::history::cell::Resolution;
use crate::db::query::history::Seconds;
use crate::db::{AsConn, own};
use crate::error::Result;
use crate::history::read::{queue_sums, read_ids};
use serde::Serialize;
use std::time::Duration;

/// How fast a queue moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueRate {
    /// The queue.
    pub queue: String,
    /// Finished jobs per minute.
    pub finished_per_minute: f64,
    /// Permanently failed jobs per minute.
    pub failed_per_minute: f64,
    /// The seconds that half of the jobs waited at most.
    pub wait_p50_seconds: Option<f64>,
    /// The seconds that 99 % of the jobs waited at most.
    pub wait_p99_seconds: Option<f64>,
}

/// Returns how fast each queue moved within the last minutes, in order of their names.
///
/// A queue in
/// which nothing ended is left out. `over` is the time to look back, 1 minute to 24 hours; it is
/// extended to whole minutes.
///
/// Processes store what they count with their heartbeats, every 10 s by default: the newest 10 s are
/// not complete.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn rates<C: AsConn + ?Sized>(conn: &mut C, over: Duration) -> Result<Vec<QueueRate>> {
    let mut conn = own(conn);
    let ids = read_ids(&mut conn)?;
    let over = i64::try_from(over.as_secs()).unwrap_or(i64::MAX);
    let from = ids.now - over.clamp(60, 86_400);
    let span = Seconds {
        from: from.div_euclid(60) * 60,
        to: ids.now + 60,
    };
    let minutes = (ids.now - span.from) as f64 / 60.0;
    let sums = queue_sums(&mut conn, &ids, Resolution::Minute, span)?;
    let rates = sums.into_iter().map(|(queue, tally)| {
        let wait = |p| tally.wait.quantile(p).map(|wait| wait.as_secs_f64());
        QueueRate {
            queue,
            finished_per_minute: tally.finished as f64 / minutes,
            failed_per_minute: tally.failed as f64 / minutes,
            wait_p50_seconds: wait(0.5),
            wait_p99_seconds: wait(0.99),
        }
    });
    Ok(rates.collect())
}
