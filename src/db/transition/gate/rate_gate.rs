//! The tokens of a key during a promotion.

use crate::db::model::rate::{RateBucket, RatePace};
use crate::db::table::rates::RateRow;
use crate::mutant;

/// The shortest time between two looks at the tokens of a key, in microseconds.
pub(super) const TICK: i64 = 20_000;

/// The time after which promised tokens are looked at that nothing waits for.
const LATER: i64 = 1_000_000;

/// The most jobs with tokens of one key that may be ready and not started.
const MOST_PROMISED: i64 = 1_000;

/// The tokens of a key during a promotion.
#[derive(Debug)]
pub(super) struct RateGate {
    pub(super) bucket: RateBucket,
    /// True if the pace was set at run time: that of the jobs does not count.
    pub(super) is_set: bool,
    /// The tokens of jobs that have not started, and the time of the oldest.
    pub(super) promised: i64,
    pub(super) promised_since: Option<i64>,
    closed_until: Option<i64>,
    /// The time of the last look.
    pub(super) looked_at: i64,
    /// True if that is less than a tick ago, or if jobs wait for a time that has not come.
    pub(super) is_early: bool,
    pub(super) due_at: Option<i64>,
    pub(super) has_waiting: bool,
    /// True if its row is to be stored.
    pub(super) is_changed: bool,
    /// The tokens that the next job wants, if one waits.
    pub(super) wanted: Option<i64>,
    /// True if not all tokens could be counted: nothing may pass.
    pub(super) is_uncounted: bool,
}

impl RateGate {
    pub(super) fn room(&self, now: i64) -> i64 {
        if self.is_uncounted || self.closed_until.is_some_and(|until| until > now) {
            return 0;
        }
        let room = self.bucket.room(self.promised);
        let most = (MOST_PROMISED - self.promised).max(0);
        match mutant::is("rate_ignored") {
            true => i64::MAX,
            // A job that costs more than may be promised goes alone.
            false if self.promised == 0 => room,
            false => room.min(most),
        }
    }

    /// Returns whether nothing has to be known of it: it is full, and nothing waits for it.
    pub(super) fn is_idle(&self, now: i64) -> bool {
        let is_full = self.bucket.wait(self.bucket.pace.burst) == Some(0);
        let is_open = self.closed_until.is_none_or(|until| until <= now);
        !self.is_early && is_full && is_open && self.promised == 0 && self.wanted.is_none()
    }

    /// Returns the time of the next look, and whether jobs wait for it.
    pub(super) fn next_look(&self, now: i64) -> (Option<i64>, bool) {
        let age = self.promised_since.map_or(0, |since| now - since).max(0);
        let Some(wanted) = self.wanted else {
            let later = match self.promised > 0 {
                true => LATER.max(age / 4),
                // Full again, it is forgotten.
                false => self
                    .bucket
                    .wait(self.bucket.pace.burst)
                    .unwrap_or(0)
                    .max(LATER),
            };
            return (Some(now.saturating_add(later)), false);
        };
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return (Some(until), true);
        }
        let wait = self.bucket.wait(self.promised.saturating_add(wanted));
        let wait = match wait {
            Some(wait) if !self.is_uncounted && self.promised < MOST_PROMISED => wait,
            // It depends on the start of jobs that are ready.
            _ if self.promised > 0 || self.is_uncounted => age / 4,
            // It can never pass, unless the rate is changed.
            _ => NEVER,
        };
        (Some(now + wait.max(TICK)), true)
    }
}

/// The time between two looks at a job that costs more than its rate allows at once.
const NEVER: i64 = 60_000_000;

impl RateGate {
    pub(super) fn of(used: Option<RateRow>, pace: RatePace, is_set: bool, now: i64) -> Self {
        let mut bucket = match &used {
            Some(row) => RateBucket {
                pace: row.pace(),
                level: row.level,
                counted_at: row.counted_at.min(now),
            },
            None => RateBucket::full(pace, now),
        };
        bucket.change(pace);
        let is_early = used
            .as_ref()
            .is_some_and(|row| match (row.has_waiting, row.due_at) {
                (true, Some(due)) => due > now,
                (_, due) => due.is_some() && row.counted_at + TICK > now,
            });
        RateGate {
            looked_at: bucket.counted_at,
            is_early,
            bucket,
            is_set,
            promised: 0,
            promised_since: None,
            closed_until: used.as_ref().and_then(|row| row.closed_until),
            due_at: used.as_ref().and_then(|row| row.due_at),
            has_waiting: used.as_ref().is_some_and(|row| row.has_waiting),
            is_changed: false,
            wanted: None,
            is_uncounted: false,
        }
    }
}
