//! A process's view of the gates, between its promotions.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::model::claim::ClaimsAtGate;
use crate::db::table::shares::{self, ShareKey};
use crate::db::transition::gate::steady_clock::SteadyClock;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The number of jobs of tenants that have ended, and the time that they have taken, in microseconds.
pub(crate) type UsedTimes = BTreeMap<ShareKey, (i64, i64)>;

/// The time for which a queue is left that the database refuses.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// A process's view of the gates.
#[derive(Debug, Default)]
pub(crate) struct GateWatch {
    /// True if a rate or a queue may be due.
    pub(crate) is_due: bool,
    /// The queues whose threads are shared, and of which this process has started jobs since the last promotion.
    pub(crate) started: BTreeSet<String>,
    /// The jobs that this process starts at once.
    pub(crate) claims: Option<ClaimsAtGate>,
    /// The time that jobs have taken which ended since.
    pub(crate) times: UsedTimes,
    /// The queues that were looked at, and whether their threads are shared by time.
    pub(crate) by_time: BTreeMap<String, bool>,
    /// True if it looks at rates and queues as often as it is asked to, in a test.
    pub(super) has_no_tick: bool,
    /// The queues of which the database has refused a look, and when.
    refused: BTreeMap<String, Instant>,
    /// True if the clock must be read before another attempt.
    pub(super) wants_clock: bool,
    pub(super) steady: SteadyClock,
}

impl GateWatch {
    /// Returns the view of a test.
    pub(crate) fn of_test() -> Self {
        GateWatch {
            is_due: true,
            started: BTreeSet::new(),
            claims: None,
            times: UsedTimes::new(),
            by_time: BTreeMap::new(),
            has_no_tick: true,
            refused: BTreeMap::new(),
            wants_clock: false,
            steady: SteadyClock::default(),
        }
    }

    /// Returns the queues to look at: those of which jobs have started, and up to `most` that are due.
    pub(crate) fn queues(&self, conn: &mut Conn<'_>, most: usize) -> QueryResult<BTreeSet<String>> {
        let mut queues = self.started.clone();
        if self.is_due {
            queues.extend(shares::due(conn, most, self.has_no_tick)?);
        }
        queues.retain(|queue| !self.is_left(queue));
        Ok(queues)
    }

    fn is_left(&self, queue: &str) -> bool {
        let at = self.refused.get(queue);
        at.is_some_and(|at| at.elapsed() < LEFT_FOR)
    }

    /// Returns how many jobs of a queue this process can start at once: of one of which it has started jobs.
    pub(super) fn demand(&self, queue: &str) -> i64 {
        match self.started.contains(queue) {
            true => {
                let most = self.claims.as_ref().map_or(0, |claims| claims.most);
                i64::try_from(most / self.started.len()).unwrap_or(i64::MAX)
            }
            false => 0,
        }
    }

    /// Notes how many jobs a promotion has claimed that is committed.
    pub(crate) fn note_claimed(&mut self, jobs: usize) {
        if let Some(claims) = &mut self.claims {
            claims.most = claims.most.saturating_sub(jobs);
        }
    }

    /// Leaves a queue for a while, as the database has refused a look at it.
    pub(crate) fn refuse(&mut self, queue: &str) {
        self.refused.retain(|_, at| at.elapsed() < LEFT_FOR);
        self.refused.insert(queue.to_owned(), clock::instant());
    }

    /// Returns whether one of these is left.
    pub(crate) fn has_refused(&self, queues: &BTreeSet<String>) -> bool {
        queues.iter().any(|queue| self.is_left(queue))
    }

    /// Reads the database's clock if rates may be due, or if a promotion has noticed a step of it. Returns whether it was
    /// read. It is no part of a transaction.
    pub(crate) fn read_clock(&mut self, conn: &mut Conn<'_>) -> QueryResult<bool> {
        let is_read = (self.is_due && !self.has_no_tick) || self.wants_clock;
        self.wants_clock = false;
        if is_read {
            self.steady.note_steps(conn)?;
        }
        Ok(is_read)
    }

    /// Returns whether a promotion has noticed a step of the clock, and must be repeated.
    pub(crate) fn wants_clock(&self) -> bool {
        self.wants_clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or a request that is refused later would be taken for it, again and again.
    #[test]
    fn a_refusal_is_forgotten_after_a_while() {
        let mut watch = GateWatch::default();
        let queues = BTreeSet::from(["mail".to_owned()]);
        watch.refuse("mail");
        assert!(watch.has_refused(&queues));
        let before = clock::instant().checked_sub(LEFT_FOR).unwrap();
        watch.refused.insert("mail".to_owned(), before);
        assert!(!watch.has_refused(&queues));
        watch.refuse("other");
        assert_eq!(watch.refused.len(), 1);
    }
}
